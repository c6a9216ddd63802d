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
	Hide    []string    // as the file has it
	Read    []string    // as the file has it
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
	s.Read = r.paths("sandbox.read", func(path string, from origin) {
		switch real := proc.Resolve(path); {
		case within(proc.Resolve(r.home()), real):
			r.fail(from, "%s has all that is hidden in the home folder: name the paths in it that tools may read", path)
		case ownsPath(resolved, real):
			r.fail(from, "%s is the daemon's own, which no tool in the sandbox reads", path)
		default:
			s.Hidden = s.Hidden.Open(real)
		}
	})
	s.Hide = r.paths("sandbox.hide", func(path string, from origin) {
		if path == "/" {
			r.fail(from, "nothing could be read without /")
		}
		s.Hidden = s.Hidden.Shut(path)
	})
	_, from := r.file.find("sandbox.hide")
	for _, path := range s.Hide {
		if !filepath.IsAbs(path) && !strings.HasPrefix(path+"/", "~/") {
			r.fail(from, "got %s, want a path that begins with / or ~/", path) // else it would hide nothing
		}
	}
	return s
}

// paths calls do for each path of a key's array, and returns them as the file has them.
func (r *resolver) paths(key string, do func(path string, from origin)) []string {
	v, from := r.file.find(key)
	if v == nil {
		return nil
	}
	texts := r.asTexts(v, from)
	for _, text := range texts {
		do(r.absolute(text, from), from)
	}
	return texts
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
