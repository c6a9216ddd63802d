package changes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// How a file has changed.
const (
	Added    = "added"
	Modified = "modified"
	Deleted  = "deleted"
	Renamed  = "renamed"
)

// File says how one has changed. Path and Old, of one that was renamed, are as Shown has
// them; that of a folder ends in a slash.
type File struct {
	Path, Status, Old string
	Added, Removed    int // lines
	Binary            bool
	Shared, LeftOut   bool

	path, old string // as they are
}

// Report is what steps have changed. Diff is a diff of git's, cut where Truncated says so.
type Report struct {
	Folder    string // that paths are relative to
	Files     []File
	Diff      string
	Truncated bool
}

// MaxDiff bounds a diff, in bytes.
const MaxDiff = 1 << 20

// Show tells what steps have changed together: in all files, or in the one that path
// names as Shown does. It blocks for git, until ctx ends.
func (e *Engine) Show(ctx context.Context, f Folder, steps []Step, path string, diff bool) (rep Report, err error) {
	rep.Files, rep.Folder = []File{}, find(f.Workdir).top
	s, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return rep, err
	}
	defer release()
	steps = slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Changes.IsZero() })
	if len(steps) == 0 {
		return rep, nil
	}
	at, r, err := e.open(s, f)
	if err != nil {
		return rep, err
	}
	folded, err := r.fold(ctx, at.top, steps)
	if err != nil {
		return rep, err
	}
	all := folded.nets
	rep.Folder = folded.top
	if err := s.memory.take(ctx, shownSize*len(all)); err != nil {
		return rep, err
	}
	trees, err := r.trees(all)
	if err != nil {
		return rep, err
	}
	if rep.Files, err = r.files(ctx, all, trees); err != nil {
		return rep, err
	}
	if path != "" {
		rep.Files = slices.DeleteFunc(rep.Files, func(f File) bool { return f.Path != path && f.Old != path })
	}
	if !diff {
		return rep, nil
	}
	var only []string
	if path != "" {
		if len(rep.Files) == 0 {
			return rep, nil
		}
		for _, f := range rep.Files {
			only = append(only, f.path)
			if f.old != "" {
				only = append(only, f.old)
			}
		}
	}
	rep.Diff, rep.Truncated, err = r.diff(ctx, trees, only)
	return rep, err
}

// trees keeps two trees with what was and is at the paths that a diff can have.
func (r *repo) trees(all []net) (trees [2]OID, err error) {
	before, after := map[string]State{}, map[string]State{}
	for _, n := range all {
		if n.leftOut() {
			continue
		}
		if n.Before.inDiff() {
			before[n.Path] = n.Before
		}
		if n.After.inDiff() {
			after[n.Path] = n.After
		}
	}
	if trees[0], err = r.tree(before); err != nil {
		return trees, err
	}
	if trees[1], err = r.tree(after); err != nil {
		return trees, err
	}
	return trees, r.flush()
}

// files tells how each file has changed.
func (r *repo) files(ctx context.Context, all []net, trees [2]OID) ([]File, error) {
	files, err := r.diffFiles(ctx, trees)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	of := map[string]net{}
	for _, n := range all {
		of[n.Path] = n
	}
	for i := range files {
		f := &files[i]
		f.Shared = of[f.path].mixed() || f.old != "" && of[f.old].mixed()
		known[f.path], known[f.old] = true, true
	}
	within := func(dir string) bool {
		return slices.ContainsFunc(all, func(n net) bool { return strings.HasPrefix(n.Path, dir+"/") })
	}
	for _, n := range all {
		if known[n.Path] {
			continue
		}
		f := File{Path: Shown(n.Path), Status: Modified, Shared: n.mixed(), LeftOut: n.leftOut(), path: n.Path}
		switch {
		case !n.Before.There():
			f.Status = Added
		case !n.After.There():
			f.Status = Deleted
		}
		if n.Before.IsFolder() || n.After.IsFolder() {
			if f.Status != Modified && within(n.Path) {
				continue
			}
			f.Path += "/"
		}
		files = append(files, f)
	}
	for i := range files {
		files[i].Path = strings.Clone(files[i].Path)
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

var diffOptions = []string{
	"diff-tree", "-r", "-M", "-l0", "--no-ext-diff", "--no-textconv", "--full-index",
	"--no-color",
}

// diffFiles has git say how the files in two trees differ.
func (r *repo) diffFiles(ctx context.Context, trees [2]OID) ([]File, error) {
	var out bytes.Buffer
	if err := r.git(ctx, nil, &out, append(slices.Clone(diffOptions), "-z", "--raw", "--numstat", trees[0].String(),
		trees[1].String())...); err != nil {
		return nil, err
	}
	words := strings.Split(out.String(), "\x00")
	var files []File
	at := map[string]int{}
	next := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	for len(words) > 0 && words[0] != "" {
		head := next()
		if strings.HasPrefix(head, ":") {
			f := File{Status: Modified}
			fields := strings.Fields(head)
			switch fields[len(fields)-1][0] {
			case 'A':
				f.Status = Added
			case 'D':
				f.Status = Deleted
			case 'R':
				f.Status, f.old = Renamed, next()
			}
			f.path = next()
			f.Path, f.Old = Shown(f.path), Shown(f.old)
			at[f.path] = len(files)
			files = append(files, f)
			continue
		}
		fields := strings.SplitN(head, "\t", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("git diff-tree said %.80q", head)
		}
		path := fields[2]
		if path == "" { // of one that was renamed: where it was comes first
			next()
			path = next()
		}
		i, ok := at[path]
		if !ok {
			return nil, fmt.Errorf("git diff-tree said %.80q", head)
		}
		f := &files[i]
		f.Binary = fields[0] == "-"
		f.Added, _ = strconv.Atoi(fields[0])
		f.Removed, _ = strconv.Atoi(fields[1])
	}
	return files, nil
}

// diff has git make a diff, of some paths or all. What is no text is a patch for binary
// files.
func (r *repo) diff(ctx context.Context, trees [2]OID, only []string) (text string, cut bool, err error) {
	attributes := filepath.Join(r.dir, "attributes")
	defer os.Remove(attributes)
	args := append([]string{"-c", "core.attributesFile=" + attributes}, diffOptions...)
	args = append(args, "-p", "--binary", trees[0].String(), trees[1].String())
	if len(only) > 0 {
		args = append(append([]string{"--literal-pathspecs"}, args...), append([]string{"--"}, only...)...)
	}
	var lines []byte
	for {
		if err := os.WriteFile(attributes, lines, 0o600); err != nil {
			return "", false, err
		}
		ctx, cancel := context.WithCancel(ctx)
		out := &head{full: cancel}
		err := r.git(ctx, nil, out, args...)
		cancel()
		if err != nil && !out.cut {
			return "", false, err
		}
		if utf8.Valid(out.text) {
			text, cut = out.String(), out.cut
			return text, cut, nil
		}
		more := binaries(out.text)
		if len(more) == 0 || bytes.Contains(lines, more) { // names cannot be: git quotes them
			return strings.ToValidUTF8(out.String(), "\uFFFD"), out.cut, nil
		}
		lines = append(lines, more...)
	}
}

// head keeps the first MaxDiff bytes, and then says that it is full.
type head struct {
	text []byte
	cut  bool
	full func()
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), MaxDiff+1-len(h.text))
	h.text = append(h.text, p[:n]...)
	if len(h.text) > MaxDiff && !h.cut {
		h.cut = true
		h.full()
	}
	return len(p), nil
}

// String is what was kept: whole files, or where there is none whole lines.
func (h *head) String() string {
	if !h.cut {
		return string(h.text)
	}
	text := h.text[:MaxDiff]
	if i := bytes.LastIndex(text, []byte("\ndiff --git ")); i >= 0 {
		return string(text[:i+1])
	}
	return string(text[:bytes.LastIndexByte(text, '\n')+1])
}

// binaries are lines of attributes for the files in a diff whose text is none.
func binaries(diff []byte) (lines []byte) {
	for _, part := range bytes.SplitAfter(diff, []byte("\ndiff --git ")) {
		if utf8.Valid(part) {
			continue
		}
		for line := range bytes.Lines(part) {
			name, ok := bytes.CutPrefix(line, []byte("+++ "))
			if !ok || bytes.Equal(bytes.TrimSpace(name), []byte("/dev/null")) {
				if name, ok = bytes.CutPrefix(line, []byte("--- ")); !ok || bytes.Equal(bytes.TrimSpace(name),
					[]byte("/dev/null")) {
					continue
				}
			}
			if path, ok := unquoted(string(bytes.TrimRight(name, "\t\n"))); ok {
				lines = append(lines, attribute(path)...)
				break
			}
		}
	}
	return lines
}

// unquoted is the path that git has in a line of a diff, behind a/ or b/.
func unquoted(name string) (string, bool) {
	if strings.HasPrefix(name, `"`) {
		text, err := strconv.Unquote(name)
		if err != nil {
			return "", false
		}
		name = text
	}
	if len(name) < 3 || name[1] != '/' {
		return "", false
	}
	return name[2:], true
}

// attribute is a line that has git take a file for none of text.
func attribute(path string) string {
	var pattern strings.Builder
	pattern.WriteByte('/')
	for i := range len(path) {
		if strings.IndexByte(`*?[]\!#`, path[i]) >= 0 {
			pattern.WriteByte('\\')
		}
		pattern.WriteByte(path[i])
	}
	var quoted strings.Builder
	quoted.WriteByte('"')
	for _, c := range []byte(pattern.String()) {
		switch {
		case c == '"' || c == '\\':
			quoted.WriteByte('\\')
			quoted.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&quoted, `\%03o`, c)
		default:
			quoted.WriteByte(c)
		}
	}
	return quoted.String() + "\" -diff\n"
}
