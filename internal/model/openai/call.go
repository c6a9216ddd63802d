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
	extent    extent
	whole     bool        // the arguments need no more
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
		if to.rest = to.rest.Put(m); len(to.rest) > maxMembers {
			return wire.TooMuch()
		}
	}
	to.write(arguments)
	return nil
}

// write adds a piece of the arguments.
func (o *call) write(piece string) {
	if piece == "" {
		return
	}
	o.arguments = append(o.arguments, piece...)
	o.whole = o.extent.ends(piece) && jsontext.Value(o.arguments).IsValid()
}

// extent finds the end of an object whose text comes in pieces, and reads none of them twice.
type extent struct {
	depth           int
	quoted, escaped bool
	over            bool
}

// ends reports that the object ends with the end of the next piece, which is not empty. It does so once
// at most.
func (e *extent) ends(piece string) bool {
	for i := range len(piece) {
		if e.over {
			return false
		}
		switch b := piece[i]; {
		case e.escaped:
			e.escaped = false
		case e.quoted:
			e.escaped, e.quoted = b == '\\', b != '"'
		case b == '"':
			e.quoted = true
		case b == '{', b == '[':
			e.depth++
		case b == '}', b == ']':
			e.depth--
			e.over = e.depth <= 0
		}
	}
	return e.over && piece[len(piece)-1] == '}'
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
	case to.whole && strings.HasPrefix(strings.TrimLeft(arguments, " \t\r\n"), "{"):
		return nil
	}
	return to
}

// whole reports that no call needs more.
func (c *calls) whole() bool {
	return !slices.ContainsFunc(c.list, func(o *call) bool { return !o.whole })
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
