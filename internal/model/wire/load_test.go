package wire_test

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"
	"weak"

	"noused/internal/model"
)

// A conversation is read when there is room for it, and let go, with the room, before
// its answer comes: that may take minutes. A request that is refused reads it again.
func TestMessagesAreInMemoryWhileTheirRequestIsMade(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		var asked atomic.Int64
		refusals := map[string]string{
			"openai": "stream_options is not permitted", "responses": "encrypted content is not supported",
		}
		p := d.connect(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(body), "xxxxxx") {
				t.Errorf("asked with %.200s", body)
			}
			if why := refusals[d.name]; asked.Add(1) == 1 && why != "" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":{"message":"`+why+`"}}`)
				return
			}
			says(d.start+d.text("so")+d.finish("stop"))(w, r)
		})
		loaded, given := 0, 0
		var last weak.Pointer[byte]
		req := model.Request{Load: func(int) ([]model.Message, func(), error) {
			if given < loaded {
				t.Error("room is wanted before what there was is given back")
			}
			loaded++
			text := strings.Repeat("x", 600<<10)
			last = weak.Make(unsafe.StringData(text))
			return []model.Message{{Role: model.User, Text: text}}, func() { given++ }, nil
		}}
		said := ""
		for delta, err := range p.Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			if said += delta.Text; delta.Text == "" {
				continue
			}
			if runtime.GC(); last.Value() != nil {
				t.Error("the messages are in memory while the answer comes")
			}
			if given != loaded {
				t.Errorf("room was taken %d times and given back %d times", loaded, given)
			}
		}
		want := 1
		if refusals[d.name] != "" {
			want = 2
		}
		if said != "so" || loaded != want {
			t.Errorf("got %q; the messages were loaded %d times, want %d", said, loaded, want)
		}
		none := errors.New("there is no room")
		req.Load = func(int) ([]model.Message, func(), error) { return nil, nil, none }
		if got := read(t.Context(), p, req); !errors.Is(got.err, none) {
			t.Errorf("without room: got %v", got.err)
		}
	})
}
