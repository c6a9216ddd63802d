package changes

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1" //nolint:gosec // git's own object format
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"noused/internal/regular"
	"noused/internal/worktree"
)

// OID names an object of git's. The zero OID names none.
type OID [sha1.Size]byte

// IsZero reports that it names none.
func (o OID) IsZero() bool { return o == OID{} }

func (o OID) String() string { return hex.EncodeToString(o[:]) }

// MarshalText is String.
func (o OID) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText takes what String gives.
func (o *OID) UnmarshalText(text []byte) error {
	id, err := ParseOID(string(text))
	*o = id
	return err
}

// ParseOID is the object with that name; "" names none.
func ParseOID(text string) (o OID, err error) {
	if text == "" {
		return o, nil
	}
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) != len(o) {
		err = fmt.Errorf("%.80q is no object's name", text)
	}
	if err == nil {
		copy(o[:], raw)
	}
	return o, err
}

// repo is a session's bare repository. What it keeps is written by this package, and by
// no git; a git reads it.
type repo struct {
	dir string
	run worktree.Runner

	mu    sync.Mutex
	fresh map[OID]string // the files of objects that were put since the last flush
}

// makeRepo makes the folder a repository, and lends it another's objects, "" for none. What
// somebody who was killed has left half there is removed.
func makeRepo(run worktree.Runner, dir, objects string) (*repo, error) {
	r := &repo{dir: dir, run: run, fresh: map[OID]string{}}
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		for _, sub := range []string{"", "objects", "objects/info", "objects/pack", "refs", "info"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
		}
		config := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
		if err := errors.Join(
			regular.Replace(filepath.Join(dir, "config"), []byte(config), 0o600),
			syncPath(filepath.Join(dir, "objects")), syncPath(filepath.Dir(dir)),
			regular.Replace(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600), // the last of all
		); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(r.drafts()); err != nil {
		return nil, err
	}
	text := ""
	if lendable(objects) {
		text = objects + "\n"
	}
	alternates := filepath.Join(dir, "objects", "info", "alternates")
	if was, err := os.ReadFile(alternates); err == nil && string(was) == text {
		return r, nil
	}
	return r, regular.Replace(alternates, []byte(text), 0o600)
}

// drafts is the folder of objects that were not flushed yet.
func (r *repo) drafts() string { return filepath.Join(r.dir, "new") }

// lendable reports that a folder's name can stand in a list of alternates.
func lendable(objects string) bool {
	return objects != "" && !strings.ContainsAny(objects, "\n\r") && filepath.IsAbs(objects)
}

func (r *repo) path(o OID) string {
	name := o.String()
	return filepath.Join(r.dir, "objects", name[:2], name[2:])
}

// has reports that the object is kept here, and not lent.
func (r *repo) has(o OID) bool {
	r.mu.Lock()
	_, fresh := r.fresh[o]
	r.mu.Unlock()
	if fresh {
		return true
	}
	_, err := os.Lstat(r.path(o))
	return err == nil
}

// put keeps an object once flush has been called, and returns its name.
func (r *repo) put(kind string, content []byte) (OID, error) {
	head := fmt.Appendf(nil, "%s %d\x00", kind, len(content))
	sum := sha1.New()
	sum.Write(head)
	sum.Write(content)
	o := OID(sum.Sum(nil))
	if r.has(o) {
		return o, nil
	}
	if err := os.Mkdir(r.drafts(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return o, err
	}
	f, err := os.CreateTemp(r.drafts(), "")
	if err != nil {
		return o, err
	}
	z, err := zlib.NewWriterLevel(f, zlib.BestSpeed)
	if err == nil {
		_, err = z.Write(head)
	}
	if err == nil {
		_, err = z.Write(content)
	}
	if err == nil {
		err = z.Close()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return o, errors.Join(err, os.Remove(f.Name()))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.fresh[o]; twice {
		return o, os.Remove(f.Name())
	}
	r.fresh[o] = f.Name()
	return o, nil
}

// flush gives the objects that were put their names, once they are on the disk: one that is at
// its name is whole, whenever the power fails. It blocks for the disk.
func (r *repo) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fresh) == 0 {
		return nil
	}
	files, dirs := slices.Collect(maps.Values(r.fresh)), map[string]bool{filepath.Join(r.dir, "objects"): true}
	if err := syncPaths(files); err != nil {
		return err
	}
	for o, file := range r.fresh {
		dir := filepath.Dir(r.path(o))
		if !dirs[dir] {
			dirs[dir] = true
			if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		if err := os.Rename(file, r.path(o)); err != nil {
			return err
		}
	}
	clear(r.fresh)
	return errors.Join(syncPaths(slices.Collect(maps.Keys(dirs))), os.Remove(r.drafts()))
}

// hashOf is the name that a blob of that content has.
func hashOf(content []byte) OID {
	sum := blobHash(int64(len(content)))
	sum.Write(content)
	return OID(sum.Sum(nil))
}

func blobHash(size int64) hash.Hash {
	sum := sha1.New()
	sum.Write([]byte("blob " + strconv.FormatInt(size, 10) + "\x00"))
	return sum
}

// git runs a git on the repository that changes nothing.
func (r *repo) git(ctx context.Context, input []byte, out io.Writer, args ...string) error {
	return r.gitAt(ctx, []string{"--git-dir=" + r.dir}, nil, input, out, args...)
}

// gitAt is git with options that say on which repository. It reads these folders though they may be hidden: a
// session can be in one.
func (r *repo) gitAt(ctx context.Context, at, reads []string, input []byte, out io.Writer, args ...string) error {
	c, err := worktree.Reading(append(slices.Clone(at), args...)...)
	if err != nil {
		return err
	}
	c.Read, c.In = append([]string{r.dir}, reads...), input
	err = r.run(ctx, c, out)
	var exit *worktree.Exit
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &exit):
		return fmt.Errorf("git %s: %s: %w", args[0], exit.Reason(), exit)
	}
	return fmt.Errorf("run git: %w", err)
}

// errGone says that a content is not kept any more.
var errGone = errors.New("its former content is not kept any more")

// blobs hands the contents of blobs on, in order. An error of errGone says that one of
// them is nowhere, or not as it was.
func (r *repo) blobs(ctx context.Context, names []OID, each func(o OID, content []byte) error) error {
	if len(names) == 0 {
		return nil
	}
	var input bytes.Buffer
	for _, o := range names {
		input.WriteString(o.String() + "\n")
	}
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := r.git(ctx, input.Bytes(), out, "cat-file", "--batch")
		_ = out.CloseWithError(err)
		done <- err
	}()
	err := readBatch(bufio.NewReaderSize(in, 64<<10), names, each)
	_ = in.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		cancel()
	}
	<-done
	return err
}

// readBatch reads what cat-file --batch prints.
func readBatch(in *bufio.Reader, names []OID, each func(o OID, content []byte) error) error {
	for _, o := range names {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		words := strings.Fields(line)
		if len(words) != 3 || words[1] != "blob" {
			return errGone
		}
		size, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil || size < 0 || size > maxBlob {
			return errGone
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(in, content); err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		if _, err := in.Discard(1); err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		if hashOf(content) != o {
			return errGone
		}
		if err := each(o, content); err != nil {
			return err
		}
	}
	return nil
}

// maxBlob bounds a content that is read back, in bytes.
const maxBlob = 1 << 30

// own keeps blobs here that were only lent, so that they outlive the lender's.
func (r *repo) own(ctx context.Context, names []OID) error {
	slices.SortFunc(names, func(a, b OID) int { return bytes.Compare(a[:], b[:]) })
	names = slices.DeleteFunc(slices.Compact(names), func(o OID) bool { return o.IsZero() || r.has(o) })
	return r.blobs(ctx, names, func(_ OID, content []byte) error {
		_, err := r.put("blob", content)
		return err
	})
}

// tree keeps a tree of git's with these files: symlinks and regular files, of whose modes
// git keeps whether their owner may execute them.
func (r *repo) tree(files map[string]State) (OID, error) {
	type node struct {
		state State
		below map[string]State
	}
	nodes := map[string]*node{}
	for path, state := range files {
		name, rest, deeper := strings.Cut(path, "/")
		n := nodes[name]
		if n == nil {
			n = &node{}
			nodes[name] = n
		}
		if !deeper {
			n.state = state
			continue
		}
		if n.below == nil {
			n.below = map[string]State{}
		}
		n.below[rest] = state
	}
	type entry struct {
		key, name, mode string
		oid             OID
	}
	var entries []entry
	for name, n := range nodes {
		if n.below != nil {
			o, err := r.tree(n.below)
			if err != nil {
				return o, err
			}
			entries = append(entries, entry{name + "/", name, "40000", o})
			continue
		}
		entries = append(entries, entry{name, name, n.state.gitMode(), n.state.OID})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	var text []byte
	for _, e := range entries {
		text = append(append(text, e.mode+" "+e.name+"\x00"...), e.oid[:]...)
	}
	return r.put("tree", text)
}
