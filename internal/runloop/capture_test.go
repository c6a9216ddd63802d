package runloop

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/budget"
)

func TestACaptureHasCopiesOfTheFirstEventsAndLeavesRoomForOthers(t *testing.T) {
	held := budget.New(90_000) // of which 30 000 are to spare
	line := []byte(`{"text":"` + strings.Repeat("x", 989) + `"}` + "\n")
	one, other := newCapture(held, newCall()), newCapture(held, newCall())
	for range 100 {
		one.add(line)
	}
	line[0] = '!' // somebody else's memory
	for range 100 {
		other.add(line)
	}
	if n := len(one.lines); n != 9 || !one.truncated || len(other.lines) == 0 {
		t.Errorf("got %d lines, truncated %t, and %d lines; want a third of what is to spare, and less", n, one.truncated,
			len(other.lines))
	}
	for _, v := range one.lines {
		if v.Kind() != jsontext.KindBeginObject || len(v) != len(line)-1 {
			t.Fatalf("got %.20s, want a copy", v)
		}
	}
}

// Whether the client leaves before the run ends or after, what was kept for it
// is given back.
func TestACaptureIsGivenBackWhenItsClientLeaves(t *testing.T) {
	for name, order := range map[string]func(c *call, r reply){
		"before the end": func(c *call, r reply) { c.leave(); c.finish(r) },
		"after the end":  func(c *call, r reply) { c.finish(r); c.leave() },
		"with the reply": func(c *call, r reply) { c.finish(r); (<-c.ended).value.(result).release(); c.leave() },
	} {
		held, c := budget.New(1<<20), newCall()
		k := newCapture(held, c)
		k.add([]byte("{}\n"))
		r := reply{value: result{events: k.lines, release: k.share()}}
		k.leave()
		if held.Used() == 0 {
			t.Errorf("%s: it is given back while a reply is made of it", name)
		}
		order(c, r)
		if held.Used() != 0 {
			t.Errorf("%s: %d bytes are not given back", name, held.Used())
		}
	}
}
