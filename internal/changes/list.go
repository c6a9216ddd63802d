package changes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"noused/internal/gitfile"
	"noused/internal/regular"
	"noused/internal/worktree"
)

// place is which folder is recorded, and the user's repository that it is the top of.
type place struct {
	top     string   // without links
	gitDir  string   // of the working tree; "": there is no git
	objects string   // of the repository
	exclude string   // its info/exclude
	skip    []string // folders below the top that are not looked into
}

// skips reports that a path is one of those folders, or in it.
func (p place) skips(rel string) bool {
	return slices.ContainsFunc(p.skip, func(dir string) bool { return rel == dir || strings.HasPrefix(rel, dir+"/") })
}

// find returns the place of a session in that folder. It runs nothing.
func find(workdir string) place {
	for top := filepath.Clean(workdir); ; top = filepath.Dir(top) {
		dir, err := gitfile.Folder(top)
		if err == nil {
			if _, _, err = gitfile.Head(dir); err == nil {
				common := dir
				if line, err := gitfile.Line(filepath.Join(dir, "commondir")); err == nil {
					common = gitfile.Join(dir, line)
				}
				return place{
					top: resolved(top), gitDir: dir, objects: filepath.Join(common, "objects"),
					exclude: filepath.Join(common, "info", "exclude"),
				}
			}
		}
		if top == filepath.Dir(top) {
			return place{top: resolved(workdir)}
		}
	}
}

// resolved is a path without links, as far as that can be told.
func resolved(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		return at
	}
	return filepath.Clean(path)
}

// maxListed bounds the files of a folder that is recorded.
const maxListed = 2_000_000

// listed is a file that git names: one that it tracks, or that nothing ignores.
type listed struct {
	tracked bool
	trusted bool  // it need not be read, see trust
	oid     OID   // of the index
	stamp   stamp // of the index; the Ino is not compared where it is 0
	folder  bool  // a repository in the repository
}

// at are git's options for the listing of a place. Names that differ in case are two here.
func (p place) at(r *repo) []string {
	dir := p.gitDir
	if dir == "" {
		dir = r.dir
	}
	return []string{"--git-dir=" + dir, "--work-tree=" + p.top, "-C", p.top, "-c", "core.ignorecase=false"}
}

// list asks git for the files that are recorded, by path.
func (r *repo) list(ctx context.Context, p place) (map[string]listed, error) {
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	args := []string{"ls-files", "-z", "-t", "-o", "--exclude-standard"}
	if p.gitDir != "" {
		args = append(args, "-c", "-s", "--debug")
	}
	go func() {
		err := r.gitAt(ctx, p.at(r), []string{p.top}, nil, out, args...)
		_ = out.CloseWithError(err)
		done <- err
	}()
	files, err := parseListing(bufio.NewReaderSize(in, 256<<10), p, func(n int) error { return r.memory.take(ctx, n) })
	_ = in.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		cancel()
	}
	if ran := <-done; ran != nil && (err == nil || errors.Is(err, ran)) {
		err = ran
	}
	return files, err
}

var errTooMany = fmt.Errorf("the folder has more than %d files", maxListed)

// debugLines is how many lines --debug adds to a file of the index.
const debugLines = 5

// parseListing reads what ls-files -z -t prints: "? PATH" for a file that is not tracked,
// "H MODE OID STAGE\tPATH" for one that is, each with a NUL behind; the latter with lines
// of the index's stat behind that. take is asked for memory.
func parseListing(in *bufio.Reader, p place, take func(n int) error) (map[string]listed, error) {
	files := map[string]listed{}
	for len(files) <= maxListed {
		text, err := in.ReadString(0)
		switch {
		case errors.Is(err, io.EOF) && text == "":
			return files, nil
		case err != nil:
			return nil, err
		case len(text) < 4:
			return nil, fmt.Errorf("git ls-files said %.80q", text)
		}
		if err := take(listedSize + 2*len(text)); err != nil {
			return nil, err
		}
		tag, name := text[0], strings.TrimSuffix(text[2:], "\x00")
		if tag == '?' {
			dir := strings.HasSuffix(name, "/")
			if p.skips(strings.TrimSuffix(name, "/")) {
				continue
			}
			files[strings.TrimSuffix(name, "/")] = listed{folder: dir}
			continue
		}
		head, name, found := strings.Cut(name, "\t")
		words := strings.Fields(head)
		if !found || len(words) != 3 {
			return nil, fmt.Errorf("git ls-files said %.80q", text)
		}
		f := listed{tracked: true, folder: words[0] == "160000"}
		if words[2] == "0" { // else it is in conflict
			f.oid, _ = ParseOID(words[1]) // of another hash: it is read
		}
		if f.stamp, err = indexStamp(in); err != nil {
			return nil, err
		}
		if !p.skips(name) {
			files[name] = f
		}
	}
	return nil, errTooMany
}

// indexStamp reads the lines of --debug. What it does not understand is no stamp.
func indexStamp(in *bufio.Reader) (s stamp, err error) {
	for range debugLines {
		line, err := in.ReadString('\n')
		if err != nil {
			return s, err
		}
		for field := range strings.SplitSeq(strings.TrimSpace(line), "\t") {
			key, value, _ := strings.Cut(field, ": ")
			switch key {
			case "ctime":
				s.Ctime = indexTime(value)
			case "mtime":
				s.Mtime = indexTime(value)
			case "ino":
				s.Ino, _ = strconv.ParseInt(value, 10, 64)
			case "size":
				s.Size, _ = strconv.ParseInt(value, 10, 64)
			}
		}
	}
	return s, nil
}

func indexTime(value string) int64 {
	sec, nsec, _ := strings.Cut(value, ":")
	s, err := strconv.ParseInt(sec, 10, 64)
	n, err2 := strconv.ParseInt(nsec, 10, 64)
	if err != nil || err2 != nil {
		return 0
	}
	return s*1e9 + n
}

// fits reports that a file is as the index has it, written at that time. git keeps 32 bits
// of each.
func (l listed) fits(r raw, index stamp) bool {
	s := l.stamp
	return l.tracked && !l.oid.IsZero() && s.Mtime != 0 && s.Mtime == r.Mtime && s.Ctime == r.Ctime &&
		uint32(s.Size) == uint32(r.Size) && (s.Ino == 0 || uint32(s.Ino) == uint32(r.Ino)) && s.Mtime < index.Mtime
}

// ignored asks git which of these paths are ignored.
func (r *repo) ignored(ctx context.Context, p place, paths []string) (map[string]bool, error) {
	return r.ignoredAt(ctx, p.at(r), []string{p.top}, paths)
}

func (r *repo) ignoredAt(ctx context.Context, at, reads, paths []string, more ...string) (map[string]bool, error) {
	found := map[string]bool{}
	if len(paths) == 0 {
		return found, nil
	}
	var in, out bytes.Buffer
	for _, rel := range paths {
		in.WriteString("./" + rel + "\x00") // a colon at the beginning would be magic
	}
	err := r.gitAt(ctx, at, reads, in.Bytes(), &out, append([]string{"check-ignore", "-z", "--stdin"}, more...)...)
	if err != nil && !exitedWith(err, 1) { // 1: none is
		return nil, err
	}
	for name := range strings.SplitSeq(out.String(), "\x00") {
		if name != "" {
			found[strings.TrimPrefix(name, "./")] = true
		}
	}
	return found, nil
}

// converted asks git which of these files have attributes by which their content in the
// repository may be another of the same size.
func (r *repo) converted(ctx context.Context, p place, paths []string) (map[string]bool, error) {
	found := map[string]bool{}
	if len(paths) == 0 || p.gitDir == "" {
		return found, nil
	}
	var out bytes.Buffer
	if err := r.gitAt(ctx, p.at(r), []string{p.top}, []byte(strings.Join(paths, "\x00")+"\x00"), &out, "check-attr",
		"-z", "--stdin", "filter", "ident", "working-tree-encoding"); err != nil {
		return nil, err
	}
	words := strings.Split(out.String(), "\x00")
	for i := 0; i+2 < len(words); i += 3 {
		if value := words[i+2]; value != "unspecified" && value != "unset" {
			found[words[i]] = true
		}
	}
	return found, nil
}

// sizes asks git for the sizes of blobs; one that it has not is not among them.
func (r *repo) sizes(ctx context.Context, names map[OID]struct{}) (map[OID]int64, error) {
	found := make(map[OID]int64, len(names))
	if len(names) == 0 {
		return found, nil
	}
	var input, out bytes.Buffer
	for o := range names {
		input.WriteString(o.String() + "\n")
	}
	if err := r.git(ctx, input.Bytes(), &out, "cat-file", "--buffer", "--batch-check=%(objectname) %(objecttype) "+
		"%(objectsize)"); err != nil {
		return nil, err
	}
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		if len(words) != 3 || words[1] != "blob" {
			continue
		}
		o, err := ParseOID(words[0])
		size, err2 := strconv.ParseInt(words[2], 10, 64)
		if err == nil && err2 == nil {
			found[o] = size
		}
	}
	return found, nil
}

// exclude is what the user's info/exclude says.
func (r *repo) exclude(p place) ([]byte, error) {
	if p.exclude == "" {
		return nil, nil
	}
	text, err := regular.Read(p.exclude, maxExclude)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// maxExclude bounds info/exclude, in bytes.
const maxExclude = 1 << 20

// stampOf is that of a file by its name; zero where there is none.
func stampOf(path string) stamp {
	r, _ := statAt(unix.AT_FDCWD, path)
	return r.stamp
}

// What nestedHead says of what is no repository, or a broken one.
const (
	noRepository = "no repository"
	noHead       = "no HEAD"
)

// nestedHead is what a repository inside the folder has checked out.
func nestedHead(top, rel string) string {
	dir, err := gitfile.Folder(filepath.Join(top, rel))
	if err != nil {
		return noRepository
	}
	line, branch, err := gitfile.Head(dir)
	if err != nil {
		return noHead
	}
	if at, err := gitfile.Line(filepath.Join(dir, "refs", "heads", branch)); branch != "" && err == nil {
		return at
	}
	return line
}

// exitedWith reports that a git ended with that status.
func exitedWith(err error, status int) bool {
	var exit *worktree.Exit
	return errors.As(err, &exit) && exit.How == fmt.Sprintf("exit status %d", status)
}
