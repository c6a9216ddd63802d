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
	dir  string
	lent string // the folder of another's objects, "" for none
	most int64  // bytes of a content that is lent; a longer one counts as gone
	run  worktree.Runner

	memory *memory

	mu    sync.Mutex
	count int         // of the drafts, which have numbers for names
	fresh map[OID]int // those that were put since the last flush
}

// makeRepo makes the folder a repository, and lends it another's objects, "" for none. What
// somebody who was killed has left half there is removed.
func makeRepo(run worktree.Runner, dir, objects string, m *memory) (*repo, error) {
	r := &repo{dir: dir, run: run, memory: m, fresh: map[OID]int{}}
	if lendable(objects) {
		r.lent = objects
	}
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
	if r.lent != "" {
		text = r.lent + "\n"
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

func (r *repo) path(o OID) string { return looseAt(filepath.Join(r.dir, "objects"), o) }

// looseAt is where an object is that is in no pack.
func looseAt(objects string, o OID) string {
	name := o.String()
	return filepath.Join(objects, name[:2], name[2:])
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
	return r.putText(kind, func(to io.Writer) error { _, err := to.Write(content); return err })
}

// putText is put of what write writes, each time the same.
func (r *repo) putText(kind string, write func(to io.Writer) error) (o OID, err error) {
	var size counter
	if err := write(&size); err != nil {
		return o, err
	}
	object := func(to io.Writer) error {
		if _, err := fmt.Fprintf(to, "%s %d\x00", kind, size); err != nil {
			return err
		}
		return write(to)
	}
	sum := sha1.New()
	if err := object(sum); err != nil {
		return o, err
	}
	if o = OID(sum.Sum(nil)); r.has(o) {
		return o, nil
	}
	if err := os.Mkdir(r.drafts(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return o, err
	}
	r.mu.Lock()
	r.count++
	n := r.count
	r.mu.Unlock()
	f, err := os.OpenFile(r.draft(n), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return o, err
	}
	if err = errors.Join(deflate(f, object), f.Close()); err != nil {
		return o, errors.Join(err, os.Remove(f.Name()))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.fresh[o]; twice {
		return o, os.Remove(f.Name())
	}
	r.fresh[o] = n
	return o, nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// deflaters are used again: each takes more than a MiB.
var deflaters = sync.Pool{New: func() any {
	z, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	if err != nil {
		panic(err) // it is a level
	}
	return z
}}

// deflate writes an object as a file has it that is in no pack.
func deflate(to io.Writer, object func(to io.Writer) error) error {
	z := deflaters.Get().(*zlib.Writer)
	defer func() { z.Reset(nil); deflaters.Put(z) }()
	z.Reset(to)
	return errors.Join(object(z), z.Close())
}

// draft is where a draft is.
func (r *repo) draft(n int) string { return filepath.Join(r.drafts(), strconv.Itoa(n)) }

// flush gives the objects that were put their names, once they are on the disk: one that is at
// its name is whole, whenever the power fails. It blocks for the disk.
func (r *repo) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fresh) == 0 {
		return nil
	}
	drafts, dirs := slices.Collect(maps.Values(r.fresh)), map[string]bool{filepath.Join(r.dir, "objects"): true}
	if err := syncAll(len(drafts), func(i int) error { return syncPath(r.draft(drafts[i])) }); err != nil {
		return err
	}
	for o, n := range r.fresh {
		dir := filepath.Dir(r.path(o))
		if !dirs[dir] {
			dirs[dir] = true
			if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		if err := os.Rename(r.draft(n), r.path(o)); err != nil {
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

// blobs hands the contents of blobs on, first of those that are in no pack, which need no git. An
// error of errGone says that one of them is nowhere, or not as it was.
func (r *repo) blobs(ctx context.Context, names []OID, each func(o OID, content []byte) error) error {
	var input bytes.Buffer
	var packed []OID
	for _, o := range names {
		content, ok, err := r.loose(ctx, o)
		switch {
		case err != nil:
			return err
		case !ok:
			if info, err := os.Lstat(looseAt(r.lent, o)); r.lent != "" && err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
				return errGone // a git would wait for what is written to it
			}
			input.WriteString(o.String() + "\n")
			packed = append(packed, o)
		default:
			err := each(o, content)
			r.memory.give(len(content))
			if err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(packed) == 0 {
		return nil
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
	err := r.readBatch(ctx, bufio.NewReaderSize(in, 64<<10), packed, each)
	_ = in.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		cancel()
	}
	<-done
	return err
}

// readBatch reads what cat-file --batch prints: what was only lent, as no pack is made here.
func (r *repo) readBatch(ctx context.Context, in *bufio.Reader, names []OID, each func(o OID, content []byte) error,
) error {
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
		if err != nil || size < 0 || size > r.most {
			return errGone
		}
		if err := r.memory.take(ctx, int(size)); err != nil {
			return err
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
		r.memory.give(len(content))
	}
	return nil
}

// loose reads a blob that is in no pack. Where it cannot, git may. The memory is the caller's to give
// back. The error is that there is none.
func (r *repo) loose(ctx context.Context, o OID) (content []byte, ok bool, err error) {
	var full error
	take := func(n int) error { full = r.memory.take(ctx, n); return full }
	for _, from := range []struct {
		objects string
		most    int64
	}{{filepath.Join(r.dir, "objects"), maxBlob}, {r.lent, r.most}} {
		if from.objects == "" {
			continue
		}
		f, err := regular.Open(looseAt(from.objects, o), os.O_RDONLY)
		if err != nil {
			continue
		}
		content, err := inflate(f, from.most, take)
		if err = errors.Join(err, f.Close()); err == nil && hashOf(content) == o {
			return content, true, nil
		}
		if full != nil {
			return nil, false, full
		}
		r.memory.give(len(content))
	}
	return nil, false, nil
}

// inflate reads a blob as a file has it that is in no pack: behind its kind and size. take is asked
// for memory; the content is as long as what was taken, and after an error of no use.
func inflate(f io.Reader, most int64, take func(n int) error) (content []byte, err error) {
	z, err := zlib.NewReader(f)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(z)
	head, err := in.ReadSlice(0)
	if err != nil {
		return nil, err
	}
	kind, text, _ := strings.Cut(strings.TrimSuffix(string(head), "\x00"), " ")
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || kind != "blob" || size < 0 || size > most {
		return nil, errGone
	}
	if err := take(int(size)); err != nil {
		return nil, err
	}
	content = make([]byte, size)
	if _, err = io.ReadFull(in, content); err != nil {
		return content, err
	}
	if _, err = in.ReadByte(); err != io.EOF {
		return content, errGone
	}
	return content, nil
}

// maxBlob bounds a content that is read back, in bytes.
const maxBlob = 1 << 30

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
