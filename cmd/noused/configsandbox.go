package main

import (
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/proc"
	"noused/internal/xdg"
)

// sandboxSettings are what sandboxed tools may not, beside what no tool may.
type sandboxSettings struct {
	Hidden  proc.Hidden // what of the user's they cannot read
	Network bool        // it is open
	Hide    []string    // of the file, absolute
	Read    []string    // of the file, absolute
}

// sandbox is the section [sandbox], which only the file can have. own is the
// daemon's own, which nothing opens.
func (r *resolver) sandbox(workdir string, own []string) (s sandboxSettings) {
	s.Network = r.boolean("sandbox.network", true)
	resolved := make([]string, len(own))
	for i, dir := range own {
		resolved[i] = proc.Resolve(dir)
	}
	base := func(folder func(func(string) string) string, usual string) string {
		if dir := folder(r.getenv); !within(proc.Resolve(workdir), proc.Resolve(dir)) {
			return dir
		}
		return filepath.Join(r.home(), usual) // tools are to work in it: only the daemon's own is hidden there
	}
	s.Hidden = proc.Home{
		Dir: r.home(), Config: base(xdg.Config, ".config"), Data: base(xdg.Data, ".local/share"),
		State: base(xdg.State, ".local/state"), Cache: base(xdg.Cache, ".cache"),
	}.Hidden()
	for _, dir := range filepath.SplitList(r.getenv("PATH")) {
		if filepath.IsAbs(dir) && !ownsPath(resolved, dir) {
			s.Hidden.Except = append(s.Hidden.Except, proc.Resolve(dir))
		}
	}
	s.Read = r.paths("sandbox.read", func(_, path string, from origin) {
		switch real := proc.Resolve(path); {
		case within(proc.Resolve(r.home()), real):
			r.fail(from, "%s has all that is hidden in the home folder: name the paths in it that tools may read", path)
		case ownsPath(resolved, real):
			r.fail(from, "%s is the daemon's own, which no tool in the sandbox reads", path)
		default:
			s.Hidden = s.Hidden.Open(real)
		}
	})
	s.Hide = r.paths("sandbox.hide", func(text, path string, from origin) {
		switch {
		case path == "/":
			r.fail(from, "nothing could be read without /")
		case !filepath.IsAbs(text) && !strings.HasPrefix(text+"/", "~/"): // it would hide nothing that is meant
			r.fail(from, "got %s, want a path that begins with / or ~/", text)
		}
		s.Hidden = s.Hidden.Shut(path)
	})
	return s
}

// paths calls do for each path of a key's array, as the file has it and absolute, and returns the
// absolute ones.
func (r *resolver) paths(key string, do func(text, path string, from origin)) (paths []string) {
	v, from := r.file.find(key)
	if v == nil {
		return nil
	}
	for _, text := range r.asTexts(v, from) {
		path := r.absolute(text, from)
		do(text, path, from)
		paths = append(paths, path)
	}
	return paths
}

// ownsPath reports whether a path is the daemon's own or lies in what is, which has no links
// on the way.
func ownsPath(own []string, path string) bool {
	path = proc.Resolve(path)
	return slices.ContainsFunc(own, func(dir string) bool { return within(path, dir) })
}

// within reports whether a path is a folder or lies in it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
