package mcpfile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

const everybodys = `{
  // what I use
  "mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", "${REPO}"], "env": {"TOKEN": "{env.GIT_TOKEN}"}},
    "far": {
      "type": "http", "url": "https://${HOST:-example.org}/mcp", "headers": {"Authorization": "Bearer ${GIT_TOKEN}"},
      "timeout": "5m", "trust": "all", "tools": ["search"], "alwaysAllow": ["search"],
    },
    "off": {"command": "x", "disabled": true, "sandbox": "workdir", "sandbox_write": ["/var/x"]}, /* later */
  },
}
`

func TestParse(t *testing.T) {
	f, err := Parse("/c/mcp.json", []byte(everybodys))
	if err != nil || len(f.Errors) > 0 {
		t.Fatal(err, f)
	}
	want := []Server{
		{
			Name: "git", Command: "uvx", Args: []string{"mcp-server-git", "--repository", "${REPO}"},
			Env:   map[string]string{"TOKEN": "{env.GIT_TOKEN}"},
			Place: Place{"/c/mcp.json", 4, "/mcpServers/git"},
		},
		{
			Name: "far", Type: "http", URL: "https://${HOST:-example.org}/mcp",
			Headers: map[string]string{"Authorization": "Bearer ${GIT_TOKEN}"},
			Timeout: "5m", Trust: "all", Tools: []string{"search"}, Ignored: []string{"alwaysAllow"},
			Place: Place{"/c/mcp.json", 5, "/mcpServers/far"},
		},
		{
			Name: "off", Command: "x", Disabled: true, Sandbox: "workdir", SandboxWrite: []string{"/var/x"},
			Place: Place{"/c/mcp.json", 9, "/mcpServers/off"},
		},
	}
	if !reflect.DeepEqual(f.Servers, want) {
		t.Errorf("got  %+v\nwant %+v", f.Servers, want)
	}
}

// One bad entry is one error, which says where it is; the others are there.
func TestABadEntry(t *testing.T) {
	for entry, want := range map[string]string{
		`"bad": 7`:  "/m:3: /servers/bad: want an object",
		`"bad": {}`: "/m:3: /servers/bad: want a command, or a url",
		`"bad": {"command": "x", "url": "https://h"}`: "/m:3: /servers/bad/url: there is a command too: want one of " +
			"the two",
		`"bad": {"command": 7}`:                           "/m:3: /servers/bad/command: want a string, got number",
		"\"bad\": {\"command\": \"x\",\n\"args\": \"y\"}": "/m:4: /servers/bad/args: want an array of strings, got string",
		`"bad": {"command": "x", "args": ["y", 1]}`:       "/m:3: /servers/bad/args: want a string, got number",
		`"bad": {"command": "x", "env": {"A": 1}}`:        "/m:3: /servers/bad/env: want a string, got number",
		`"bad": {"command": "x", "command": "y"}`:         "/m:3: /servers/bad/command: is there twice",
		`"bad": {"type": "sse", "url": "https://h"}`: "/m:3: /servers/bad/type: sse is not spoken: give the " +
			"server's streamable HTTP URL with \"type\": \"http\", or run a bridge as command, such as npx mcp-remote URL",
		`"bad": {"type": "ws", "url": "https://h"}`: `/m:3: /servers/bad/type: got "ws", want stdio or http`,
		`"bad": {"type": "http", "command": "x"}`: "/m:3: /servers/bad/type: a server of type http has a url, " +
			"and no command",
		`"bad": {"command": "x", "timeout": "1"}`:    `/m:3: /servers/bad/timeout: got "1", want a time such as 30s or 5m`,
		`"bad": {"command": "x", "trust": "most"}`:   `/m:3: /servers/bad/trust: got "most", want all or none`,
		`"bad": {"command": "x", "sandbox": "jail"}`: `/m:3: /servers/bad/sandbox: got "jail", want none or workdir`,
		`"bad": {"url": "https://h", "sandbox": "workdir"}`: "/m:3: /servers/bad/sandbox: a server with a url runs " +
			"elsewhere, and cannot be put in a sandbox",
		`"bad": {"url": "ftp://h/mcp"}`: `/m:3: /servers/bad/url: got "ftp://h/mcp", want one that begins with https:// or http://`,
		`"bad": {"url": "h/mcp"}`:       `/m:3: /servers/bad/url: got "h/mcp", want one that begins with https:// or http://`,
		`"b.d": {"command": "x"}`:       `/m:3: /servers/b.d: the name "b.d" may have letters of English, digits, - and _ only: b-d would do`,
		`"b\u001b[2J": {"command": "x"}`: "/m:3: /servers/b\x1b[2J: the name \"b\\x1b[2J\" may have " +
			"letters of English, digits, - and _ only: b--2J would do",
		`"../x": {"command": "x"}`: `/m:3: /servers/..~1x: the name "../x" may have letters of English, digits, - and _ only: x would do`,
		`"": {"command": "x"}`:     "/m:3: /servers/: the name is empty",
		`"good": {"command": "x"}`: "/m:3: /servers/good: the name is taken by line 2",
	} {
		f, err := Parse("/m", []byte("{\"servers\": {\n\"good\": {\"command\": \"g\"},\n"+entry+
			",\n\"fine\": {\"command\": \"f\"}}}"))
		if err != nil || len(f.Errors) != 1 || f.Errors[0].Error() != want {
			t.Errorf("%s: got %v, %v, want %s", entry, f, err, want)
			continue
		}
		if len(f.Servers) != 2 || f.Servers[0].Command != "g" || f.Servers[1].Command != "f" {
			t.Errorf("%s: the others are %+v", entry, f.Servers)
		}
	}
}

func TestABadFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "/m: not valid JSON: line 1, column 1",
		"{\n\"mcpServers\": {\"a\"}": "/m: not valid JSON: line 2, column 19",
		"[]":                         "/m:1: want an object with the key mcpServers",
		"{\n\"mcpServers\": []}":     "/m:2: /mcpServers: want an object with a server for each name",
		strings.Repeat("[", 1<<19):   "/m: nested deeper than 100 levels",
		`{"mcpServers":` + strings.Repeat(`{"a":`, 200) + strings.Repeat("}", 201): "/m: nested deeper than 100 levels",
		`{"mcpServers":{` + strings.Repeat(`"a":{},`, 300) +
			"}}": "/m:1: /mcpServers: more than 256 servers",
	} {
		if _, err := Parse("/m", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"{}", `{"servers":{}}`, `{"inputs":[]}`, `{"x":"` + strings.Repeat("[", 200) + `"} // ` +
		strings.Repeat("[", 200)} {
		if f, err := Parse("/m", []byte(text)); err != nil || len(f.Servers) > 0 {
			t.Errorf("%.40s: got %v, %v, want nothing", text, f, err)
		}
	}
}

func TestExpand(t *testing.T) {
	f, err := Parse("/c/mcp.json", []byte(everybodys))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"REPO": "/src/${GIT_TOKEN}", "GIT_TOKEN": "s{env.REPO}", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	git, err := f.Servers[0].Expand(lookup)
	if err != nil || git.Args[2] != "/src/${GIT_TOKEN}" || git.Env["TOKEN"] != "s{env.REPO}" {
		t.Errorf("got %+v, %v", git, err)
	}
	if f.Servers[0].Args[2] != "${REPO}" || f.Servers[0].Env["TOKEN"] != "{env.GIT_TOKEN}" {
		t.Errorf("the entry itself has become %+v", f.Servers[0])
	}
	far, err := f.Servers[1].Expand(lookup)
	if err != nil || far.URL != "https://example.org/mcp" || far.Headers["Authorization"] != "Bearer s{env.REPO}" {
		t.Errorf("got %+v, %v", far, err)
	}
	for value, want := range map[string]string{
		"a${EMPTY}b":  "ab",
		"$REPO $ {x}": "$REPO $ {x}",
		"${NONE}":     "/m:1: /servers/s/env/A~1B: the variable NONE is not set in the daemon's environment",
		"{env.NO-NE}": "/m:1: /servers/s/env/A~1B: the variable NO-NE is not set in the daemon's environment",
		"${input:key}": "/m:1: /servers/s/env/A~1B: ${input:key} is no variable of the environment: write ${NAME}, and set " +
			"NAME for the daemon",
		"${NONE:-}": "",
		"${}": "/m:1: /servers/s/env/A~1B: ${} is no variable of the environment: write ${NAME}, and set NAME for " +
			"the daemon",
	} {
		s, err := Server{Command: "x", Env: map[string]string{"A/B": value}, Place: Place{"/m", 1, "/servers/s"}}.Expand(
			lookup)
		got := s.Env["A/B"]
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s is %q, want %q", value, got, want)
		}
	}
}

// A project's file is a stranger's: it is read where it is a file of the user's, and
// short, and nothing waits for it.
func TestAStrangersFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, ProjectName)
	if f, err := ReadProject(folder); f != nil || err != nil {
		t.Errorf("none: got %v, %v", f, err)
	}
	if f, err := ReadProject(filepath.Join(folder, "missing")); f != nil || err != nil {
		t.Errorf("no folder: got %v, %v", f, err)
	}
	for name, c := range map[string]struct {
		put  func() error
		want error
	}{
		"link":   {func() error { return os.Symlink("/etc/passwd", path) }, regular.ErrLink},
		"fifo":   {func() error { return unix.Mkfifo(path, 0o600) }, regular.ErrKind},
		"folder": {func() error { return os.Mkdir(path, 0o700) }, regular.ErrKind},
		"huge": {func() error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		}, regular.ErrLong},
	} {
		if err := c.put(); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProject(folder); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// What is trusted is a folder's file as it was shown, and no other.
func TestTrust(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "noused")
	folder := t.TempDir()
	check := func(folder, hash string, want bool) {
		t.Helper()
		if got, err := Trusted(dir, folder, hash); got != want || err != nil {
			t.Errorf("%s %s: got %t, %v, want %t", folder, hash, got, err, want)
		}
	}
	check(folder, "a", false)
	check(folder, "", false)
	for _, f := range []string{folder, "/gone/by/then"} {
		if err := Trust(dir, f, "a", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	check(folder, "a", true)
	check(folder, "b", false)
	check(filepath.Dir(folder), "a", false)
	if err := Trust(dir, folder, "b", time.Now()); err != nil {
		t.Fatal(err)
	}
	check(folder, "a", false)
	check(folder, "b", true)
	check("/gone/by/then", "a", false)
	info, err := os.Stat(filepath.Join(dir, TrustName))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, TrustName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Trusted(dir, folder, "b"); got || err == nil {
		t.Errorf("a file that cannot be read: got %t, %v", got, err)
	}
	if err := Trust(dir, folder, "b", time.Now()); err == nil {
		t.Error("a file that cannot be read was replaced")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(everybodys)
	f.Add(`{"servers":{"a":{"type":"sse","url":"x"},"b\u0000":{}}}`)
	f.Add("{\"mcpServers\":/*[*/{\"a\":{\"command\":\"\\\"{\"},}}//")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("/m", []byte(text))
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, s := range file.Servers {
			if CheckName(s.Name) != nil || names[s.Name] || (s.Command == "") == (s.URL == "") || s.Place.Line < 1 {
				t.Errorf("%+v", s)
			}
			names[s.Name] = true
			_, _ = s.Expand(func(string) (string, bool) { return "${x", true })
		}
	})
}

func TestRename(t *testing.T) {
	for name, want := range map[string]string{
		"My Server": "My-Server", "io.github.x/y": "io-github-x-y", "…": "server",
		strings.Repeat("é", 99): "server",
	} {
		if got := Rename(name); got != want || CheckName(got) != nil {
			t.Errorf("%s is called %s, want %s", name, got, want)
		}
	}
}
