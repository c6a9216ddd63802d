package tool

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Policy says which operations may be called, by patterns over the names that
// list_tools gives them, in the manner of a shell: * and ? and [a-z]. A pattern
// that fits a module's own name means all that it has. What Deny has is denied,
// whatever Allow says; a nil Allow is everything (tools.md §5).
type Policy struct {
	Allow, Deny []string
}

// Check reports the first pattern that is none.
func (p Policy) Check() error {
	for _, list := range [][]string{p.Allow, p.Deny} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("%q is no pattern", pattern)
			}
		}
	}
	return nil
}

// decide tells whether a module's operation may be called, and the pattern that
// says so, "" where none does.
func (p Policy) decide(module, name string) (pattern string, ok bool) {
	for _, pattern := range p.Deny {
		if matches(pattern, name) || matches(pattern, module) {
			return pattern, false
		}
	}
	for _, pattern := range p.Allow {
		if matches(pattern, name) || matches(pattern, module) {
			return pattern, true
		}
	}
	return "", p.Allow == nil
}

// denies tells whether a call is denied whatever module it turns out to be for:
// both the name and the patterns are taken in the spelling without dots.
func (p Policy) denies(name string) (pattern string, ok bool) {
	for _, pattern := range p.Deny {
		if matches(undotted(pattern), undotted(name)) {
			return pattern, true
		}
	}
	return "", false
}

// excludes tells whether no operation of a module may be called, so that it
// need not even be started to say which it has.
func (p Policy) excludes(d *Descriptor) (pattern string, ok bool) {
	for _, pattern := range p.Deny {
		if matches(pattern, d.Name) {
			return pattern, true
		}
	}
	if d.Bare {
		return "", false
	}
	prefix := d.Name + "."
	for _, pattern := range p.Deny {
		if before, all := strings.CutSuffix(pattern, "*"); all && matches(before, prefix[:min(len(before), len(prefix))]) && len(before) <= len(prefix) {
			return pattern, true
		}
	}
	for _, pattern := range p.Allow {
		literal := pattern
		if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
			literal = pattern[:i]
		}
		if strings.HasPrefix(literal, prefix) || strings.HasPrefix(prefix, literal) {
			return "", false
		}
	}
	return "", p.Allow != nil
}

// Unused returns the patterns that fit none of these modules and none of their
// operations. What a module that is not asked has is not known: a pattern that
// could fit it is not among them.
func (p Policy) Unused(modules []*Descriptor) (unused []string) {
	for _, pattern := range slices.Concat(p.Deny, p.Allow) {
		fits := func(d *Descriptor) bool { return d.offers() && d.fits(pattern) }
		if !slices.Contains(unused, pattern) && !slices.ContainsFunc(modules, fits) {
			unused = append(unused, pattern)
		}
	}
	return unused
}

// fits reports whether a pattern means the module or, as far as the descriptor
// tells, one of its operations.
func (d *Descriptor) fits(pattern string) bool {
	if matches(pattern, d.Name) {
		return true
	}
	names, prefix := d.Capabilities, ""
	if !d.Bare {
		names, prefix = nil, d.Name+"."
		for _, op := range d.Operations {
			names = append(names, op.Name)
		}
		if names == nil {
			literal, _, _ := strings.Cut(undotted(pattern), "*")
			return strings.HasPrefix(literal, undotted(prefix)) || strings.ContainsAny(pattern, `*?[\`) && strings.HasPrefix(undotted(prefix), literal)
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return matches(pattern, prefix+name) || matches(undotted(pattern), undotted(prefix+name))
	})
}

// matches is path.Match without a separator that is special.
func matches(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

func denied(name, pattern string) *Fault {
	if pattern == "" {
		return Faultf(Forbidden, "the policy does not allow %s", name)
	}
	return Faultf(Forbidden, "the policy denies %s (%s)", name, pattern)
}

// object is a JSON object of strings, without those that are empty.
func object(pairs ...string) []byte {
	out := []byte{'{'}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendText(out, pairs[i]), ':')
		out = appendText(out, pairs[i+1])
	}
	return append(out, '}')
}

// appendText appends a JSON string, mended where it is not valid UTF-8.
func appendText(out []byte, text string) []byte {
	out, _ = jsontext.AppendQuote(out, strings.ToValidUTF8(text, "\uFFFD"))
	return out
}
