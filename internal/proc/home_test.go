package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/testenv"
)

// settle has a jail work in a folder of its home, of which only what is harmless can
// be read.
func settle(t *testing.T, workdir string) (*jail, Home) {
	t.Helper()
	j := imprison(t)
	at := func(name string) string { return filepath.Join(j.home, name) }
	home := Home{
		Dir: j.home, Config: at(".config"), Data: at(".local/share"), State: at(".local/state"),
		Cache: at(".cache"),
	}
	j.work = at(workdir)
	check(t, os.MkdirAll(j.work, 0o700))
	return j, home
}

// modes calls do with the hidden covered, where that can be done, and left out of what
// may be read.
func (j *jail) modes(hidden Hidden, do func(t *testing.T)) {
	j.t.Helper()
	whole := j.t
	defer func() { j.t = whole }()
	for name, covered := range map[string]bool{"covered": true, "left out": false} {
		whole.Run(name, func(t *testing.T) {
			j.t = t
			if covered && !j.canCover() {
				t.Skip("this system lets only root cover a folder")
			}
			j.spawner.hidden = hidden
			view, err := j.Sandboxed(Sandbox{Workdir: j.work, Cache: true})
			check(t, err)
			view.box.cover = func() bool { return covered }
			j.view = view
			do(t)
		})
	}
}

// put makes a file, and the folders that it lies in.
func put(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o700))
	check(t, os.WriteFile(path, []byte(text), 0o600))
}

// Each key on the list, as a file and as a folder with files, and what nobody has
// heard of: none can be read.
func TestKeysInTheHomeAreHidden(t *testing.T) {
	unheard := []string{
		".newcomer", ".newcomer.d", ".config/newcomer", ".local/newcomer", ".local/share/newcomer",
		".local/state/newcomer", ".cache/newcomer", ".cache/go-build",
	}
	for _, workdir := range []string{"project", "."} {
		t.Run(workdir, func(t *testing.T) {
			j, home := settle(t, workdir)
			var files []string
			for _, name := range append(unheard, keys...) {
				path := home.at(name)
				if strings.HasPrefix(filepath.Base(name), ".") && filepath.Ext(name) == "" || filepath.Ext(name) == ".d" {
					path = filepath.Join(path, "deep", "file")
				}
				if _, err := os.Lstat(path); err != nil && os.MkdirAll(filepath.Dir(path), 0o700) == nil &&
					os.WriteFile(path, []byte("sk-"+name), 0o600) == nil {
					files = append(files, path)
				}
			}
			if len(files) < len(keys) {
				t.Fatalf("got %d files for %d keys", len(files), len(keys))
			}
			j.modes(home.Hidden(), func(t *testing.T) {
				if _, said := j.run("cat " + strings.Join(files, " ")); strings.Contains(said, "sk-") {
					t.Errorf("these can be read: %s", said)
				}
				for _, script := range []string{
					"grep -r sk- ~ /proc/self/root" + j.home, "tar c ~ | cat",
					"mv ~/.ssh s; cat s/deep/file", "ln ~/.npmrc h; cat h",
				} {
					if _, said := j.run(script); strings.Contains(said, "sk-") {
						t.Errorf("%s says %s", script, said)
					}
				}
			})
		})
	}
}

// What comes later is hidden from whatever starts later, and a program that runs is
// known to be older.
func TestANewcomerInTheHomeIsHidden(t *testing.T) {
	for _, workdir := range []string{"project", "."} {
		t.Run(workdir, func(t *testing.T) {
			j, home := settle(t, workdir)
			n := 0
			j.modes(home.Hidden(), func(t *testing.T) {
				if exit, said := j.run("true"); !exit.OK() {
					t.Fatal(said)
				}
				before := j.view.View()
				n++
				file := filepath.Join(j.home, fmt.Sprint(".later", n))
				put(t, file, "sk-later")
				if j.view.View() == before {
					t.Error("a program that was started before is not told from one that was not")
				}
				if exit, said := j.run("cat " + file); strings.Contains(said, "sk-") {
					t.Errorf("%v: it said %q", exit, said)
				}
			})
		})
	}
}

// Toolchains, settings and all other folders of the home can be read. In a session of
// the home, what a program could run there is not to be written.
func TestToolchainsInTheHomeCanBeRead(t *testing.T) {
	testenv.Long(t)
	for _, workdir := range []string{"project", "."} {
		t.Run(workdir, func(t *testing.T) {
			j, home := settle(t, workdir)
			check(t, os.MkdirAll(home.Cache, 0o700)) // as the daemon does
			files := []string{
				".bashrc", ".gitconfig", ".cargo/bin/cargo", ".rustup/toolchains/x", ".config/git/config", ".local/bin/tool",
				".local/share/uv/python/x", ".nvm/x",
				".m2/repository/x", "go/pkg/mod/x", "src/other/main.go", ".tools/bin/tool", "notes",
			}
			for _, name := range files {
				put(t, home.at(name), "plain")
			}
			put(t, home.at(".tools/key"), "sk-key")
			hidden := home.Hidden()
			hidden.Except = append(hidden.Except, home.at(".tools/bin"))
			j.modes(hidden, func(t *testing.T) {
				exit, said := j.run("for f in " + strings.Join(files, " ") + "; do cat ~/$f || exit; done")
				if want := strings.Repeat("plain", len(files)); !exit.OK() || strings.ReplaceAll(said, "\n", "") != want {
					t.Errorf("%v: %q", exit, said)
				}
				if exit, said := j.run("echo x >new && cat new && rm new && mkdir -p d && rmdir d"); !exit.OK() &&
					(workdir != "." || j.view.box.covers()) {
					t.Errorf("in the working directory: %v: %s", exit, said)
				}
				for _, name := range []string{
					".cargo/bin/cargo", ".cargo/bin/new", ".local/bin/tool", ".config/new", ".cache/new",
					".config/systemd/user/x", ".tools/bin/tool",
				} {
					if exit, _ := j.run("mkdir -p ~/" + filepath.Dir(name) + "; echo x >~/" + name); exit.OK() {
						t.Errorf("%s could be written", name)
					}
				}
			})
			for _, name := range files {
				if text, err := os.ReadFile(home.at(name)); string(text) != "plain" {
					t.Errorf("%s has %q, %v", name, text, err)
				}
			}
		})
	}
}

// What is hidden has no exception that a tool can make: one that has a link on the way
// by now, or that leads into something hidden, is none.
func TestNoLinkOpensWhatIsHidden(t *testing.T) {
	testenv.Long(t)
	for _, planted := range [][2]string{
		{".secret", ".cargo/bin"},
		{".secret", ".rustup"},
		{".secret", ".nvm"},
		{".secret", ".tools/bin"},
		{".secret", ".cache"},
		{".secret", ".config/git/config"},
		{".", ".local/bin"},
		{".secret/key", ".bashrc"},
	} {
		t.Run(planted[1], func(t *testing.T) {
			j, home := settle(t, ".")
			put(t, home.at(".secret/key"), "sk-key")
			check(t, os.MkdirAll(filepath.Dir(home.at(planted[1])), 0o700))
			check(t, os.Symlink(home.at(planted[0]), home.at(planted[1])))
			hidden := home.Hidden()
			hidden.Except = append(hidden.Except, home.at(".tools/bin"))
			j.modes(hidden, func(t *testing.T) {
				for _, script := range []string{
					"cat ~/.secret/key", "cat ~/" + planted[1], "cat ~/" + planted[1] + "/key",
					"cat ~/" + planted[1] + "/.secret/key",
				} {
					if _, said := j.run(script); strings.Contains(said, "sk-") {
						t.Errorf("%s says %q", script, said)
					}
				}
			})
		})
	}
}

// Anyone who makes a great many files in a home is told so, and no program starts without
// what hides them.
func TestTooManyToHideIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("makes thousands of files")
	}
	j, home := settle(t, "project")
	for i := range maxListed + 1 {
		check(t, os.WriteFile(home.at(fmt.Sprint(".many-", i)), nil, 0o600))
	}
	hidden, err := home.Hidden().resolved().listed()
	if err == nil || !strings.Contains(err.Error(), "more than 4096") {
		t.Errorf("got %d, %v", len(hidden.Paths), err)
	}
	if text := home.Hidden().resolved().String(); len(text) > 16<<10 {
		t.Errorf("what programs learn of it has %d bytes", len(text))
	}
	j.spawner.hidden = home.Hidden()
}

// The user's own cache is what other programs of the user execute: a program in the
// sandbox has one of its own for its folder, and only for that.
func TestEachFolderHasACacheOfItsOwn(t *testing.T) {
	j, home := settle(t, "project")
	put(t, home.at(".cache/go-build/ab/tool"), "built")
	cache, hidden := "", home.Hidden()
	hidden.Paths = append(hidden.Paths, filepath.Join(filepath.Dir(j.home), "caches"))
	j.modes(hidden, func(t *testing.T) {
		for what, script := range map[string]string{
			"changing":           "echo x >~/.cache/go-build/ab/tool",
			"adding":             "mkdir -p ~/.cache/new && echo x >~/.cache/new/x",
			"the folder of all":  `echo x >"$XDG_CACHE_HOME/../folder"`,
			"beside":             `mkdir "$XDG_CACHE_HOME/../../other"`,
			"a link in place of": `mv "$XDG_CACHE_HOME" "$XDG_CACHE_HOME.old"`,
		} {
			if exit, said := j.run(script); exit.OK() {
				t.Errorf("%s worked: %s", what, said)
			}
		}
		exit, said := j.run(`mkdir -p "$GOCACHE" && echo mine >"$GOCACHE/x" && cat "$GOCACHE/x" && echo $XDG_CACHE_HOME`)
		var ok bool
		if cache, ok = strings.CutPrefix(strings.TrimSpace(said), "mine\n"); !exit.OK() || !ok {
			t.Fatalf("%v: %s", exit, said)
		}
		other := *j
		other.work = home.at("other")
		check(t, os.MkdirAll(other.work, 0o700))
		view, err := j.Sandboxed(Sandbox{Workdir: other.work, Cache: true})
		check(t, err)
		covers := j.view.box.cover
		view.box.cover = covers
		other.view = view
		if exit, said := other.run("cat " + cache + "/go-build/x || echo theirs >" + cache + "/go-build/x"); exit.OK() {
			t.Errorf("from another folder: %s", said)
		}
		if text, err := os.ReadFile(filepath.Join(cache, "go-build", "x")); string(text) != "mine\n" {
			t.Errorf("got %q, %v", text, err)
		}
	})
	if text, err := os.ReadFile(home.at(".cache/go-build/ab/tool")); string(text) != "built" {
		t.Errorf("got %q, %v", text, err)
	}
}

// A cache that was planted as a link is not used, and what is locked or not used any
// more is removed.
func TestCachesAreSwept(t *testing.T) {
	dir := t.TempDir()
	c, err := openCaches(filepath.Join(dir, "caches"))
	check(t, err)
	work := t.TempDir()
	used, err := c.of(work)
	check(t, err)
	put(t, filepath.Join(used, "mod", "x"), "x")
	check(t, os.Chmod(filepath.Join(used, "mod"), 0o500))
	gone := filepath.Join(t.TempDir(), "gone")
	check(t, os.Mkdir(gone, 0o700))
	of, err := c.of(gone)
	check(t, err)
	check(t, os.Remove(gone))
	if n, err := c.sweep(time.Now().Add(-time.Hour)); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := os.Stat(of); err == nil {
		t.Error("the cache of a folder that is gone is there")
	}
	if n, err := c.sweep(time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	check(t, os.Symlink(dir, filepath.Dir(used)))
	if got, err := c.of(work); err == nil {
		t.Errorf("a link is used: %s", got)
	}
	if _, err := openCaches(filepath.Join(filepath.Dir(used), "x")); err != nil {
		t.Error(err)
	}
	check(t, os.Chmod(dir, 0o777))
	if _, err := openCaches(dir); err == nil {
		t.Error("a folder that everybody may write to is used")
	}
}

func TestProgramsAreToldOfTheirCache(t *testing.T) {
	home, cache := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(home, name) }
	get := func(hidden Hidden, environ ...string) map[string]string {
		got := map[string]string{}
		for _, kv := range withCache(append(environ, "HOME="+home, "XDG_CACHE_HOME="+at(".cache")), cache, hidden) {
			name, value, _ := strings.Cut(kv, "=")
			got[name] = value
		}
		return got
	}
	put(t, at("go/bin/tool"), "")
	got := get(Hidden{}, "GOCACHE=/mine", "PATH=/usr/bin:"+at("go/bin")+":"+at(".cargo/bin"))
	for name, want := range map[string]string{
		"XDG_CACHE_HOME": cache, "GOCACHE": "/mine", "GOMODCACHE": cache + "/go-mod",
		"GOPATH": cache + "/go", "npm_config_cache": cache + "/npm", "CARGO_HOME": cache + "/cargo", "GOPROXY": "",
		"MAVEN_OPTS": "-Dmaven.repo.local=" + cache + "/maven",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	if to, err := os.Readlink(filepath.Join(cache, "go", "bin", "tool")); to != at("go/bin/tool") {
		t.Errorf("an installed program leads to %s: %v", to, err)
	}
	if info, err := os.Lstat(filepath.Join(cache, "go", "bin")); err != nil || !info.IsDir() {
		t.Errorf("go install has nowhere to put programs: %v", err)
	}
	if want := "/usr/bin:" + cache + "/go/bin:" + at("go/bin") + ":" + cache + "/cargo/bin:" +
		at(".cargo/bin"); got["PATH"] != want {
		t.Errorf("PATH: got %q, want %q", got["PATH"], want)
	}
	modules := at("go/pkg/mod/cache/download")
	check(t, os.MkdirAll(modules, 0o700))
	check(t, os.MkdirAll(at(".m2/repository"), 0o700))
	got = get(Hidden{})
	if want := "file://" + modules + ",https://proxy.golang.org,direct"; got["GOPROXY"] != want {
		t.Errorf("got %q, want %q", got["GOPROXY"], want)
	}
	if want := "-Dmaven.repo.local=" + cache + "/maven -Dmaven.repo.local.tail=" +
		at(".m2/repository"); got["MAVEN_OPTS"] != want {
		t.Errorf("got %q, want %q", got["MAVEN_OPTS"], want)
	}
	if got = get(Hidden{Paths: []string{at("go")}}); got["GOPROXY"] != "" {
		t.Errorf("with the modules hidden: %q", got["GOPROXY"])
	}
	put(t, at(".config/go/env"), "GOPROXY=https://proxy.example\n")
	if got = get(Hidden{}); got["GOPROXY"] != "file://"+modules+",https://proxy.example" {
		t.Errorf("with a proxy of the user's: %q", got["GOPROXY"])
	}
	put(t, at(".config/go/env"), "GOPRIVATE=example.com\n")
	if got = get(Hidden{}); got["GOPROXY"] != "file://"+modules+",direct" || got["GONOPROXY"] != "none" {
		t.Errorf("with private modules: %q %q", got["GOPROXY"], got["GONOPROXY"])
	}
}

// A tool of a session in the home folder can make any file of go's settings: neither one
// that never ends nor one that no environment can have keeps programs from starting.
func TestHostileGoSettingsHoldUpNobody(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".config", "go", "env")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	for what, spoil := range map[string]func() error{
		"a pipe that somebody writes to": func() error {
			if err := unix.Mkfifo(file, 0o600); err != nil {
				return err
			}
			writer, err := os.OpenFile(file, os.O_RDWR, 0)
			if err == nil {
				t.Cleanup(func() { writer.Close() })
			}
			return err
		},
		"a NUL": func() error { return os.WriteFile(file, []byte("GOPATH=/a\x00b\nGOPROXY=off\x00\n"), 0o600) },
	} {
		check(t, os.RemoveAll(file))
		check(t, spoil())
		environ := withCache([]string{"HOME=" + home}, t.TempDir(), Hidden{})
		if strings.Contains(strings.Join(environ, "\n"), "\x00") {
			t.Errorf("%s: got %q", what, environ)
		}
	}
}
