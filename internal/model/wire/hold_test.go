package wire_test

import (
	"errors"
	"strings"
	"testing"

	"noused/internal/model"
)

// What an answer makes a provider keep is held before it is kept: the arguments for
// good, an event that is long until it has been taken in. Without room the answer
// ends, and says why.
func TestWhatIsKeptOfAnAnswerIsHeldBefore(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		const size = 600 << 10
		stream := d.start + d.text(strings.Repeat("x", size)) + d.text("so") + d.call(1, "a", "x", `{"n":"`,
			strings.Repeat("y", size), `"}`) + d.finish("calls")
		held, most := 0, 0
		req := hello
		req.Room.Hold = func(bytes int) error {
			held += bytes
			most = max(most, held)
			return nil
		}
		p := d.connect(t, says(stream))
		got := read(t.Context(), p, req)
		if got.err != nil || !strings.Contains(got.said, strings.Repeat("y", size)) {
			t.Fatalf("got %.80q, %v", got.said, got.err)
		}
		if held < size || held > 3*size || most < size+2*size {
			t.Errorf("%d bytes are held in the end and were %d at most, want %d or a little more, and at least %d", held, most,
				size, 3*size)
		}
		full := errors.New("there is no room")
		for _, room := range []int{0, size} {
			left := room
			req.Room.Hold = func(bytes int) error {
				if left -= bytes; left < 0 {
					return full
				}
				return nil
			}
			if got := read(t.Context(), p, req); got.err == nil || !strings.Contains(got.err.Error(), full.Error()) {
				t.Errorf("with room for %d: got %.80q, %v", room, got.said, got.err)
			}
			if errors.Is(got.err, model.ErrPassing) {
				t.Error("it is asked for again")
			}
		}
	})
}
