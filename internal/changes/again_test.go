package changes

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lines are what a folder was recorded as.
func (m *manifest) lines() []string {
	var out []string
	m.each(func(rel string, s State) { out = append(out, fmt.Sprintf("%q %o %s %s", rel, s.Mode, s.OID, s.Left)) })
	slices.Sort(out)
	return out
}

// Whatever has happened to a folder: with what was known of it, it is recorded as it is without.
func TestWhatIsKnownOfAFolderChangesNoRecord(t *testing.T) {
	names := []string{
		"a", "b.log", "keep.log", "build", "build/x", "build/kept/y", "src/a.go", "src/b.log", "src/build", "src/gen/z.log",
		"src/gen/keep.log", "new/deep/c", "new/build/d", "logs/x", "logs/kept", "é.log", "!odd", "#odd", "sp ace .log",
		":", ":!c", "src/:d",
	}
	rules := []string{
		"*.log\n", "*.log\n!keep.log\nbuild/\n", "build\n/src/gen/*\n", "logs/\n", "**/build/\n\\!odd\n", "",
	}
	few := 0
	for seed := range uint64(*sequences) {
		r := rand.New(rand.NewPCG(seed, 29))
		u := newFolder(t, seed%3 > 0)
		change := func() {
			at := filepath.Join(u.top, names[r.IntN(len(names))])
			switch r.IntN(15) {
			case 0:
				dir := []string{"", "src", "build", "src/gen"}[r.IntN(4)]
				if os.MkdirAll(filepath.Join(u.top, dir), 0o755) == nil {
					_ = os.WriteFile(filepath.Join(u.top, dir, ".gitignore"), []byte(rules[r.IntN(len(rules))]), 0o644)
				}
			case 1, 2:
				_ = os.RemoveAll(at)
			case 3:
				_ = os.Rename(at, filepath.Join(u.top, names[r.IntN(len(names))]))
			case 4:
				_ = os.Mkdir(at, 0o755)
			case 5:
				if os.MkdirAll(at, 0o755) == nil {
					u.sh("cd '" + at + "' && git init -q")
				}
			case 6:
				how := []string{"add -f", "rm -qr --cached"}[r.IntN(2)]
				if seed%3 > 0 && r.IntN(3) == 0 {
					u.sh("git " + how + " -- './" + names[r.IntN(len(names))] + "' 2>/dev/null || true")
				}
			case 7:
				_ = os.Symlink("a", at)
			case 8:
				_ = os.RemoveAll(filepath.Join(at, ".git"))
			case 9:
				_ = os.Chmod(at, os.FileMode(0o700|r.IntN(0o100)))
			case 10:
				if seed%3 > 0 {
					_ = os.WriteFile(filepath.Join(u.top, ".git/info/exclude"), []byte(rules[r.IntN(len(rules))]), 0o644)
				}
			case 11:
				if os.Remove(at) == nil {
					_ = unix.Mkfifo(at, 0o600)
				}
			default:
				if os.MkdirAll(filepath.Dir(at), 0o755) == nil {
					_ = put(at, os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, fmt.Appendf(nil, "%d\n", r.IntN(3)), 0o644)
				}
			}
		}
		s, release, err := u.e.acquire(context.Background(), u.f.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		var known *manifest
		for range 12 {
			for range r.IntN(4) {
				change()
			}
			gits := 0
			u.e.o.Git = counted(&gits)
			is, _, err := u.e.scan(context.Background(), s, u.f, known)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if known != nil && gits == 0 && !is.same {
				few++
			}
			anew, _, err := u.e.scan(context.Background(), s, u.f, nil)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got, want := is.lines(), anew.lines(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: it is recorded as\n%s\nand without what was known as\n%s", seed,
					strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			var text bytes.Buffer
			if err := is.encode(&text); err != nil {
				t.Fatal(err)
			}
			if known, err = decodeManifest(text.Bytes()); err != nil {
				t.Fatal(err)
			}
			s.memory.part.End()
		}
	}
	if few == 0 {
		t.Error("no change was recorded without a git")
	}
}
