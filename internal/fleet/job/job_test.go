package job

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/fleet"
	"noused/internal/protocol"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, why string }{
		{`{"id":"j","prompt":"hello"}`, ""},
		{
			`{"id":"j","labels":{"gpu":"a100"},"workdir":"/src","prompt":"hello","model":"openai/gpt-5","approvals":"deny"}`,
			"",
		},
		{``, "it is no job"},
		{`[]`, "it is no job"},
		{`{"id":"j","id":"j","prompt":"hello"}`, "it is no job"},
		{`{"id":"j","prompt":7}`, "prompt: want another type"},
		{`{"id":"j","prompt":"hello","shell":"sh"}`, `there is no field "shell"`},
		{`{"id":"k","prompt":"hello"}`, "the subject says"},
		{`{"id":"j","prompt":" "}`, "prompt: want a non-empty text"},
		{`{"id":"j","prompt":"hello","workdir":"src"}`, "workdir: want an absolute path"},
		{`{"id":"j","prompt":"hello","workdir":"/a","repo":"/b"}`, "want one of the two"},
		{`{"id":"j","prompt":"hello","labels":{"a.b":"c"}}`, "labels: "},
		{`{"id":"j","prompt":"hello","approvals":"ask"}`, "want deny"},
		{`{"id":"j","prompt":"` + strings.Repeat("x", fleet.MaxJob) + `"}`, "at most 262144"},
	} {
		_, err := Parse("j", []byte(c.text))
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%.80s: got %v, want %q", c.text, err, c.why)
		}
	}
}

func TestFits(t *testing.T) {
	have := map[string]string{"gpu": "a100", "os": "linux", "empty": ""}
	for _, c := range []struct {
		want map[string]string
		fits bool
	}{
		{nil, true},
		{map[string]string{"gpu": "a100"}, true},
		{map[string]string{"gpu": "a100", "os": "linux"}, true},
		{map[string]string{"gpu": "h100"}, false},
		{map[string]string{"gpu": "a100", "disk": "ssd"}, false},
		{map[string]string{"absent": ""}, false},
		{map[string]string{"empty": ""}, true},
	} {
		if got := (Job{Labels: c.want}).Fits(have); got != c.fits {
			t.Errorf("%v: got %t", c.want, got)
		}
	}
}

// An end fits into what a server carries, whatever a run has said.
func TestAnEndIsBounded(t *testing.T) {
	for _, out := range []string{
		strings.Repeat("x", 2*MaxOutput), strings.Repeat("\xff\x00", MaxOutput),
		strings.Repeat("ü", MaxOutput),
	} {
		text := End{ID: "j", Output: out}.Encode()
		e := ReadEnd("j", text)
		if len(text) > 1<<20-4<<10 || !e.OutputTruncated || len(e.Output) == 0 || e.Error != nil {
			t.Errorf("%.4q: got %d bytes, truncated %t, %v", out, len(text), e.OutputTruncated, e.Error)
		}
	}
}

// Less of the output is told where there is room for less, down to none.
func TestAnEndHasAsMuchAsThereIsRoomFor(t *testing.T) {
	bare := len(End{ID: "j", OutputTruncated: true}.Encode())
	for _, out := range []string{
		"", "short", strings.Repeat("\x01", 5000),
		strings.Repeat("x", 3000) + strings.Repeat("ü\x01", 3000),
	} {
		for _, most := range []int{0, bare - 30, bare, bare + 3, bare + 10, bare + 1000, 1 << 20} {
			text := End{ID: "j", Output: out}.encodeWithin(most)
			e := ReadEnd("j", text)
			if len(text) > max(most, bare) || e.Error != nil || !strings.HasPrefix(out, e.Output) ||
				e.OutputTruncated == (e.Output == out) && out != "" {
				t.Errorf("%.4q in %d bytes: got %d, truncated %t, %v", out, most, len(text), e.OutputTruncated, e.Error)
			}
		}
	}
}

// What is taken for a job can be written and read again, and is within the bounds.
func FuzzParse(f *testing.F) {
	f.Add("j", []byte(`{"id":"j","labels":{"gpu":"a100"},"repo":"/src","prompt":"hello","model":"m","approvals":"deny"}`))
	f.Add("j", []byte(`{"id":"j","prompt":"\u0000","workdir":"/"}`))
	f.Add("", []byte(`{}`))
	f.Fuzz(func(t *testing.T, id string, text []byte) {
		j, err := Parse(id, text)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if fleet.CheckID(j.ID) != nil || j.ID != id || j.Approvals != "" && j.Approvals != protocol.ApprovalsDeny {
			t.Errorf("%q was taken: %+v", text, j)
		}
		again, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(id, again)
		if err != nil || len(again) <= fleet.MaxJob && !reflect.DeepEqual(j.Labels, back.Labels) && len(j.Labels) > 0 ||
			back.Prompt != j.Prompt {
			t.Errorf("%q is read again as %+v, %v", again, back, err)
		}
	})
}

// Claims and ends of others are read, whatever they say.
func FuzzReadEnd(f *testing.F) {
	f.Add([]byte(`{"id":"j","stop_reason":"completed","usage":{"input_tokens":1}}`), []byte(`{"host":"box"}`))
	f.Fuzz(func(t *testing.T, end, claim []byte) {
		if e := ReadEnd("j", end); e.ID != "j" {
			t.Errorf("got the id %q", e.ID)
		}
		ReadClaim(claim)
	})
}
