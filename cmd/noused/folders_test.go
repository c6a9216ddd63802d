package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// Tools of each protocol that say where they run, and which process they are.
const (
	narratoriaWhere = `#!/bin/sh
read -r call
printf '{"version":"0","type":"asset","assetId":"a","kind":"text","mediaType":"text/plain","path":"here.txt"}\n'
printf '{"version":"0","type":"done","ok":true,"summary":"%s %s"}\n' "$(pwd)" $$
`
	gevalsWhere = `#!/bin/sh
while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	at=$(printf '%s' "$line" | sed 's/.*"workdir":"\([^"]*\)".*/\1/')
	case $line in
	*'"method":"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"name":"g","version":"1","protocolVersion":"0.0.1","operations":{"where":{"description":"d"}}}}\n' "$id" ;;
	*'"method":"execute"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"success":true,"message":"%s %s %s"}}\n' "$id" "$(pwd)" $$ "$at" ;;
	*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id"; exit ;;
	esac
done
`
	flatWhere = `#!/bin/sh
while read -r line; do
	case $line in
	*'"method":"health"'*) echo '{"status":"ok"}' ;;
	*'"method":"describe"'*) echo '{"name":"m","version":"1","kind":"tool","capabilities":["where"]}' ;;
	*) printf '{"ok":true,"result":"%s %s"}\n' "$(pwd)" $$ ;;
	esac
done
`
)

// whereDaemon is a daemon with those tools, and two folders for sessions.
func whereDaemon(t *testing.T, args ...string) (d *daemon, folders [2]string) {
	t.Helper()
	d = unstarted(t, "noused", args...)
	for name, script := range map[string]string{"n": narratoriaWhere, "g": gevalsWhere, "m": flatWhere, "own": flatWhere} {
		proto, more := map[string]string{"n": "narratoria", "g": "gevals"}[name], `,"cwd":"session"`
		if proto == "" {
			proto = "module"
		}
		if name == "own" {
			more = `,"workdir":"."`
		}
		d.write("tools/"+name+".json",
			fmt.Sprintf(`{"name":%q,"kind":"tool","protocol":%q,"description":"d","version":"1","capabilities":["where"],`+
				`"transport":{"type":"stdio","command":["./%s.sh"]}%s%s}`, name, proto, name, more,
				map[bool]string{true: `,"operations":{"where":{"description":"d"}}`}[proto == "narratoria"]), 0o600)
		d.write("tools/"+name+".sh", script, 0o700)
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range folders {
		folders[i] = filepath.Join(top, fmt.Sprint("folder", i))
		if err := errors.Join(os.Mkdir(folders[i], 0o700), os.WriteFile(filepath.Join(folders[i], "here.txt"),
			fmt.Append(nil, "I am ", i), 0o600),
			os.WriteFile(filepath.Join(folders[i], "AGENTS.md"), fmt.Append(nil, "These are the rules of folder ", i, "."),
				0o600)); err != nil {
			t.Fatal(err)
		}
	}
	d.Start()
	return d, folders
}

// session makes a session in a folder.
func (d *daemon) session(workdir string) string {
	d.t.Helper()
	s, err := client.Call(context.Background(), d.dial(), protocol.NewSession, protocol.NewSessionParams{
		Workdir:  workdir,
		Activate: new(bool),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return s.SessionID
}

// extension runs an operation in a session.
func (d *daemon) extension(session, name, arguments string) protocol.ExtensionResult {
	d.t.Helper()
	r, err := client.Call(context.Background(), d.dial(), protocol.ExtensionCommand, protocol.ExtensionCommandParams{
		Scope: protocol.Scope{SessionID: session}, Name: name, Payload: []byte(arguments),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// Everything that a session does takes place in its folder: tools of every
// protocol, the built-in ones, jobs, images, what the model is told (folders.md §1).
func TestASessionLivesInItsFolder(t *testing.T) {
	d, folders := whereDaemon(t)
	ctx := context.Background()
	pids := map[string]bool{}
	for i, folder := range folders {
		id := d.session(folder)
		for range 2 {
			for _, name := range []string{"n.where", "g.where", "m.where"} {
				r := d.extension(id, name, `{}`)
				said := strings.Fields(r.Result)
				if !r.OK || len(said) < 2 || said[0] != folder || name == "g.where" && said[2] != folder {
					t.Fatalf("%s in %s says %+v", name, folder, r)
				}
				if name != "n.where" {
					pids[said[1]] = true
				}
			}
		}
		for call, want := range map[string]string{
			`read {"path":"here.txt"}`:                                fmt.Sprint("I am ", i),
			`bash {"command":"pwd; echo new > made && cat made"}`:     folder + "\nnew",
			`write {"path":"sub/w.txt","content":"x"}`:                "sub/w.txt",
			`bash {"command":"echo x > ` + folders[1-i] + `/stolen"}`: "",
		} {
			name, arguments, _ := strings.Cut(call, " ")
			if r := d.extension(id, name, arguments); r.OK != (want != "") || !strings.Contains(r.Result, want) {
				t.Errorf("%s in %s: %+v", call, folder, r)
			}
		}
		if _, err := os.Stat(filepath.Join(folder, "sub", "w.txt")); err != nil {
			t.Error(err)
		}
		st, err := client.Call(ctx, d.dial(), protocol.GetState,
			protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil || st.Workdir != folder || len(st.Assets) != 2 || len(st.SystemFiles) != 1 ||
			st.SystemFiles[0] != filepath.Join(folder, "AGENTS.md") {
			t.Errorf("got %s, %+v, %q, %v", st.Workdir, st.Assets, st.SystemFiles, err)
		}
		told, err := client.Call(ctx, d.dial(), protocol.GetSystem,
			protocol.GetSystemParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil || !strings.Contains(told.Text, fmt.Sprint("the rules of folder ", i)) ||
			!strings.Contains(told.Text, "working directory: "+folder) ||
			strings.Contains(told.Text, folders[1-i]) {
			t.Errorf("in %s the model is told %s, %v", folder, told.Text, err)
		}
	}
	if len(pids) != 4 {
		t.Errorf("%d processes were asked, want one for each module and folder", len(pids))
	}
	one, two := d.extension(d.session(folders[0]), "own.where", `{}`), d.extension(d.session(folders[1]), "own.where",
		`{}`)
	if !one.OK || one.Result != two.Result || !strings.HasPrefix(one.Result, filepath.Join(d.Dir, "tools")+" ") {
		t.Errorf("a module with a workdir of its own says %+v and %+v, want the same", one, two)
	}
}

// Images that go with a text are looked for in the session's folder, and skills
// are those of its repository.
func TestImagesAndSkillsOfAFolder(t *testing.T) {
	d, folders := whereDaemon(t)
	ctx := context.Background()
	skill := filepath.Join(folders[1], ".agents", "skills", "here")
	if err := errors.Join(os.MkdirAll(skill, 0o700), os.WriteFile(filepath.Join(skill, "SKILL.md"),
		[]byte("---\nname: here\ndescription: Of this folder.\n---\nDo it."), 0o600),
		os.WriteFile(filepath.Join(folders[1], "x.png"), []byte("\x89PNG\r\n\x1a\n and more"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for i, folder := range folders {
		id := d.session(folder)
		_, err := client.Call(ctx, d.dial(), protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: id},
			Text:  "look", Attachments: []protocol.AttachmentParams{{Path: "x.png"}},
		})
		if (err == nil) != (i == 1) {
			t.Errorf("in %s: %v", folder, err)
		}
		list, err := client.Call(ctx, d.dial(), protocol.ListSkills,
			protocol.ListSkillsParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil || len(list.Skills) != i {
			t.Errorf("in %s are the skills %+v, %v", folder, list, err)
		}
	}
}

// A folder that is gone costs its sessions their tools and nothing else; where it
// is there again they work again, and living processes are those of the new one.
func TestAFolderThatIsGone(t *testing.T) {
	d, folders := whereDaemon(t)
	ctx := context.Background()
	id := d.session(folders[0])
	for name, arguments := range map[string]string{"g.where": `{}`, "m.where": `{}`, "bash": `{"command":"pwd"}`} {
		if r := d.extension(id, name, arguments); !r.OK {
			t.Fatalf("%s: got %+v", name, r)
		}
	}
	if err := os.RemoveAll(folders[0]); err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string]string{
		"n.where": `{}`, "g.where": `{}`, "m.where": `{}`, "read": `{"path":"here.txt"}`, "bash": `{"command":"pwd"}`,
	} {
		r := d.extension(id, name, arguments)
		if r.OK || r.Error == nil || r.Error.Code != "workdir_missing" || !strings.Contains(r.Error.Message, folders[0]) {
			t.Errorf("%s: got %+v, %+v", name, r, r.Error)
		}
	}
	if r := d.extension(id, "own.where", `{}`); !r.OK {
		t.Errorf("a module with a workdir of its own: %+v", r)
	}
	scope := protocol.Scope{SessionID: id}
	run := func() {
		t.Helper()
		r, err := client.Call(ctx, d.dial(), protocol.Prompt,
			protocol.PromptParams{Scope: scope, Text: "!bash {\"command\":\"pwd\"}\nso it is"})
		if err != nil || !strings.Contains(r.Result.Output, "workdir_missing") {
			t.Errorf("the run does not go on: %v", err)
		}
	}
	run()
	d.Kill()
	d.Start()
	run()
	if m, err := client.Call(ctx, d.dial(), protocol.GetMessages, protocol.GetMessagesParams{Scope: scope}); err != nil ||
		len(m.Messages) < 4 {
		t.Errorf("it cannot be read: %d messages, %v", len(m.Messages), err)
	}
	if err := os.Mkdir(folders[0], 0o700); err != nil {
		t.Fatal(err)
	}
	if r := d.extension(id, "bash", `{"command":"echo back > again && cat again"}`); !r.OK ||
		!strings.Contains(r.Result, "back") {
		t.Errorf("the folder is there again: %+v, %+v", r, r.Error)
	}
	first := d.extension(id, "g.where", `{}`)
	if err := errors.Join(os.RemoveAll(folders[0]), os.Mkdir(folders[0], 0o700)); err != nil {
		t.Fatal(err)
	}
	if r := d.extension(id, "g.where", `{}`); !r.OK || r.Result == first.Result ||
		!strings.HasPrefix(r.Result, folders[0]+" ") {
		t.Errorf("in another folder of that name runs %+v, before it was %+v", r, first)
	}
	if err := os.RemoveAll(folders[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(ctx, d.dial(), protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: id}); err !=
		nil {
		t.Errorf("it cannot be deleted: %v", err)
	}
}

// A tool that may write above another session's folder does not choose where that
// one's tools may write: a link in the place of the folder is no folder.
func TestAFolderThatBecameALink(t *testing.T) {
	d, folders := whereDaemon(t)
	inner := filepath.Join(folders[0], "inner")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	above, below := d.session(folders[0]), d.session(inner)
	if r := d.extension(below, "bash", `{"command":"pwd"}`); !r.OK {
		t.Fatalf("got %+v", r)
	}
	if r := d.extension(above, "bash", `{"command":"mv inner away && ln -s `+folders[1]+` inner"}`); !r.OK {
		t.Fatalf("got %+v", r)
	}
	for name, arguments := range map[string]string{
		"n.where": `{}`, "g.where": `{}`, "m.where": `{}`, "bash": `{"command":"echo x > stolen"}`,
		"write": `{"path":"stolen","content":"x"}`,
	} {
		r := d.extension(below, name, arguments)
		if r.OK || r.Error == nil || r.Error.Code != "workdir_missing" || !strings.Contains(r.Error.Message, inner) {
			t.Errorf("%s: got %+v, %+v", name, r, r.Error)
		}
	}
	if _, err := os.Stat(filepath.Join(folders[1], "stolen")); err == nil {
		t.Error("a tool has written into a folder that is none of its session's")
	}
}

// However many folders there are, the living processes are bounded, and none
// survives the daemon.
func TestLivingProcessesAreBounded(t *testing.T) {
	testenv.Long(t)
	d, _ := whereDaemon(t)
	top := t.TempDir()
	pids := map[int]bool{}
	for i := range 70 {
		folder := filepath.Join(top, fmt.Sprint(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		id := d.session(folder)
		for _, name := range []string{"g.where", "m.where"} {
			r := d.extension(id, name, `{}`)
			said := strings.Fields(r.Result)
			if !r.OK || len(said) < 2 {
				t.Fatalf("in folder %d: %+v, %+v", i, r, r.Error)
			}
			pid, _ := strconv.Atoi(said[1])
			pids[pid] = true
			alive := 0
			for pid := range pids {
				if unix.Kill(pid, 0) == nil {
					alive++
				}
			}
			if alive > 32+2 {
				t.Fatalf("%d processes of two modules live after %d folders", alive, i+1)
			}
		}
	}
	if len(pids) != 140 {
		t.Errorf("%d processes were asked, want 140", len(pids))
	}
	var living []unix.PollFd
	for pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			defer func() { _ = unix.Close(fd) }()
			living = append(living, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	d.Kill()
	for _, p := range living { // a hang here is the failure
		if _, err := unix.Poll([]unix.PollFd{p}, -1); err != nil && !errors.Is(err, unix.EINTR) {
			t.Error(err)
		}
	}
}

// In a session of a linked worktree changes can be committed, and nothing else of
// the repository's own folder can be written.
func TestCommittingInAWorktree(t *testing.T) {
	d, folders := whereDaemon(t)
	repo, tree := folders[0], folders[0]+"-tree"
	setUp := d.extension(d.session(repo), "bash",
		`{"command":"git init -q && git -c user.name=n -c user.email=e commit -q --allow-empty -m first"}`)
	if !setUp.OK {
		t.Fatalf("got %+v, %+v", setUp, setUp.Error)
	}
	if out, err := exec.Command("git", "-C", repo, "worktree", "add", "-q", tree).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	id := d.session(tree)
	if r := d.extension(id, "bash",
		`{"command":"echo x > f && git add f && git -c user.name=n -c user.email=e commit -q -m second && git log --format=%s"}`); !r.OK || !strings.Contains(r.Result, "second\nfirst") {
		t.Errorf("got %+v, %+v", r, r.Error)
	}
	if r := d.extension(id, "bash", `{"command":"echo x > `+repo+`/stolen"}`); r.OK {
		t.Errorf("the repository's files can be written: %+v", r)
	}
	// Its .git file does not open another place, neither now nor in a later session.
	if r := d.extension(id, "bash", `{"command":"echo 'gitdir: `+folders[1]+`' > .git"}`); !r.OK {
		t.Fatalf("got %+v", r)
	}
	d.Kill()
	d.Start()
	if r := d.extension(d.session(tree), "bash", `{"command":"echo x > `+folders[1]+`/stolen"}`); r.OK {
		t.Errorf("the folder that .git names can be written: %+v", r)
	}
}

// A daemon tells somebody who is not looking, with one JSON object.
func TestNotify(t *testing.T) {
	testenv.Long(t)
	d := unstarted(t, "noused")
	config := filepath.Join(d.Dir, "config.toml")
	d.write("config.toml", "[notify]\ncommand = [\"./told.sh\", \"x y\"]\nafter = \"0s\"\n", 0o600)
	d.write("told.sh", "#!/bin/sh\ncd \"$(dirname \"$0\")\" && { cat; echo \"$1\"; } > out\n", 0o700)
	if err := unix.Mkfifo(filepath.Join(d.Dir, "out"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Args = []string{"--config", config}
	d.Start()
	r, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{Text: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(d.Dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	got := decode[map[string]any](t, []byte(line))
	message, _ := got["message"].(string)
	if got["event"] != "run_end" || got["session_id"] != r.Result.SessionID || got["run_id"] != r.Result.RunID ||
		got["title"] != "hello" ||
		got["workdir"] != d.Dir || got["count"] != 1.0 || !strings.HasPrefix(message, "hello: done") || rest != "x y\n" {
		t.Errorf("got %q", text)
	}
}
