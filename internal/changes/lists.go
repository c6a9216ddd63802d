package changes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// line is how a list has a change. The first has the folder that the paths are relative to; lists of former
// versions have none.
type line struct {
	Top    []byte `json:"top,omitempty"`
	Path   []byte `json:"path"`
	Before State  `json:"before,omitzero"`
	After  State  `json:"after,omitzero"`
	Shared bool   `json:"shared,omitzero"`
}

// own keeps contents here that a list names and that were only lent, so that they outlive the lender's.
// Those that pass what is kept of the session are left out.
func (e *Engine) own(ctx context.Context, r *repo, list []Change, after *manifest) error {
	var lent []*State
	names := map[OID]struct{}{}
	for i := range list {
		for _, s := range []*State{&list[i].Before, &list[i].After} {
			if !s.OID.IsZero() && !r.has(s.OID) {
				lent = append(lent, s)
				names[s.OID] = struct{}{}
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(names), func(a, b OID) int { return bytes.Compare(a[:], b[:]) })
	err := r.blobs(ctx, order, func(_ OID, content []byte) error {
		if after.Bytes+int64(len(content)) > e.o.Limits.Bytes || after.Count >= e.o.Limits.Files {
			return errFull
		}
		after.Bytes += int64(len(content))
		after.Count++
		_, err := r.put("blob", content)
		return err
	})
	if !errors.Is(err, errFull) {
		return err
	}
	for _, s := range lent {
		if !r.has(s.OID) {
			*s = State{Mode: s.Mode, Left: s.OID.String()}
		}
	}
	return nil
}

var errFull = errors.New("more than is kept of the session")

// keepList keeps a list of changes below top. It is on the disk then, as is all else that was put.
func keepList(r *repo, top string, list []Change) (rec Recorded, err error) {
	if len(list) == 0 {
		return rec, r.flush()
	}
	rec.Files = len(list)
	if rec.Changes, err = r.putText("blob", func(to io.Writer) error { return writeList(to, top, list) }); err != nil {
		return rec, err
	}
	return rec, r.flush()
}

func writeList(to io.Writer, top string, list []Change) error {
	out := jsontext.NewEncoder(to)
	err := out.WriteToken(jsontext.BeginArray)
	for _, c := range list {
		if err == nil {
			err = json.MarshalEncode(out, line{[]byte(top), []byte(c.Path), c.Before, c.After, c.Shared})
		}
		top = ""
	}
	return errors.Join(err, out.WriteToken(jsontext.EndArray))
}

// changes reads a list of changes, and the folder that they are in, "" where the list does not say that.
func (r *repo) changes(ctx context.Context, name OID) (top string, list []Change, err error) {
	if name.IsZero() {
		return "", nil, nil
	}
	err = r.blobs(ctx, []OID{name}, func(_ OID, text []byte) error {
		if err := r.memory.take(ctx, 2*len(text)); err != nil {
			return err
		}
		in := jsontext.NewDecoder(bytes.NewReader(text))
		if _, err := in.ReadToken(); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		for in.PeekKind() != ']' {
			var l line
			if err := json.UnmarshalDecode(in, &l); err != nil {
				return fmt.Errorf("%w: %w", errDamaged, err)
			}
			if !local(string(l.Path)) {
				return fmt.Errorf("%w: it names %.200q", errDamaged, l.Path)
			}
			if len(list) == 0 {
				top = string(l.Top)
			}
			list = append(list, Change{string(l.Path), l.Before, l.After, l.Shared})
		}
		return nil
	})
	if top != "" && (!filepath.IsAbs(top) || filepath.Clean(top) != top) {
		err = cmp.Or(err, fmt.Errorf("%w: it names %.200q", errDamaged, top))
	}
	return top, list, err
}

// local reports that a path stays below the top, and is nothing of git's.
func local(rel string) bool {
	return filepath.IsLocal(rel) && rel != "." && !slices.Contains(strings.Split(rel, "/"), ".git")
}
