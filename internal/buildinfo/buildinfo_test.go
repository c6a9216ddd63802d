package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestLine(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	date := debug.BuildSetting{Key: "vcs.time", Value: "2026-11-22T07:51:30Z"}
	for _, c := range []struct {
		name, module string
		settings     []debug.BuildSetting
		version      string
		line         string
	}{
		{
			"a release", "v0.3.0",
			[]debug.BuildSetting{commit, date},
			"v0.3.0",
			"nous v0.3.0 (commit 0123456789ab of 2026-11-22, go1.26.8, protocol v1)",
		},
		{
			"a checkout that was changed", "(devel)",
			[]debug.BuildSetting{commit, date, {Key: "vcs.modified", Value: "true"}},
			"devel-0123456789ab",
			"nous devel-0123456789ab (commit 0123456789ab of 2026-11-22, modified, go1.26.8, protocol v1)",
		},
		{"without version control", "(devel)", nil, "devel", "nous devel (commit unknown, go1.26.8, protocol v1)"},
		{"not built as a module", "", nil, "devel", "nous devel (commit unknown, go1.26.8, protocol v1)"},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: c.module}, Settings: c.settings}
		if got := version(info); got != c.version {
			t.Errorf("%s: got version %q, want %q", c.name, got, c.version)
		}
		if got := line("nous", info); got != c.line {
			t.Errorf("%s: got %q, want %q", c.name, got, c.line)
		}
	}
}
