package tool

import (
	"strings"
	"testing"

	"noused/internal/mcpfile"
)

// Where the program of a descriptor starts: only what is confined, or says so, finds the
// session's folder around it.
func TestWhereAProgramStarts(t *testing.T) {
	for more, want := range map[string]string{
		``:                     "", // the empty folder
		`,"cwd":"session"`:     "/work",
		`,"workdir":"/own"`:    "/own",
		`,"workdir":"own"`:     "/here/own",
		`,"sandbox":"workdir"`: "/work",
		`,"sandbox":"none"`:    "",
		`,"sandbox":"workdir","sandbox_required":false`: "",

		`,"cwd":"/work"`:                   `cwd: got "/work", want "session"; workdir names another folder`,
		`,"cwd":"session","workdir":"own"`: "cwd: there is a workdir too: want one of the two",
	} {
		d, err := ParseDescriptor([]byte(
			`{"name":"x","kind":"tool","capabilities":[],"transport":{"type":"stdio","command":["/bin/sh"]}`+more+`}`), "/here",
			"/work", nil)
		if err != nil {
			if err.Error() != want {
				t.Errorf("%s: got %v, want %s", more, err, want)
			}
			continue
		}
		if got := starts(d); got != want {
			t.Errorf("%s: starts in %q, want %q", more, got, want)
		}
	}
	for cwd, want := range map[string]string{
		"": "", "session": "/work", "/own": "/own", "own": "/here/own",
		"${WHERE}/x": "/there/x",
	} {
		d, err := EntryDescriptor(mcpfile.Server{Name: "x", Command: "sh", Cwd: cwd}, "/here", "/work",
			[]string{"WHERE=/there"})
		if err != nil {
			t.Fatal(err)
		}
		if got := starts(d); got != want {
			t.Errorf("cwd %s: starts in %q, want %q", cwd, got, want)
		}
	}
}

// starts is where a descriptor's program starts, "" for the empty folder.
func starts(d *Descriptor) string {
	if d.Neutral {
		return ""
	}
	return d.Workdir
}

// A program that starts in the empty folder is told the session's.
func TestAProgramIsToldTheSessionsFolder(t *testing.T) {
	dir := t.TempDir()
	for more, told := range map[string]bool{``: true, `,"cwd":"session"`: false} {
		d, err := ParseDescriptor([]byte(
			`{"name":"x","kind":"tool","capabilities":[],"transport":{"type":"stdio","command":["/bin/sh"]}`+more+`}`), "/", "/",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.In(dir).Command()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(c.Env, "\n"), WorkdirVariable+"="+dir); got != told || (c.Dir == "") != told {
			t.Errorf("%s: starts in %q with %q", more, c.Dir, c.Env)
		}
	}
}
