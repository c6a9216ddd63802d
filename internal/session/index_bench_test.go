package session

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// BenchmarkLong sets what is done with a closed session of 142 MB, of many messages or of
// long ones, beside reading its file (raw), and beside looking at its JSON once (json).
// KB-held is what is in memory then, beside the file.
func BenchmarkLong(b *testing.B) {
	for _, c := range []struct {
		name        string
		turns, size int
	}{{"many", 25_000, 735}, {"long", 34, 880_000}} {
		store := indexing(b)
		path := store.path("ses-1")
		func() {
			f, err := os.Create(path)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			for _, r := range conversation(c.turns, c.size) {
				line, err := appendRecord(nil, r)
				if err == nil {
					_, err = f.Write(line)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}()
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		run := func(name string, do func() (keep any, err error)) {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.SetBytes(info.Size())
				before := heap()
				var keep any
				for b.Loop() {
					keep = nil
					var err error
					if keep, err = do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/1024, "KB-held")
				runtime.KeepAlive(keep)
			})
		}
		pass := func(each func(line []byte)) (any, error) {
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			defer func() { _ = f.Close() }()
			if each == nil {
				buf := make([]byte, 64<<10)
				for {
					if _, err := f.Read(buf); err != nil {
						return nil, nil
					}
				}
			}
			for in := newLineReader(f); ; {
				line, _, err := in.next()
				if err == io.EOF {
					return nil, nil
				}
				each(line)
			}
		}
		open := func() (any, error) {
			s, j, _, err := store.Load(context.Background(), "ses-1")
			if err == nil {
				err = j.Close()
			}
			return s, err
		}
		end := func() (any, error) {
			s, err := store.PeekEnd(context.Background(), "ses-1", 1)
			if err != nil {
				return nil, err
			}
			last, _ := s.Path("")
			err = store.Bodies(context.Background(), "ses-1", last[len(last)-1:], func(_ *Entry, b *Body) error {
				if b.ID == "" {
					return errMoved
				}
				return nil
			})
			return nil, err
		}
		run("raw", func() (any, error) { return pass(nil) })
		run("json", func() (any, error) {
			in := jsontext.NewDecoder(bytes.NewReader(nil))
			return pass(func(line []byte) {
				in.Reset(bytes.NewReader(line))
				if err := in.SkipValue(); err != nil {
					b.Error(err)
				}
			})
		})
		store.leastIndexed = 1 << 40
		run("open/fold", open)
		run("last/fold", end)
		store.leastIndexed = 0
		if !indexed(b, store) {
			b.Fatal("no index")
		}
		store.leastIndexed = 1 << 40
		run("open/index", open)
		run("last/index", end)
		run("all/index", func() (any, error) { return store.Peek(context.Background(), "ses-1") })
		if err := os.Chtimes(path, t0, t0); err != nil { // as of a copy
			b.Fatal(err)
		}
		run("open/copied", open)
		if is, err := os.Stat(indexPath(path)); err == nil {
			b.Logf("%s: a journal of %d bytes, an index of %d", c.name, info.Size(), is.Size())
		}
		state, err := store.Peek(context.Background(), "ses-1")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/write", func(b *testing.B) {
			for b.Loop() {
				if err := store.placeIndex(state, snapshot{Size: 1, Lines: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// heap is what is in memory, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
