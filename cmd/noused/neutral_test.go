package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// pythonSpeaker is a program of the user's, run as python3 -m NAME. It imports what a
// folder can shadow, and speaks whichever protocol it is called for.
const pythonSpeaker = `import base64, json, os, random, sys, tempfile
def say(**event): print(json.dumps(event), flush=True)
mode = sys.argv[1]
where = os.getcwd() + " " + os.environ.get("NOUSED_SESSION_WORKDIR", "-")
for line in sys.stdin:
    r = json.loads(line)
    if mode == "notify":
        open(sys.argv[2], "w").write(where)
    elif mode == "narratoria":
        say(version="0", type="done", ok=True, summary=where)
    elif mode == "module":
        op = r.get("method")
        if op == "health": say(status="ok")
        elif op == "describe": say(name="m", version="1", kind="tool", capabilities=["where"])
        elif r["op"] == "before_turn": say(ok=True, result={"input": r["args"]["input"]})
        elif r["op"] == "transform": say(ok=True, result={"messages": r["args"]["messages"]})
        else: say(ok=True, result=where)
    elif "id" in r:
        answer = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
            "tools/list": {"tools": [{"name": "where", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]},
            "tools/call": {"content": [{"type": "text", "text": where}]},
        }
        if mode == "gevals":
            answer = {"initialize": {"name": "g", "version": "1", "protocolVersion": "0.0.1", "operations": {"where": {"description": "d"}}},
                      "execute": {"success": True, "message": where}}
        say(jsonrpc="2.0", id=r["id"], result=answer.get(r["method"], {}))
`

// hostileRepository makes a folder in which every program of the user's that looks
// around it finds code, which leaves a mark.
func hostileRepository(t *testing.T) (folder, mark string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder, mark = filepath.Join(top, "repository"), filepath.Join(top, "it ran")
	python := fmt.Sprintf("open(%q, 'a').write(__file__ + '\\n')\n", mark)
	shell := fmt.Sprintf("#!/bin/sh\necho \"$0\" >>'%s'\n", mark)
	files := map[string]string{
		".envrc": "echo envrc >>'" + mark + "'\n", ".npmrc": "script-shell=./evil\noffline=true\n",
		".tool-versions": "python ./evil\nnodejs ./evil\n",
		"pyproject.toml": "[tool.uv]\nindex-url = \"http://127.0.0.1:1/\"\n", "evil": shell,
		"package.json":                           `{"name":"r","version":"1.0.0","scripts":{"prepare":"./evil","install":"./evil","preinstall":"./evil"},"bin":{"hello-server":"./evil"}}`,
		"node_modules/hello-server/package.json": `{"name":"hello-server","version":"1.0.0","bin":{"hello-server":"../../evil"}}`,
		"node_modules/.package-lock.json":        `{"name":"r","lockfileVersion":3,"packages":{}}`,
		".git/config":                            "[core]\n\tfsmonitor = ./evil\n", ".git/HEAD": "ref: refs/heads/main\n",
	}
	for _, name := range []string{
		"base64", "json", "random", "tempfile", "os", "sitecustomize", "usercustomize",
		"speaker", "encodings/__init__",
	} {
		files[name+".py"] = python
	}
	for _, name := range []string{
		"node_modules/.bin/hello-server", "bin/hello", "bin/python3", "bin/sh", "hello",
		"python3", "sh",
	} {
		files[name] = shell
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return folder, mark
}

// speakers are the user's programs of every kind, each a module of Python's that is
// found by PYTHONPATH. Further fields go into each of their descriptors.
func (d *daemon) speakers(more string) {
	d.t.Helper()
	if err := exec.Command("python3", "-I", "-c", "pass").Run(); err != nil {
		d.t.Skipf("python3 does not run here: %v", err)
	}
	for _, dir := range []string{"lib", "noused", "tools"} {
		if err := os.MkdirAll(filepath.Join(d.Dir, dir), 0o700); err != nil {
			d.t.Fatal(err)
		}
	}
	d.write("lib/speaker.py", pythonSpeaker, 0o600)
	env := fmt.Sprintf(`"env":{"PYTHONPATH":%q}`, filepath.Join(d.Dir, "lib"))
	entry := func(name, command, more string) string {
		return fmt.Sprintf(`%q: {"command":%s,%s%s}`, name, command, env, more)
	}
	d.write("noused/mcp.json", `{"mcpServers": {`+strings.Join([]string{
		entry("py", `"python3","args":["-m","speaker","mcp"]`, more),
		`"npx": {"command":"npx","args":["-y","hello-server"],"env":{"npm_config_offline":"true","npm_config_cache":"` +
			d.Dir + `/npm"}` + more + `}`,
		`"path": {"command":"/bin/sh","args":["-c","hello"],"env":{"PATH":".:./bin::bin:/usr/bin:/bin"}` + more + `}`,
	}, ",\n")+"}}", 0o600)
	for name, kinds := range map[string][2]string{
		"n": {"narratoria", "tool"}, "g": {"gevals", "tool"}, "m": {"module", "tool"}, "s": {"mcp", "tool"},
		"o": {"module", "orchestrator"}, "c": {"module", "context"}, "h": {"module", "hook"},
	} {
		d.write("tools/"+name+".json",
			fmt.Sprintf(`{"name":%q,"kind":%q,"protocol":%q,"version":"1","description":"d","capabilities":[],`+
				`"transport":{"type":"stdio","command":["python3","-m","speaker",%q]},%s%s%s}`, name, kinds[1], kinds[0], kinds[0],
				env,
				map[bool]string{true: `,"operations":{"where":{"description":"d"}}`}[name == "n"], more), 0o600)
	}
}

// visit opens a session in a folder and does there what people do in one that they have
// just cloned. It returns what each tool says of where it runs.
func (d *daemon) visit(folder string) (said map[string]string) {
	d.t.Helper()
	ctx, c := context.Background(), d.dial()
	s, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{
		Workdir: folder,
		MCPServers: []protocol.MCPServer{{
			Name: "editors", Command: "python3", Args: []string{"-m", "speaker", "mcp"},
			Env: map[string]string{"PYTHONPATH": filepath.Join(d.Dir, "lib")},
		}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	scope := protocol.Scope{SessionID: s.SessionID}
	if _, err := client.Call(ctx, c, protocol.ListTools, protocol.ListToolsParams{Scope: scope}); err != nil {
		d.t.Fatal(err)
	}
	if _, err := client.Call(ctx, c, protocol.Prompt,
		protocol.PromptParams{Scope: scope, Text: "!g.where {}\n!py.where {}"}); err != nil {
		d.t.Logf("in %s: %v", folder, err)
	}
	said = map[string]string{}
	for _, name := range []string{"py", "npx", "path", "n", "g", "m", "s", "editors"} {
		r := d.extension(s.SessionID, name+".where", `{}`)
		said[name] = r.Result
		if !r.OK && r.Error != nil {
			said[name] = r.Error.Message
		}
	}
	return said
}

// A repository that is opened runs nothing of its own outside the sandbox, whichever
// program of the user's is started for it: they start in an empty folder.
func TestAnOpenedRepositoryRunsNothing(t *testing.T) {
	testenv.Long(t)
	here, ranHere := hostileRepository(t)
	there, ranThere := hostileRepository(t)
	t.Chdir(here) // a daemon that is started by hand is started there, and works there
	d := unstarted(t, "noused")
	d.Here = true
	d.speakers("")
	notified := filepath.Join(d.Dir, "notified")
	if err := syscall.Mkfifo(notified, 0o600); err != nil {
		t.Fatal(err)
	}
	told, err := os.OpenFile(notified, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	d.write("noused/config.toml", fmt.Sprintf("[notify]\ncommand = [\"env\", \"PYTHONPATH=%s\", \"python3\", \"-m\", "+
		"\"speaker\", \"notify\", %q]\nafter = \"0s\"\n",
		filepath.Join(d.Dir, "lib"), notified), 0o600)
	d.Start()
	for _, folder := range []string{here, there} {
		for name, where := range d.visit(folder) {
			if name == "npx" || name == "path" { // what they name is nowhere but in the repository
				continue
			}
			cwd, told, _ := strings.Cut(where, " ")
			if entries, err := os.ReadDir(cwd); err != nil || len(entries) > 0 || told != folder {
				t.Errorf("in a session of %s %s runs in %s, which has %v, %v; want an empty folder, and to learn of the session's",
					folder, name, where, entries, err)
			}
		}
	}
	_ = told.SetReadDeadline(time.Now().Add(hangTime))
	if _, err := told.Read(make([]byte, 1)); err != nil {
		t.Errorf("nobody learns of a run's end: %v", err)
	}
	for _, args := range [][]string{
		{"doctor", "--socket", d.Socket, "--state-dir", d.Dir + "/state", "--tools-dir", d.Dir + "/tools"},
		{"extension", "check", "--all", d.Dir + "/tools/g.json"},
		{"extension", "check", "--all", d.Dir + "/tools/n.json"},
		{"extension", "check", "--all", d.Dir + "/tools/m.json"},
		{"extension", "check", "--all", d.Dir + "/tools/s.json"},
	} {
		cmd := exec.Command("noused", args...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+d.Dir, "XDG_RUNTIME_DIR="+d.Dir)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "ok ") {
			t.Errorf("noused %v:\n%s", args, out)
		}
	}
	d.Stop()
	for _, mark := range []string{ranHere, ranThere} {
		if ran, err := os.ReadFile(mark); err == nil {
			t.Errorf("of the repository were run:\n%s", ran)
		}
	}
}

// An entry that says cwd = "session" starts in the session's folder, with what that
// has. It shows, too, that the repositories of these tests do harm.
func TestAnEntryStartsInTheSessionsFolderIfItSaysSo(t *testing.T) {
	testenv.Long(t)
	plain, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder, mark := hostileRepository(t)
	d := unstarted(t, "noused", "--workdir", folder)
	d.speakers(`,"cwd":"session"`)
	d.Start()
	d.visit(folder)
	ran, _ := os.ReadFile(mark)
	wants := []string{"/speaker.py", "/hello\n"}
	if _, err := exec.LookPath("npx"); err == nil {
		wants = append(wants, "./evil\n")
	}
	for _, want := range wants {
		if !strings.Contains(string(ran), want) {
			t.Errorf("%s was not run, only:\n%s", want, ran)
		}
	}
	d = unstarted(t, "noused")
	d.speakers(`,"cwd":"session"`)
	d.Start()
	for name, where := range d.visit(plain) {
		if cwd, _, _ := strings.Cut(where, " "); cwd != plain && name != "npx" && name != "path" && name != "editors" {
			t.Errorf("%s runs in %s, want %s", name, where, plain)
		}
	}
}

// The folder that the daemon is told to work in is one that the user has named: the
// programs of descriptors start there, but no servers, and in no other folder.
func TestToolsStartInTheFolderThatTheDaemonIsToldOf(t *testing.T) {
	testenv.Long(t)
	d := unstarted(t, "noused")
	d.speakers("")
	d.Start()
	other := t.TempDir()
	for _, folder := range []string{d.Dir, other} {
		for name, where := range d.visit(folder) {
			cwd, _, _ := strings.Cut(where, " ")
			if name == "npx" || name == "path" {
				continue
			}
			if want := folder == d.Dir && strings.Contains("ngm", name); (cwd == folder) != want {
				t.Errorf("in a session of %s %s runs in %s; in the session's folder: want %t", folder, name, where, want)
			}
		}
	}
}

// The empty folder is in the runtime folder, unless somebody else could put a
// node_modules above it.
func TestTheEmptyFolderIsBelowClosedOnes(t *testing.T) {
	open := t.TempDir()
	for runtime, want := range map[string]string{
		"/usr": "/usr/noused/empty", "": "/state/empty", "usr": "/state/empty", "/nowhere": "/state/empty",
		open: "/state/empty", "/tmp": "/state/empty",
	} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
		if got := neutralFolder("/state", func(string) string { return runtime }); got != want {
			t.Errorf("with %q as the runtime folder it is %s, want %s", runtime, got, want)
		}
	}
}
