package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/regular"
	"noused/internal/tool"
)

const (
	// cacheFormat is that of the files; others are as good as absent.
	cacheFormat = 1
	// maxCached is how many files there are, and maxCache the bytes of one.
	maxCached = 256
	maxCache  = 2*maxDefinitions + 1<<20
)

// library has what servers have said that they can do, each once for all hosts, and
// keeps it on the disk.
type library struct {
	dir string // "" for none on the disk
	// room is for what all servers say that they can do.
	room  *budget.Budget
	files sync.Mutex // one file is read or made at a time

	mu        sync.Mutex
	manifests map[string]*manifestCache
	prune     sync.Mutex // one writer makes room at a time
}

// manifestCache is what one server can do, as far as it was ever heard.
type manifestCache struct {
	lib     *library
	file    string // its name
	readers int    // guarded by the library's mutex
	read    sync.Once

	mu       sync.Mutex
	manifest *tool.Manifest
	cost     int  // of the manifest, in the library's room
	newer    bool // its last handshake was the newer one
	closed   bool // nobody reads it any more
}

// cached is a manifestCache on the disk.
type cached struct {
	Format       int              `json:"format"`
	Server       string           `json:"server"` // for people
	Newer        bool             `json:"newer,omitzero"`
	Instructions string           `json:"instructions,omitzero"`
	Tools        []tool.Operation `json:"tools"`

	Prompts []model.ServerPrompt `json:"prompts,omitzero"`
	LeftOut []string             `json:"left_out,omitzero"`
}

// What a definition takes beside its text, in bytes: itself, and each value of its
// schema once that is compiled.
const perTool, perValue = 512, 64

// costOf is how many bytes what a server can do takes, in about.
func costOf(m *tool.Manifest) int {
	n := len(m.Instructions)
	for _, o := range m.Operations {
		n += costOfTool(o)
	}
	for _, why := range m.LeftOut {
		n += len(why)
	}
	for _, p := range m.Prompts {
		n += perTool + len(p.Name) + len(p.Description)
		for _, a := range p.Arguments {
			n += perValue + len(a.Name) + len(a.Description)
		}
	}
	return n
}

func costOfTool(o tool.Operation) int {
	return perTool + len(o.Name) + len(o.Description) + len(o.Params) + perValue*values(o.Params, len(o.Params))
}

// open returns the manifestCache of a server, until it is closed.
func (l *library) open(d *tool.Descriptor) *manifestCache {
	key := bookKey(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.manifests[key]
	if b == nil {
		b = &manifestCache{lib: l, file: key + ".json"}
		l.manifests[key] = b
	}
	b.readers++
	return b
}

func (b *manifestCache) close() {
	b.lib.mu.Lock()
	last := b.readers == 1
	if b.readers--; last {
		delete(b.lib.manifests, bookOf(b.file))
	}
	b.lib.mu.Unlock()
	if !last {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lib.room.Give(b.cost)
	b.cost, b.closed = 0, true
}

func bookOf(file string) string { return file[:len(file)-len(".json")] }

// bookKey is another for each command line, set of names of variables, and version
// that a descriptor has. Values may be secrets, and do not count.
func bookKey(d *tool.Descriptor) string {
	h := sha256.New()
	part := func(words ...string) {
		for _, w := range words {
			fmt.Fprintf(h, "%d:%s", len(w), w)
		}
		h.Write([]byte{'\n'})
	}
	part(d.Transport.Type, d.Transport.URL, d.Version)
	part(d.Transport.Command...)
	part(slices.Sorted(maps.Keys(d.Env))...)
	part(slices.Sorted(maps.Keys(d.Headers))...)
	part(d.Tools...)
	if d.OwnWorkdir {
		part(d.Workdir)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// known is what the server has said last, nil if it was never heard, and which
// handshake it takes. The first call reads a file.
func (b *manifestCache) known() (m *tool.Manifest, newer bool) {
	b.read.Do(b.load)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.manifest, b.newer
}

func (b *manifestCache) load() {
	if b.lib.dir == "" {
		return
	}
	b.lib.files.Lock()
	defer b.lib.files.Unlock()
	text, err := regular.Read(filepath.Join(b.lib.dir, b.file), maxCache)
	var c cached
	if err != nil || jsonx.Unmarshal(text, &c) != nil || c.Format != cacheFormat {
		return // it will be asked, and the file written anew
	}
	m := &tool.Manifest{Operations: c.Tools, Instructions: c.Instructions, Prompts: c.Prompts, LeftOut: c.LeftOut}
	cost := costOf(m)
	if !b.lib.room.Take(cost) {
		return // where it is asked it is told why it cannot be used
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.manifest, b.newer, b.cost = m, c.Newer, cost
}

// write keeps what a server has said, for which cost has been taken of the library's
// room; changed says that it said something else before. The old pointer stays where
// it did not.
func (b *manifestCache) write(server string, m *tool.Manifest, cost int, newer bool) (changed bool, err error) {
	b.read.Do(b.load)
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.manifest
	isSame := old != nil && same(old, m)
	if isSame || b.closed {
		b.lib.room.Give(cost)
	} else {
		b.lib.room.Give(b.cost)
		b.cost = cost
	}
	if isSame && b.newer == newer {
		return false, nil
	}
	if !isSame {
		b.manifest = m
	}
	b.newer = newer
	return old != nil && b.manifest != old,
		b.save(cached{cacheFormat, server, newer, m.Instructions, m.Operations, m.Prompts, m.LeftOut})
}

func (b *manifestCache) save(c cached) error {
	dir := b.lib.dir
	if dir == "" {
		return nil
	}
	b.lib.files.Lock()
	defer b.lib.files.Unlock()
	text, err := jsonx.Marshal(c, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	if len(text) > maxCache {
		return fmt.Errorf("what the server can do takes %d bytes, at most %d are kept", len(text), maxCache)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b.lib.prune.Lock()
	defer b.lib.prune.Unlock()
	trim(dir, "*.json", maxCached-1)
	return regular.Replace(filepath.Join(dir, b.file), text, 0o600)
}

// trim removes the oldest of the files of a pattern, until so many are left, and so
// many bytes, 0: any.
func trim(dir, pattern string, most int) {
	paths, _ := filepath.Glob(filepath.Join(dir, pattern)) // a bad pattern is its only error
	var files []os.FileInfo
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for n, info := range files {
		if len(files)-n <= most {
			return
		}
		_ = os.Remove(filepath.Join(dir, info.Name()))
	}
}
