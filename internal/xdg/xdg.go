// Package xdg says where a user's folders are: the home folder, those of the XDG Base
// Directory Specification, and the daemon's own in them.
//
// Every function is pure but for Home, which may read the user database, and may be called
// from any goroutine. The package makes no folder.
package xdg

import (
	"cmp"
	"os/user"
	"path/filepath"
)

// Home is the home folder: from the user database where HOME is not set, as for a service
// of the system.
func Home(getenv func(string) string) string {
	if home := getenv("HOME"); home != "" {
		return home
	}
	if u, err := user.Current(); err == nil {
		return cmp.Or(u.HomeDir, "/")
	}
	return "/"
}

// Config, Data, State and Cache are the base folders. One that is not absolute is ignored,
// as the specification has it.
func Config(getenv func(string) string) string { return base(getenv, "XDG_CONFIG_HOME", ".config") }

func Data(getenv func(string) string) string { return base(getenv, "XDG_DATA_HOME", ".local/share") }

func State(getenv func(string) string) string { return base(getenv, "XDG_STATE_HOME", ".local/state") }
func Cache(getenv func(string) string) string { return base(getenv, "XDG_CACHE_HOME", ".cache") }

func base(getenv func(string) string, variable, underHome string) string {
	if dir := getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(Home(getenv), underHome)
}
