package mcp

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readEvents reads a stream to its end.
func readEvents(in io.Reader, most int) (got []string, err error) {
	e := newEvents(in, most)
	for {
		ev, err := e.next()
		if err != nil {
			return got, err
		}
		got = append(got, ev.name+"|"+ev.id+"|"+string(ev.data))
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
			if got, err := readEvents(in, 100); !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
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
	if ev, err := newEvents(in, 100).next(); err != nil || string(ev.data) != "a" {
		t.Errorf("got %q, %v", ev.data, err)
	}
}

// An event that is too long is an error, however few lines it has.
func TestLongEvents(t *testing.T) {
	for _, stream := range []string{"data: " + strings.Repeat("x", 1<<20), strings.Repeat("data: x\r", 1<<10)} {
		if _, err := readEvents(strings.NewReader(stream), 4<<10); !errors.Is(err, errLongEvent) {
			t.Errorf("%.20q: got %v", stream, err)
		}
	}
}
