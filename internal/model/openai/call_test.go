package openai

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model/wire"
)

func fragmentOf(name, arguments string) (f fragment) {
	f.Function.V.Name = wire.Str(name)
	f.Function.V.Arguments, _ = jsontext.AppendQuote(nil, arguments)
	return f
}

// A call has so many other members, in one piece or in several, and what is looked for among them has an end.
func TestTheMembersOfACallAreBounded(t *testing.T) {
	members := func(from, to int) jsontext.Value {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, `,"%d":1`, i)
		}
		return jsontext.Value("{" + b.String()[1:] + "}")
	}
	var c calls
	for _, p := range []struct {
		from, to int
		fits     bool
	}{{0, 40, true}, {0, 40, true}, {20, maxMembers, true}, {60, maxMembers + 1, false}} {
		f := fragmentOf("x", "")
		f.Rest = members(p.from, p.to)
		if err := c.add(f, &wire.Tally{}); p.fits != (err == nil) {
			t.Fatalf("members %d to %d: got %v", p.from, p.to, err)
		}
	}
}

// Each piece of the arguments is read once: a million of them took hours, with the call's name in each.
func TestArgumentsInManyPiecesTakeTheirLength(t *testing.T) {
	for _, more := range []string{"}", "{}"} {
		var c calls
		begun := time.Now()
		for i := range 1_000_000 {
			p := more
			if i == 0 {
				p = `{"text":"`
			}
			if err := c.add(fragmentOf("x", p), &wire.Tally{}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > time.Minute {
				t.Fatalf("%d pieces took %v", i, took)
			}
		}
		if err := c.add(fragmentOf("x", `"}`), &wire.Tally{}); err != nil || len(c.list) != 1 || !c.whole() {
			t.Errorf("got %v, %d calls, which are whole: %t", err, len(c.list), c.whole())
		}
	}
}

// The arguments of a call need no more where their object has ended, however it came.
func TestWhereArgumentsEnd(t *testing.T) {
	for _, c := range []struct {
		pieces []string
		whole  bool
	}{
		{[]string{`{}`}, true},
		{[]string{`{`, `"a":[{"b":"}\"`, `{"}`, ` ] }`}, true},
		{[]string{`{"a":"\\`, `"}`}, true},
		{[]string{`{"a":"\`, `"}`}, false},
		{[]string{`{"a":1`, `,}`}, false},
		{[]string{`{"a"`, `}`, `}`}, false},
		{[]string{`{}`, `}`}, false},
		{[]string{`{}{}`}, false},
		{[]string{`[{}]`}, false},
		{[]string{`"{}"`}, false},
		{[]string{`]`, `{}`}, false},
		{[]string{``}, false},
	} {
		var list calls
		for _, p := range c.pieces {
			if err := list.add(fragmentOf("x", p), &wire.Tally{}); err != nil {
				t.Fatal(err)
			}
		}
		if list.whole() != c.whole {
			t.Errorf("%q: want whole: %t", c.pieces, c.whole)
		}
	}
}
