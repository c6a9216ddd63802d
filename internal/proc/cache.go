package proc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
	"noused/internal/trust"
)

// caches has a cache for each folder that sandboxed programs work in: what they put
// into the user's own cache, other programs of the user would execute. In a folder
// named for the working directory are the file "folder", which says which that is,
// and "files", which only sandboxed programs of that directory can read and write.
type caches struct {
	path string
	root *os.Root
}

const (
	cacheOwner   = "folder"
	cacheFiles   = "files"
	maxOwner     = 8 << 10 // bytes of a path
	maxGoSetting = 64 << 10
	maxPrograms  = 1000 // of GOPATH, that are linked
)

// openCaches opens the folder of all caches, which is made where there is none and
// must be this user's own.
func openCaches(path string) (*caches, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	path = Resolve(path)
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = private(info)
	}
	if err != nil {
		_ = root.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &caches{path, root}, nil
}

// KeepCaches has programs in a sandbox keep their caches in a folder of the daemon's
// own, one for each working directory, and never in the user's. It is to be called
// before the first is started; without it they have none. Which folders have caches says
// also where programs could write that a former daemon has started ([trust.Writable]).
func (s *Supervisor) KeepCaches(dir string) (err error) {
	if s.caches, err = openCaches(dir); err == nil {
		trust.Writable(append(s.caches.owners(), s.caches.path)...)
	}
	return err
}

// SweepCaches removes the caches of folders in which no program was started since
// then, or that are no more, and returns how many. It blocks for the disk.
func (s *Supervisor) SweepCaches(before time.Time) (removed int, err error) {
	if s.caches == nil {
		return 0, nil
	}
	return s.caches.sweep(before)
}

// private finds fault with a folder that others may write to.
func private(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return errors.New("is no folder")
	case !ok || int(st.Uid) != os.Geteuid():
		return errors.New("belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return errors.New("can be written by others")
	}
	return nil
}

// of returns the cache of a working directory, an absolute path without links, and
// notes that it is used now.
func (c *caches) of(workdir string) (string, error) {
	sum := sha256.Sum256([]byte(workdir))
	name := hex.EncodeToString(sum[:16])
	for _, dir := range []string{name, name + "/" + cacheFiles} {
		if err := c.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if info, err := c.root.Lstat(dir); err != nil || !info.IsDir() {
			return "", &os.PathError{
				Op: "open", Path: filepath.Join(c.path, dir),
				Err: errors.Join(err, errors.New("is no folder")),
			}
		}
	}
	if err := c.root.WriteFile(name+"/"+cacheOwner, []byte(workdir), 0o600); err != nil {
		return "", err
	}
	now := time.Now()
	return filepath.Join(c.path, name, cacheFiles), c.root.Chtimes(name, now, now)
}

// sweep removes the caches that were not used since then, and those of folders that
// are no more, and returns how many.
func (c *caches) sweep(before time.Time) (removed int, err error) {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	for _, e := range entries {
		info, e2 := e.Info()
		if e2 != nil || !e.IsDir() || !info.ModTime().Before(before) && c.owned(e.Name()) {
			continue
		}
		if e2 = removeAll(c.root, e.Name()); e2 == nil {
			removed++
		}
		err = errors.Join(err, e2)
	}
	return removed, err
}

// owned reports whether the working directory of a cache may still be there.
func (c *caches) owned(name string) bool {
	workdir := c.owner(name)
	if workdir == "" {
		return true // it is being made
	}
	_, err := os.Lstat(workdir)
	return !errors.Is(err, fs.ErrNotExist)
}

// owner is the working directory of a cache, "" where that is not known.
func (c *caches) owner(name string) string {
	f, err := c.root.Open(name + "/" + cacheOwner)
	if err != nil {
		return ""
	}
	defer f.Close()
	workdir, err := io.ReadAll(io.LimitReader(f, maxOwner))
	if err != nil || !filepath.IsAbs(string(workdir)) {
		return ""
	}
	return string(workdir)
}

// owners are the working directories of all caches.
func (c *caches) owners() (workdirs []string) {
	entries, _ := fs.ReadDir(c.root.FS(), ".")
	for _, e := range entries {
		if workdir := c.owner(e.Name()); workdir != "" {
			workdirs = append(workdirs, workdir)
		}
	}
	return workdirs
}

// cacheVariables have programs keep to the cache of their folder: in which part of it.
// Programs that ask XDG_CACHE_HOME need no more: pip, uv, ccache, Deno, Coursier,
// golangci-lint, pre-commit and others.
var cacheVariables = []struct{ name, part string }{
	{"XDG_CACHE_HOME", ""},
	{"GOCACHE", "go-build"},
	{"GOMODCACHE", "go-mod"},
	{"npm_config_cache", "npm"},
	{"YARN_CACHE_FOLDER", "yarn"},
	{"YARN_GLOBAL_FOLDER", "yarn-berry"},
	{"PIP_CACHE_DIR", "pip"},
	{"UV_CACHE_DIR", "uv"},
	{"CARGO_HOME", "cargo"},
	{"GRADLE_USER_HOME", "gradle"},
	{"CCACHE_DIR", "ccache"},
	{"SCCACHE_DIR", "sccache"},
	{"DENO_DIR", "deno"},
	{"BUN_INSTALL_CACHE_DIR", "bun"},
	{"NUGET_PACKAGES", "nuget"},
	{"DOTNET_CLI_HOME", "dotnet"},
	{"BUNDLE_USER_HOME", "bundle"},
}

// realCaches are what programs can use of what the user has fetched, without writing
// there: below the home, or its cache.
var realCaches = []struct{ name, before, real string }{
	{"GRADLE_RO_DEP_CACHE", "", ".gradle/caches"},
	{"PLAYWRIGHT_BROWSERS_PATH", "", ".cache/ms-playwright"},
	{"PUPPETEER_CACHE_DIR", "", ".cache/puppeteer"},
	{"CYPRESS_CACHE_FOLDER", "", ".cache/Cypress"},
}

// withCache adds to an environment, NAME=value, what has programs use a cache, and
// read what of the user's they can. What the environment says itself stays, but for
// XDG_CACHE_HOME.
func withCache(environ []string, cache string, hidden Hidden) []string {
	value := func(name string) string {
		for _, kv := range slices.Backward(environ) {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	}
	had := slices.Clone(environ)
	set := func(name, v string) {
		if name == "XDG_CACHE_HOME" || !slices.ContainsFunc(had, func(kv string) bool {
			return strings.HasPrefix(kv, name+"=")
		}) {
			environ = append(environ, name+"="+v)
		}
	}
	home := Home{Dir: value("HOME"), Config: value("XDG_CONFIG_HOME"), Cache: value("XDG_CACHE_HOME")}
	for _, v := range cacheVariables {
		set(v.name, filepath.Join(cache, v.part))
	}
	repository := "-Dmaven.repo.local=" + filepath.Join(cache, "maven")
	if !filepath.IsAbs(home.Dir) {
		set("MAVEN_OPTS", repository)
		return environ
	}
	if !filepath.IsAbs(home.Config) {
		home.Config = filepath.Join(home.Dir, ".config")
	}
	if !filepath.IsAbs(home.Cache) {
		home.Cache = filepath.Join(home.Dir, ".cache")
	}
	there := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir() && !hidden.Covers(Resolve(path))
	}
	for _, v := range realCaches {
		if real := home.at(v.real); there(real) {
			set(v.name, real)
		}
	}
	if real := home.at(".m2/repository"); there(real) {
		repository += " -Dmaven.repo.local.tail=" + real
	}
	set("MAVEN_OPTS", repository)
	gopath, vars := goVariables(home, there)
	// What go checks modules against it keeps in GOPATH, and programs that it has
	// installed are looked for there.
	if root, err := os.OpenRoot(cache); err == nil {
		_ = root.MkdirAll("go/bin", 0o700)
		if programs := filepath.Join(gopath, "bin"); there(programs) {
			linkAll(root, "go/bin", programs)
		}
		_ = root.Close()
		set("GOPATH", filepath.Join(cache, "go"))
	}
	path := filepath.SplitList(value("PATH"))
	for own, private := range map[string]string{
		filepath.Join(gopath, "bin"):             filepath.Join(value("GOPATH"), "bin"),
		filepath.Join(home.Dir, ".cargo", "bin"): filepath.Join(value("CARGO_HOME"), "bin"),
	} {
		if i := slices.Index(path, own); i >= 0 && inside(cache, private) {
			path = slices.Insert(path, i, private) // what is installed in the sandbox is found there
		}
	}
	if len(path) > 0 {
		environ = append(environ, "PATH="+strings.Join(path, string(filepath.ListSeparator)))
	}
	for _, kv := range vars {
		name, v, _ := strings.Cut(kv, "=")
		set(name, v)
	}
	return environ
}

// linkAll has links in a folder below root to what is in another one, but for names
// that are there already.
func linkAll(root *os.Root, in, dir string) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxPrograms)
	for _, name := range names {
		_ = root.Symlink(filepath.Join(dir, name), filepath.Join(in, name))
	}
}

// goVariables are the user's GOPATH, and what has go take the modules that the user has
// from there, and all others as the user's own settings say. Private modules are not
// asked of a public proxy.
func goVariables(home Home, there func(string) bool) (gopath string, vars []string) {
	settings := map[string]string{}
	text, err := regular.Read(home.at(".config/go/env"), maxGoSetting)
	if err == nil && bytes.IndexByte(text, 0) < 0 { // a variable with a NUL would keep all programs from starting
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			settings[name] = value
		}
	}
	gopath, _, _ = strings.Cut(settings["GOPATH"], ":")
	if gopath == "" {
		gopath = filepath.Join(home.Dir, "go")
	}
	modules := settings["GOMODCACHE"]
	if modules == "" {
		modules = filepath.Join(gopath, "pkg", "mod")
	}
	if modules = filepath.Join(modules, "cache", "download"); !there(modules) {
		return gopath, nil
	}
	proxy := "GOPROXY=file://" + modules + ","
	if settings["GOPRIVATE"]+settings["GONOPROXY"] != "" {
		return gopath, []string{proxy + "direct", "GONOPROXY=none"}
	}
	if rest := settings["GOPROXY"]; rest != "" {
		return gopath, []string{proxy + rest}
	}
	return gopath, []string{proxy + "https://proxy.golang.org,direct"}
}
