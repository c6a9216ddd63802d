package changes

import (
	"context"
	"slices"
	"strings"
)

// Step is one of the things that a session has done to its folder, in their order: a turn,
// or a rewind. Changes is the object that has the list. Missing says why a turn's changes
// are not known, "" where they are.
type Step struct {
	Changes OID
	Missing string
}

// net is what several steps together made of a path.
type net struct {
	Change
	broken bool // somebody else has changed it between two of them
}

// mixed reports that a part of it may be somebody else's.
func (n net) mixed() bool { return n.Shared || n.broken }

// fold puts steps together, by path. What is as it was before is not among them.
func (r *repo) fold(ctx context.Context, steps []Step) ([]net, error) {
	all := map[string]*net{}
	for _, step := range steps {
		list, err := r.changes(ctx, step.Changes)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			n := all[c.Path]
			if n == nil {
				all[c.Path] = &net{Change: c}
				continue
			}
			n.broken = n.broken || n.After != c.Before
			n.Shared, n.After = n.Shared || c.Shared, c.After
		}
	}
	var out []net
	for _, n := range all {
		if n.Before != n.After {
			out = append(out, *n)
		}
	}
	slices.SortFunc(out, func(a, b net) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
