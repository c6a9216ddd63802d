package sse

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readEvents reads a stream to its end.
func readEvents(in io.Reader, most int) (got []string, err error) {
	e := NewReader(in, Options{Most: most})
	for {
		ev, err := e.Next()
		if err != nil {
			return got, err
		}
		got = append(got, ev.Type+"|"+ev.ID+"|"+string(ev.Data))
	}
}

// A stream says the same whichever ends its lines have, and in whichever pieces it
// comes.
func TestLineEndsOfEvents(t *testing.T) {
	const text = "event: message\nid: 1\ndata: a\ndata: b\n\n: comment\n\ndata:c\n\n\nid: 2\n\ndata: torn"
	want := []string{"message|1|a\nb", "||c", "|2|"}
	for _, end := range []string{"\n", "\r\n", "\r"} {
		stream := strings.ReplaceAll(text, "\n", end)
		for _, in := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			if got, err := readEvents(in, 100); !errors.Is(err, io.ErrUnexpectedEOF) || !slices.Equal(got, want) {
				t.Errorf("%q: got %q, %v; want %q", end, got, err, want)
			}
		}
	}
}

// An event is there as soon as its last line has ended, with CR, too.
func TestAnEventIsNotWaitedForLonger(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	go func() { _, _ = io.WriteString(out, "data: a\r\r") }()
	if ev, err := NewReader(in, Options{Most: 100}).Next(); err != nil || string(ev.Data) != "a" {
		t.Errorf("got %q, %v", ev.Data, err)
	}
}

// An event that is too long is an error, however few lines it has.
func TestLongEvents(t *testing.T) {
	for _, stream := range []string{"data: " + strings.Repeat("x", 1<<20), strings.Repeat("data: x\r", 1<<10)} {
		if _, err := readEvents(strings.NewReader(stream), 4<<10); !errors.Is(err, ErrLong) {
			t.Errorf("%.20q: got %v", stream, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: a\ndata: b\n\n:\n\nevent: x\r\nretry: 5\r\n\r\n"), 100)
	f.Add([]byte("data:a\n\ndata"), 5)
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		most = max(1, min(most, 1<<20))
		e := NewReader(iotest.OneByteReader(bytes.NewReader(text)), Options{Most: most})
		for n := 0; ; n++ {
			ev, err := e.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrLong) {
					t.Errorf("got %v", err)
				}
				return
			}
			if n > len(text) || len(ev.Data) > most || len(ev.ID) > MaxID || ev.Retry > MaxRetry || ev.Retry < 0 {
				t.Errorf("event %d is %+v", n, ev)
			}
		}
	})
}

// What ends without an empty line is an event for a lenient reader, and its last line counts
// where the input is known to be whole.
func TestTheEndOfEvents(t *testing.T) {
	for _, c := range []struct {
		in             string
		lenient, whole bool
		want           string
		err            error
	}{
		{"data: a\n", false, false, "", io.EOF},
		{"data: a\n", true, false, "a", nil},
		{"data: a", true, false, "", io.ErrUnexpectedEOF},
		{"data: a", true, true, "a", nil},
		{"\ufeffdata: a", true, true, "a", nil},
		{"\ufeffdata: a\n", true, false, "a", nil},
	} {
		ev, err := NewReader(strings.NewReader(c.in), Options{Most: 100, Lenient: c.lenient, Whole: c.whole}).Next()
		if string(ev.Data) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q, lenient %t, whole %t: got %q, %v; want %q, %v", c.in, c.lenient, c.whole, ev.Data, err, c.want, c.err)
		}
	}
}

// A long event is held before it is kept, and given back when the next one is read.
func TestLongEventsAreHeld(t *testing.T) {
	const size = 300 << 10
	held, full := 0, errors.New("no room")
	hold := func(n int) error {
		if held += n; held > 2*size {
			return full
		}
		return nil
	}
	r := NewReader(strings.NewReader("data: "+strings.Repeat("x", size)+"\n\ndata: a\n\ndata: "+
		strings.Repeat("x", 3*size)), Options{Most: 10 * size, Hold: hold})
	if ev, err := r.Next(); err != nil || len(ev.Data) != size || held < size {
		t.Errorf("got %d bytes, %v, and %d held; want %d", len(ev.Data), err, held, size)
	}
	if ev, err := r.Next(); err != nil || string(ev.Data) != "a" || held != 0 {
		t.Errorf("got %q, %v, and %d held; want none", ev.Data, err, held)
	}
	if _, err := r.Next(); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

// A field of the server's own can end the events.
func TestOtherFields(t *testing.T) {
	failed := errors.New("failed")
	other := func(name, value []byte) error {
		if string(name) == "error" && string(value) == "x" {
			return failed
		}
		return nil
	}
	r := NewReader(strings.NewReader(": comment\nodd: y\nerror: x\n\n"), Options{Most: 100, Other: other})
	if _, err := r.Next(); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
}
