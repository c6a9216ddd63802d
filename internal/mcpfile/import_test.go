package mcpfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// Each program's own form, and what happens to it.
func TestImport(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"claude": {"claude.json", `{"theme":"dark","projects":{"/x":{"history":[]}},"mcpServers":{
			"git":{"type":"stdio","command":"uvx","args":["mcp-server-git"],"env":{"A":"${B:-c}"},"alwaysAllow":["log"]},
			"files":{"command":"fs"},
			"old":{"type":"sse","url":"https://h/sse"},
			"my server":{"type":"http","url":"https://h/mcp","headers":{"Authorization":"Bearer x"}}}}`, `
files -> files-mcp {"command":"fs"} | is called files-mcp here
git -> git {"command":"uvx","args":["mcp-server-git"],"env":{"A":"${B:-c}"},"type":"stdio"} | without alwaysAllow, which does nothing here
my server -> my-server {"type":"http","url":"https://h/mcp","headers":{"Authorization":"Bearer x"}} | is called my-server here
old -> type: sse is not spoken: give the server's streamable HTTP URL with "type": "http", or run a bridge as command, such as npx mcp-remote URL`},
		"cursor": {
			"mcp.json",
			`{"mcpServers":{"fs":{"command":"npx","args":["-y","fs","${workspaceFolder}","${userHome}/x"],"env":{"K":"${env:KEY}"},"envFile":".env"},"u":{"url":"http://localhost:1/mcp"}}}`, `
fs -> fs {"command":"npx","args":["-y","fs",".","${HOME}/x"],"env":{"K":"${KEY}"},"cwd":"session"} | starts in the session's folder, for ${workspaceFolder}: what lies there can decide which code it runs; without envFile, which does nothing here
u -> u {"url":"http://localhost:1/mcp"}`,
		},
		"VS Code": {"mcp.json", `{
			// asks
			"inputs": [{"type":"promptString","id":"github-token","password":true},],
			"servers": {"gh": {"type":"http","url":"https://api.example/mcp","headers":{"Authorization":"Bearer ${input:github-token}"},},
			"odd": {"command":"x","args":["${command:pick}"]}}, }`, `
gh -> gh {"type":"http","url":"https://api.example/mcp","headers":{"Authorization":"Bearer ${GITHUB_TOKEN}"}} | asks for github-token there: set GITHUB_TOKEN in the daemon's environment
odd -> ${command:pick}: there is nothing like it here`},
		"VS Code settings": {
			"settings.json",
			`{"editor.tabSize":2,"mcp":{"inputs":[],"servers":{"a":{"command":"b"},"c":{"command":"d","cwd":"${workspaceFolder}"},"e":{"command":"f","cwd":"/g/../h"},"i":{"command":"j","cwd":"sub"}}}}`, `
a -> a {"command":"b"}
c -> c {"command":"d","cwd":"session"} | starts in the session's folder, for ${workspaceFolder}: what lies there can decide which code it runs
e -> e {"command":"f","cwd":"/h"}
i -> cwd: cannot be understood`,
		},
		"opencode": {"opencode.jsonc", `{"$schema":"x","mcp":{
			"l":{"type":"local","command":["bun","x","srv"],"environment":{"K":"{env:KEY}"},"enabled":false,"timeout":5000},
			"r":{"type":"remote","url":"https://h/mcp","headers":{"A":"{file:~/.key}"}}}}`, `
l -> l {"command":"bun","args":["x","srv"],"env":{"K":"${KEY}"},"type":"stdio","timeout":"5s","disabled":true}
r -> {file:~/.key}: there is nothing like it here`},
		"codex": {"config.toml", "model = \"x\"\n[mcp_servers.c]\ncommand = \"npx\"\nargs = [\"-y\", \"c7\"]\nenv_vars = " +
			"[\"TOK\"]\ntool_timeout_sec = 90\nstartup_timeout_sec = 20.5\nenabled_tools = [\"a\"]\n[mcp_servers.c.env]\nX = " +
			"\"1\"\n" +
			"[mcp_servers.f]\nurl = \"https://h/mcp\"\nbearer_token_env_var = \"F_TOKEN\"\nhttp_headers = { R = \"eu\" " +
			"}\nenv_http_headers = { S = \"SEC\" }\ncwd = \"/x\"\n", `
c -> c {"command":"npx","args":["-y","c7"],"env":{"TOK":"${TOK}","X":"1"},"timeout":"1m30s","tools":["a"]} | without startup_timeout_sec, which does nothing here
f -> f {"url":"https://h/mcp","headers":{"Authorization":"Bearer ${F_TOKEN}","R":"eu","S":"${SEC}"}} | without cwd, which does nothing here`},
		"odd kinds": {
			"x.json",
			`{"mcpServers":{"a":7,"b":{"command":7},"c":{"command":"x","args":[1]},"d":{"command":"x","env":["A"]},"e":{"command":[]},"f":{"command":"x","timeout":-1},"g":{"command":null}}}`, `
a -> want an object
b -> command: cannot be understood
c -> args: cannot be understood
d -> env: cannot be understood
e -> command: cannot be understood
f -> timeout: cannot be understood
g -> want a command, or a url`,
		},
	} {
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, _, err := Import(path, "/elsewhere")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got strings.Builder
		for _, one := range all {
			if one.Err != nil {
				fmt.Fprintf(&got, "\n%s -> %v", one.From, one.Err)
				continue
			}
			entry, err := json.Marshal(one.Server, json.Deterministic(true))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "\n%s", strings.TrimSuffix(fmt.Sprintf("%s -> %s %s | %s", one.From, one.Server.Name, entry,
				strings.Join(one.Notes, "; ")), " | "))
		}
		if got.String() != c.want {
			t.Errorf("%s: got%s\nwant%s", name, got.String(), c.want)
		}
	}
	for name, text := range map[string]string{
		"a.json": "[]", "b.json": "{", "c.toml": "=",
		"d.json": strings.Repeat("[", 1<<20),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, _, err := Import(path, ""); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, %v", name, all, err)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add("x.json", `{"mcp":{"servers":{"a":{"command":["b"],"timeout":1,"enabled":false}}}}`)
	f.Add("x.toml", "[mcp_servers.a]\nurl='x'\nbearer_token_env_var='Y'\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		path := filepath.Join(t.TempDir(), "x"+filepath.Ext(filepath.Base(name)))
		if os.WriteFile(path, []byte(text), 0o600) != nil {
			return
		}
		all, _, err := Import(path, "/")
		for _, one := range all {
			if err != nil || one.Err == nil && Add(filepath.Join(t.TempDir(), Name), one.Server) != nil {
				t.Errorf("%q: %+v, %v", text, one, err)
			}
		}
	})
}
