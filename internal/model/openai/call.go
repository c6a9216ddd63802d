package openai

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// calls are the tool calls of an answer, in the order in which they began.
type calls struct {
	list []*call
	load wire.Load // of arguments, and of what else came with the calls
}

type call struct {
	index     *wire.Count
	id, name  string
	kind      string
	arguments []byte
	rest      wire.Object // its other members
	block     int         // its place among the blocks
}

// add puts a fragment where it belongs. Real servers number the calls, or give
// each the number 0 and an id of its own, or neither, or send calls whole.
func (c *calls) add(f fragment, tally *wire.Tally) error {
	arguments := wire.Text(f.Function.V.Arguments)
	if err := c.load.Add(len(f.ID) + len(f.Function.V.Name) + len(arguments) + len(f.Rest)); err != nil {
		return err
	}
	to := c.open(f, arguments)
	if to == nil {
		if len(c.list) == wire.MaxCalls {
			return wire.TooMuch()
		}
		to = &call{index: f.Index.V, block: len(tally.Blocks())}
		tally.Open(model.Block{Kind: model.CallBlock})
		c.list = append(c.list, to)
	}
	to.id, to.name = cmp.Or(to.id, string(f.ID)), cmp.Or(to.name, string(f.Function.V.Name))
	to.kind = cmp.Or(to.kind, string(f.Type))
	for _, m := range wire.Members(f.Rest) {
		to.rest = to.rest.Put(m)
	}
	to.arguments = append(to.arguments, arguments...)
	return nil
}

// open returns the call that a fragment goes on with, nil if it begins one.
func (c *calls) open(f fragment, arguments string) *call {
	id, name, index := string(f.ID), string(f.Function.V.Name), f.Index.V
	var to *call // with the fragment's id, else the last one
	for i := len(c.list) - 1; i >= 0; i-- {
		o := c.list[i]
		if index != nil && o.index != nil && *o.index != *index {
			continue
		}
		if id != "" && o.id == id {
			to = o
			break
		}
		if to == nil {
			to = o
		}
	}
	switch {
	case to == nil || name == "" || to.name == "": // gateways make up an id for each fragment
		return to
	case id != "" && to.id != "" && id != to.id, name != to.name:
		return nil
	case whole(to.arguments) && strings.HasPrefix(strings.TrimLeft(arguments, " \t\r\n"), "{"):
		return nil
	}
	return to
}

// whole reports that no call needs more.
func (c *calls) whole() bool {
	return !slices.ContainsFunc(c.list, func(o *call) bool { return !whole(o.arguments) })
}

// whole reports that arguments need no more.
func whole(arguments []byte) bool {
	n := len(arguments)
	return n > 0 && arguments[n-1] == '}' && jsontext.Value(arguments).IsValid()
}

// written are arguments whose JSON has blanks around its values, which a journal
// does not keep; "" where there are none.
func written(arguments []byte) string {
	v := jsontext.Value(arguments)
	if v.Kind() != jsontext.KindBeginObject || !v.IsValid() {
		return ""
	}
	compact := v.Clone()
	if compact.Compact() != nil || len(compact) == len(v) {
		return ""
	}
	return string(v)
}
