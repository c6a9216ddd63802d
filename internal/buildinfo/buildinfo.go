// Package buildinfo tells which build of noused a program is: its version,
// commit, date and Go, as the go command has written them into it.
//
// Concurrency: its functions may be called from any goroutine.
//
// It refuses to be told: nothing is set by linker flags, so a build says the
// same no matter who made it.
package buildinfo

import (
	"fmt"
	"runtime/debug"
	"strings"

	"noused/internal/protocol"
)

// Version is the module's version, like v0.3.0. A build from a checkout without
// one is "devel", with the commit behind it if that is known.
func Version() string { return version(read()) }

// Date is the day of the commit, like 2026-11-22, in UTC; "" where it is not known.
func Date() string { return date(read()) }

// Line is what PROGRAM --version prints, without the line end: the program's
// name, the version, the commit and its date (or that they are not known), Go's
// version and the protocol's.
func Line(program string) string { return line(program, read()) }

func read() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{GoVersion: "an unknown Go"}
}

func version(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if commit := commit(info); commit != "" {
		return "devel-" + commit
	}
	return "devel"
}

func line(program string, info *debug.BuildInfo) string {
	built := "commit unknown"
	if commit := commit(info); commit != "" {
		built = "commit " + commit
		if date := date(info); date != "" {
			built += " of " + date
		}
		if setting(info, "vcs.modified") == "true" {
			built += ", modified"
		}
	}
	return fmt.Sprintf("%s %s (%s, %s, protocol v%s)", program, version(info), built, info.GoVersion, protocol.Version)
}

func date(info *debug.BuildInfo) string {
	day, _, _ := strings.Cut(setting(info, "vcs.time"), "T")
	return day
}

// commit is the first twelve digits of the commit's id, "" where it is not known.
func commit(info *debug.BuildInfo) string {
	id := setting(info, "vcs.revision")
	return id[:min(len(id), 12)]
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
