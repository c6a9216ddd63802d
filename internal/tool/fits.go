package tool

import (
	"slices"
	"strings"

	"noused/internal/model"
	"noused/internal/policy"
)

// Fits reports whether a rule's pattern means the module or, as far as the
// descriptor tells, one of its operations. What a module that is not asked has is
// not known: a pattern that could fit it does.
func (d *Descriptor) Fits(pattern string) bool {
	if !d.Offers() {
		return false
	}
	if policy.Matches(pattern, d.Name) {
		return true
	}
	names, prefix := d.Capabilities, ""
	if !d.Bare {
		names, prefix = nil, d.Name+"."
		for _, op := range d.Operations {
			names = append(names, op.Name)
		}
		if names == nil {
			literal, _, _ := strings.Cut(model.Undotted(pattern), "*")
			return strings.HasPrefix(literal, model.Undotted(prefix)) || strings.ContainsAny(pattern, `*?[\`) &&
				strings.HasPrefix(model.Undotted(prefix), literal)
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return policy.Matches(pattern, prefix+name) || policy.Matches(model.Undotted(pattern), model.Undotted(prefix+name))
	})
}

// Unused returns the rules that fit none of these modules, a pattern once.
func Unused(rules *policy.Set, modules []*Descriptor) []policy.Rule {
	return rules.Unused(func(pattern string) bool {
		return slices.ContainsFunc(modules, func(d *Descriptor) bool { return d.Fits(pattern) })
	})
}
