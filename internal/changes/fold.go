package changes

import (
	"cmp"
	"context"
	"path/filepath"
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

// fold puts steps together, by path. What is as it was before is not among them. top is where a list's changes are
// that does not say it: a repository that was made or removed since has the paths begin in another folder.
func (r *repo) fold(ctx context.Context, top string, steps []Step) (out folded, err error) {
	all := map[string]*net{}
	out.top = top
	for _, step := range steps {
		of, list, err := r.changes(ctx, step.Changes)
		if err != nil {
			return out, err
		}
		of = cmp.Or(of, top)
		if !slices.Contains(out.tops, of) {
			out.tops = append(out.tops, of)
			all = out.widen(of, all)
		}
		within := below(out.top, of)
		for _, c := range list {
			c.Path = within + c.Path
			n := all[c.Path]
			if n == nil {
				all[c.Path] = &net{Change: c}
				continue
			}
			n.broken = n.broken || n.After != c.Before
			n.Shared, n.After = n.Shared || c.Shared, c.After
		}
	}
	for _, n := range all {
		if n.Before != n.After {
			out.nets = append(out.nets, *n)
		}
	}
	slices.SortFunc(out.nets, func(a, b net) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// folded is what several steps together made of all paths, which are relative to top.
type folded struct {
	top  string
	tops []string // of the steps, each in top, or it
	nets []net
}

// widen has top hold another folder, too.
func (f *folded) widen(top string, all map[string]*net) map[string]*net {
	was := f.top
	for !inside(top, f.top) {
		f.top = filepath.Dir(f.top)
	}
	within := below(f.top, was)
	if within == "" {
		return all
	}
	moved := make(map[string]*net, len(all))
	for _, n := range all {
		n.Path = within + n.Path
		moved[n.Path] = n
	}
	return moved
}

// below is what the paths in a folder that is in top begin with, seen from there.
func below(top, dir string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, top), "/")
	if rel == "" {
		return ""
	}
	return rel + "/"
}
