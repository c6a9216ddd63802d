package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"noused/internal/hookfile"
	"noused/internal/lock"
	"noused/internal/model"
	"noused/internal/model/openai"
	"noused/internal/model/wire"
	"noused/internal/session"
	"noused/internal/testenv"
	"noused/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// world is a folder with all that a daemon uses, in order.
type world struct {
	t *testing.T
	Options
	dir string
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // short, so that sockets below it can be bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: dir}
	w.Options = Options{
		Config: w.at("config.toml"), Socket: w.at("run/s"), DefaultSocket: w.at("run/s"), StateDir: w.at("state"),
		Workdir:   dir,
		ToolsDirs: []string{w.at("tools")}, ServersFile: w.at("mcp.json"), Provider: "offline", ModelName: "offline",
		Environ: []string{"PATH=" + w.at("bin") + ":" + os.Getenv("PATH")},
		Home:    w.at("home"), UnitDirs: []string{w.at("units"), w.at("more-units")}, Linger: w.at("linger"), Version: "v1",
		Sandbox: func(*tool.Descriptor) error { return nil }, Confinement: func() (int, bool) { return 9, true },
	}
	w.write("config.toml", "log_level = 'info'\n", 0o600)
	w.write("run/.keep", "", 0o600)
	w.write("linger", "", 0o600)
	w.write("tools/good.json", descriptor("good", "../bin/good"), 0o600)
	w.write("bin/good", "#!/bin/sh\n", 0o700)
	store, err := session.Open(w.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ses-1", "ses-2"} {
		w.session(store, id)
	}
	w.image(store, "ses-2")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// session makes a session with one run that has ended.
func (w *world) session(store *session.Store, id string) {
	w.t.Helper()
	var records []session.Record
	for _, f := range []session.Fact{
		session.Created{SessionID: id},
		session.Input{InputID: "in-1", Kind: "prompt", Command: "prompt", Text: "hello", RunID: "run-1"},
		session.RunStarted{RunID: "run-1"},
		session.TurnStarted{RunID: "run-1", Turn: 1, Kind: "prompt", InputIDs: []string{"in-1"}},
		session.MessageAdded{ID: "m1", RunID: "run-1", InputID: "in-1", Message: model.Message{
			Role: model.User,
			Text: "hello",
		}},
		session.MessageAdded{ID: "m2", ParentID: "m1", RunID: "run-1", Message: model.Message{
			Role: model.Assistant,
			Text: "hello",
		}},
		session.TurnEnded{RunID: "run-1", Turn: 1, StopReason: "end"},
		session.RunEnded{RunID: "run-1", StopReason: "completed"},
	} {
		records = append(records, session.Record{At: t0, Fact: f})
	}
	_, j, err := store.Create(id, records)
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// image adds a message with an image to a session.
func (w *world) image(store *session.Store, id string) {
	w.t.Helper()
	kept, err := store.KeepImages(id,
		[]session.Image{{MediaType: "image/png", Size: 3, Content: strings.NewReader("png")}})
	w.must(err)
	_, j, _, err := store.Load(context.Background(), id)
	w.must(err)
	w.must(j.Append([]session.Record{{At: t0, Fact: session.MessageAdded{
		ID: "m3", ParentID: "m2", RunID: "run-1", Message: model.Message{Role: model.User, Text: "look", Attachments: kept},
	}}}))
	w.must(j.Close())
}

// png is the file of that image.
func (w *world) png() string {
	w.t.Helper()
	found, err := filepath.Glob(w.at("state/sessions/ses-2.files/*.png"))
	w.must(err)
	if len(found) != 1 {
		w.t.Fatalf("got %v, want one image", found)
	}
	return found[0]
}

func descriptor(name, program string) string {
	return fmt.Sprintf(
		`{"name":%q,"kind":"tool","protocol":"gevals","capabilities":[],"transport":{"type":"stdio","command":[%q]}}`, name,
		program)
}

func (w *world) at(path string) string { return filepath.Join(w.dir, path) }

func (w *world) write(name, text string, mode os.FileMode) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(w.at(name)), 0o700))
	w.must(os.WriteFile(w.at(name), []byte(text), mode))
	w.must(os.Chmod(w.at(name), mode))
}

func (w *world) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.at(name))
	w.must(err)
	return string(text)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) listen(name string) *net.UnixListener {
	w.t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.at(name), Net: "unix"})
	w.must(err)
	w.t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// answer has somebody listen on both sockets, with the lock of a daemon, who
// says this line to commands and the right one to readers of events.
func (w *world) answer(line string) {
	w.t.Helper()
	l, err := lock.Acquire(w.Socket + ".lock")
	w.must(err)
	w.t.Cleanup(func() { _ = l.Release() })
	for name, line := range map[string]string{
		"run/s":        line,
		"run/s.events": `{"v":"1","id":"doctor","type":"subscribed","payload":{"epoch":"ep-1"}}` + "\n",
	} {
		ln := w.listen(name)
		done := make(chan struct{})
		go func() { // ended by the cleanup, which waits for it
			defer close(done)
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4<<10))
				_, _ = conn.Write([]byte(line))
				_ = conn.Close()
			}
		}()
		w.t.Cleanup(func() {
			_ = ln.Close()
			<-done
		})
	}
}

// findings returns what is not in order, and what has been mended.
func (w *world) findings(fix bool) (findings []Finding) {
	w.t.Helper()
	o := w.Options
	o.Fix = fix
	failed, err := Run(context.Background(), o, func(f Finding) {
		if f.Status != OK || f.Done != "" {
			findings = append(findings, f)
		}
		if f.Status != OK && f.Fix == "" {
			w.t.Errorf("%+v does not say what to do", f)
		}
		if f.Status == Fail {
			w.t.Logf("FAIL %s: %s", f.Area, f.What)
		}
	})
	w.must(err)
	for _, f := range findings {
		if f.Status == Fail {
			failed--
		}
	}
	if failed != 0 {
		w.t.Errorf("Run counts %d more failures than it tells", failed)
	}
	return findings
}

// snapshot is every file with its mode, time and text.
func (w *world) snapshot() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	w.must(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = info.Mode().String() + info.ModTime().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			all[path] += string(text)
			return err
		}
		return nil
	}))
	return all
}

func TestAllIsWell(t *testing.T) {
	w := newWorld(t)
	if got := w.findings(false); got != nil {
		t.Errorf("got %+v, want nothing to tell", got)
	}
	w.Options.StateDir, w.Options.Socket, w.Options.ToolsDirs, w.Options.Config = w.at("a/b"), w.at("c/d/s"),
		[]string{w.at("none")}, ""
	before := w.snapshot()
	if got := w.findings(true); got != nil {
		t.Errorf("with nothing there: got %+v, want nothing to tell", got)
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("something was made where nothing was to be mended: %s", diff)
	}
}

// Where there are no user namespaces, tools can write to a home folder only in part:
// that is a failure, not a warning.
func TestAHomeThatToolsCannotWriteToIsTold(t *testing.T) {
	w := newWorld(t)
	w.Confinement = func() (int, bool) { return 7, false }
	w.Options.Hidden = []string{w.at("elsewhere/../../key"), w.at("home/.ssh")}
	w.Options.Workdir = w.at("home/project")
	w.must(os.MkdirAll(w.Options.Workdir, 0o700))
	for folder, status := range map[string]Status{"home/project": Warn, "home": Fail} {
		w.Options.Workdir = w.at(folder)
		got := w.findings(false)
		if n := len(got); n == 0 || got[n-1].Status != status {
			t.Errorf("in %s: got %+v, want in the end %s", folder, got, status)
		}
	}
	w.Confinement = func() (int, bool) { return 7, true }
	if got := w.findings(false); got != nil {
		t.Errorf("with namespaces: got %+v", got)
	}
}

// Each row breaks one thing. Without fix exactly that is told, and nothing is
// changed; with fix it is mended, if done says so, or left alone.
func TestWhatIsBroken(t *testing.T) {
	const journal = "state/sessions/ses-1.jsonl"
	for name, c := range map[string]struct {
		breakIt func(w *world)
		status  Status
		area    string
		what    string
		done    string // what fix says it did; "" when it does nothing
		left    string // what is told after that
		check   func(w *world)
	}{
		"torn journal": {
			breakIt: func(w *world) { w.write(journal, w.read(journal)+`{"v":1,"at":"2026`, 0o600) },
			status:  Warn, area: Journals, what: "the last line is torn, 17 bytes from byte ", done: "kept in ",
			left: "1 file of damaged parts",
			check: func(w *world) {
				if text := w.read(journal); !strings.HasSuffix(text, "}\n") {
					w.t.Errorf("the journal still ends in %q", text[len(text)-20:])
				}
				if text := w.read(journal + ".damaged"); !strings.Contains(text, `{"v":1,"at":"2026`) {
					w.t.Errorf("got %q aside, want what was cut off", text)
				}
			},
		},
		"a misspelt field of a descriptor": {
			breakIt: func(w *world) {
				w.write("tools/good.json", strings.Replace(descriptor("good", "../bin/good"), "{", `{"sandbx":"workdir",`, 1), 0o600)
			},
			status: Warn, area: Tools, what: "good.json: sandbx does nothing: there is no such field, did you mean sandbox?",
		},
		"corrupt lines": {
			breakIt: func(w *world) {
				text := strings.SplitAfter(w.read(journal), "\n")
				text[5], text[6] = "\x00\x00\x00\n",
					"{\"v\":1,\"at\":\"2026-01-02T03:04:05Z\",\"type\":\"leaf_set\",\"data\":{\"leaf_id\":\"m9\"}}\n"
				w.write(journal, strings.Join(text, ""), 0o600)
			},
			status: Warn, area: Journals, what: "2 lines are skipped, at byte ",
		},
		"a message that has lost its id": {
			breakIt: func(w *world) {
				w.write(journal, strings.Replace(w.read(journal), `"id":"m1"`, `"ie":"m1"`, 1), 0o600)
			},
			status: Warn, area: Journals, what: "line skipped: it has no id",
		},
		"journal of a newer version": {
			breakIt: func(w *world) {
				w.write(journal, w.read(journal)+`{"v":2,"at":"2026-01-02T03:04:05Z","type":"x","data":{}}`+"\n", 0o600)
			},
			status: Fail, area: Journals, what: "a newer version of noused wrote it",
		},
		"record of a newer version": {
			breakIt: func(w *world) {
				w.write(journal, w.read(journal)+`{"v":1,"at":"2026-01-02T03:04:05Z","type":"asked_again","data":{}}`+"\n", 0o600)
			},
			status: Fail, area: Journals, what: `the session can only be read: `,
		},
		"journal that says nothing": {
			breakIt: func(w *world) { w.write(journal, "", 0o600) },
			status:  Fail, area: Journals, what: "does not say which session it is",
		},
		"torn first line": {
			breakIt: func(w *world) { w.write(journal, `{"v":1`, 0o600) },
			status:  Fail, area: Journals, what: "does not say which session it is",
		},
		"journal under another's name": {
			breakIt: func(w *world) { w.write("state/sessions/ses-3.jsonl", w.read(journal), 0o600) },
			status:  Fail, area: Journals, what: "says that it is session ses-1",
		},
		"name that is no id": {
			breakIt: func(w *world) { w.write("state/sessions/old copy.jsonl", w.read(journal), 0o600) },
			status:  Warn, area: Journals, what: "never read",
		},
		"journal that is a folder": {
			breakIt: func(w *world) { w.must(os.Mkdir(w.at("state/sessions/ses-3.jsonl"), 0o700)) },
			status:  Fail, area: Journals, what: "no regular file",
		},
		"journal that is a fifo": {
			breakIt: func(w *world) { w.must(unix.Mkfifo(w.at("state/sessions/ses-3.jsonl"), 0o600)) },
			status:  Fail, area: Journals, what: "no regular file",
		},
		"draft": {
			breakIt: func(w *world) { w.write("state/sessions/ses-3.jsonl.new", `{"v":1`, 0o600) },
			status:  Warn, area: Journals, what: "1 draft of unfinished sessions and images", done: "removed",
			check: func(w *world) {
				if _, err := os.Stat(w.at("state/sessions/ses-3.jsonl.new")); !errors.Is(err, fs.ErrNotExist) {
					w.t.Errorf("the draft is still there (%v)", err)
				}
			},
		},
		"session that was being made": {
			breakIt: func(w *world) { w.write("state/sessions/ses-3.jsonl", "", 0o600) },
			status:  Warn, area: Journals, what: "1 draft of unfinished sessions and images", done: "removed",
			check: func(w *world) {
				if _, err := os.Stat(w.at("state/sessions/ses-3.jsonl")); !errors.Is(err, fs.ErrNotExist) {
					w.t.Errorf("the journal is still there (%v)", err)
				}
			},
		},
		"missing image": {
			breakIt: func(w *world) { w.must(os.Remove(w.png())) },
			status:  Warn, area: Journals, what: "ses-2.jsonl: 1 image of it is missing, or not as long as it was: ",
		},
		"cut image": {
			breakIt: func(w *world) { w.must(os.Truncate(w.png(), 2)) },
			status:  Warn, area: Journals, what: ".png",
		},
		"image that others may read": {
			breakIt: func(w *world) { w.must(os.Chmod(w.png(), 0o644)) },
			status:  Warn, area: State, what: "1 file or folder in it can be read by others: ", done: "0600",
		},
		"images of no session": {
			breakIt: func(w *world) { w.must(os.Mkdir(w.at("state/sessions/ses-3.files"), 0o700)) },
			status:  Warn, area: Journals, what: "1 folder of images without a journal beside it: ",
		},
		"damaged parts": {
			breakIt: func(w *world) { w.write(journal+".damaged", "x\n", 0o600) },
			status:  Warn, area: Journals, what: "1 file of damaged parts",
		},
		"open state directory": {
			breakIt: func(w *world) { w.must(os.Chmod(w.StateDir, 0o755)) },
			status:  Warn, area: State, what: "open to others (mode 0755)", done: "0700",
		},
		"open files in it": {
			breakIt: func(w *world) {
				w.must(os.Chmod(w.at(journal), 0o644))
				w.must(os.Chmod(w.at("state/sessions"), 0o755))
			},
			status: Warn, area: State, what: "2 files and folders in it can be read by others", done: "0600",
			check: func(w *world) {
				for path, want := range map[string]os.FileMode{journal: 0o600, "state/sessions": 0o700} {
					if info, err := os.Stat(w.at(path)); err != nil || info.Mode().Perm() != want {
						w.t.Errorf("%s: got mode %v, %v; want %v", path, info.Mode(), err, want)
					}
				}
			},
		},
		"state directory that is a file": {
			breakIt: func(w *world) { w.StateDir = w.at("config.toml") },
			status:  Fail, area: State, what: "is not a folder",
		},
		"lock that is a link": {
			breakIt: func(w *world) {
				w.must(os.Remove(w.at("state/lock")))
				w.must(os.Symlink(w.at("config.toml"), w.at("state/lock")))
			},
			status: Fail, area: State, what: "lock of the state directory",
		},
		"audit journal that is a folder": {
			breakIt: func(w *world) { w.must(os.Mkdir(w.at("state/audit.jsonl"), 0o700)) },
			status:  Fail, area: Audit, what: "cannot be written",
		},
		"stale socket": {
			breakIt: func(w *world) {
				ln := w.listen("run/s.events")
				ln.SetUnlinkOnClose(false)
				w.must(ln.Close())
			},
			status: Warn, area: Sockets, what: "nobody listens on it", done: "removed",
			check: func(w *world) {
				if _, err := os.Lstat(w.Socket + ".events"); !errors.Is(err, fs.ErrNotExist) {
					w.t.Errorf("the socket is still there (%v)", err)
				}
			},
		},
		"socket that is a file": {
			breakIt: func(w *world) { w.write("run/s", "", 0o600) },
			status:  Fail, area: Sockets, what: "is not a socket",
		},
		"socket path that is too long": {
			breakIt: func(w *world) { w.Socket = w.at(strings.Repeat("long/", 20) + "s") },
			status:  Fail, area: Sockets, what: "at most 107 can be bound",
		},
		"socket folder that is a file": {
			breakIt: func(w *world) { w.Socket = w.at("config.toml/s") },
			status:  Fail, area: Sockets, what: "config.toml",
		},
		"open socket folder of our own": {
			breakIt: func(w *world) { w.must(os.Chmod(w.at("run"), 0o755)) },
			status:  Warn, area: Sockets, what: "mode 0755", done: "0700",
		},
		"socket folder that all may write to": {
			breakIt: func(w *world) { w.DefaultSocket = w.at("s"); w.must(os.Chmod(w.at("run"), 0o777)) },
			status:  Fail, area: Sockets, what: "run can be written to by everybody (mode 0777)",
		},
		"daemon that hangs up": {
			breakIt: func(w *world) { w.answer("") },
			status:  Fail, area: Sockets, what: "run/s: no answer to ping",
		},
		"daemon of another protocol": {
			breakIt: func(w *world) { w.answer(`{"v":"2","id":"doctor","type":"pong","payload":{},"ok":true}` + "\n") },
			status:  Fail, area: Sockets, what: `it speaks protocol "2"`,
		},
		"daemon of another version": {
			breakIt: func(w *world) {
				w.answer(`{"v":"1","id":"doctor","type":"pong","payload":{"message":"pong","version":"v0"},"ok":true}` + "\n")
			},
			status: Warn, area: Sockets, what: "version v0; this is version v1",
		},
		"something that is no daemon": {
			breakIt: func(w *world) { w.answer("220 mail.example.org ESMTP\n") },
			status:  Fail, area: Sockets, what: "not of this protocol",
		},
		"configuration that all may read": {
			breakIt: func(w *world) { w.must(os.Chmod(w.Config, 0o644)) },
			status:  Warn, area: Configuration, what: "everybody may read", done: "0600",
		},
		"configuration that all may write": {
			breakIt: func(w *world) { w.must(os.Chmod(w.Config, 0o666)) },
			status:  Fail, area: Configuration, what: "everybody may write", done: "0600",
		},
		"descriptor that is wrong": {
			breakIt: func(w *world) { w.write("tools/bad.json", `{"name":"bad","kind":"spoon","capabilities":[]}`, 0o600) },
			status:  Fail, area: Tools, what: `tools/bad.json: kind: got "spoon"`,
		},
		"tool whose name is taken": {
			breakIt: func(w *world) { w.write("tools/second.json", descriptor("good", "../bin/good"), 0o600) },
			status:  Fail, area: Tools, what: `second.json: name: "good" is taken by `,
		},
		"mcp.json that is wrong": {
			breakIt: func(w *world) { w.write("mcp.json", "{\n\"servers\":[]}", 0o600) },
			status:  Fail, area: Tools, what: "mcp.json:2: /servers: want an object with a server for each name",
		},
		"server whose entry is wrong": {
			breakIt: func(w *world) {
				w.write("mcp.json", `{"servers":{"a":{"command":"true"},"b":{"type":"sse","url":"https://h"}}}`, 0o600)
			},
			status: Fail, area: Tools, what: "/servers/b/type: sse is not spoken",
		},
		"server whose variable is not set": {
			breakIt: func(w *world) { w.write("mcp.json", `{"servers":{"b":{"command":"true","args":["${NONE}"]}}}`, 0o600) },
			status:  Fail, area: Tools, what: "/servers/b/args/0: the variable NONE is not set",
		},
		"server without its program": {
			breakIt: func(w *world) { w.write("mcp.json", `{"servers":{"b":{"command":"no-such-program"}}}`, 0o600) },
			status:  Fail, area: Tools, what: "no-such-program: not found in PATH",
		},
		"server whose name is taken": {
			breakIt: func(w *world) { w.write("mcp.json", `{"servers":{"good":{"command":"true"}}}`, 0o600) },
			status:  Fail, area: Tools, what: "the name good is taken by ",
		},
		"server with a field of others": {
			breakIt: func(w *world) { w.write("mcp.json", `{"servers":{"b":{"command":"true","autoApprove":["x"]}}}`, 0o600) },
			status:  Warn, area: Tools, what: `"autoApprove" does nothing here`,
		},
		"mcp.json that others may read": {
			breakIt: func(w *world) { w.write("mcp.json", `{"servers":{}}`, 0o644) },
			status:  Warn, area: Tools, what: "others may read", done: "others cannot any more",
		},
		"tool without its program": {
			breakIt: func(w *world) { w.must(os.Remove(w.at("bin/good"))) },
			status:  Fail, area: Tools, what: "bin/good: no such file",
		},
		"tool that cannot be executed": {
			breakIt: func(w *world) { w.must(os.Chmod(w.at("bin/good"), 0o600)) },
			status:  Fail, area: Tools, what: "is not executable",
		},
		"tool without its interpreter": {
			breakIt: func(w *world) { w.write("bin/good", "#!/usr/bin/env piethon3\n", 0o700) },
			status:  Fail, area: Tools, what: "the interpreter of ",
		},
		"no user namespaces": {
			breakIt: func(w *world) { w.Confinement = func() (int, bool) { return 7, false } },
			status:  Warn, area: Tools, what: "is made of Landlock 7 alone, because this system forbids user namespaces: " +
				"tools have no terminals of their own, and can connect to sockets",
		},
		"no user namespaces, and a newer Landlock": {
			breakIt: func(w *world) { w.Confinement = func() (int, bool) { return 9, false } },
			status:  Warn, area: Tools, what: "tools have no terminals of their own",
		},
		"tool without its sandbox": {
			breakIt: func(w *world) {
				w.write("tools/boxed.json", strings.Replace(descriptor("boxed", "../bin/good"), "{", `{"sandbox":"workdir",`, 1),
					0o600)
				w.Sandbox = func(*tool.Descriptor) error { return errors.New("the kernel has no Landlock") }
			},
			status: Fail, area: Tools, what: "is refused, because its sandbox is not possible: the kernel has no Landlock",
		},
		"tool that may do without its sandbox": {
			breakIt: func(w *world) {
				w.write("tools/boxed.json", strings.Replace(descriptor("boxed", "../bin/good"), "{",
					`{"sandbox":"workdir","sandbox_required":false,`, 1), 0o600)
				w.Sandbox = func(*tool.Descriptor) error { return errors.New("the kernel has no Landlock") }
			},
			status: Warn, area: Tools, what: "a weaker sandbox",
		},
		"tools folder that all may write to": {
			breakIt: func(w *world) { w.must(os.Chmod(w.at("tools"), 0o777)) },
			status:  Fail, area: Tools, what: "every user may put tools into", done: "others cannot any more",
		},
		"provider that is not there": {
			breakIt: func(w *world) { w.Provider, w.ModelName = "module", "good" },
			status:  Fail, area: Model, what: "module/good: no usable descriptor",
		},
		"service without its program": {
			breakIt: func(w *world) {
				w.units(w.at("home/.local/bin/noused"))
			},
			status: Fail, area: Systemd, what: "home/.local/bin/noused: no such file",
		},
		"service without a socket": {
			breakIt: func(w *world) {
				w.units(w.at("bin/good"))
				w.must(os.Remove(w.at("more-units/noused-events.socket")))
			},
			status: Fail, area: Systemd, what: "but not noused-events.socket",
		},
		"service that ends with the login": {
			breakIt: func(w *world) {
				w.units(w.at("bin/good"))
				w.RuntimeDir = w.at("xdg")
				w.write("xdg/systemd/private", "", 0o600)
				w.must(os.Remove(w.at("linger")))
			},
			status: Warn, area: Systemd, what: "when you log out, systemd ends the daemon",
		},
		"agent that the service does not find": {
			breakIt: func(w *world) {
				w.units(w.at("bin/good"))
				w.t.Setenv("PATH", w.at("bin")+":"+os.Getenv("PATH"))
				answers := func(context.Context) (string, error) { return "it", nil }
				w.Agents = []Agent{{Name: "near", Try: answers, Needs: []string{"sh"}}, {
					Name: "far", Try: answers, Needs: []string{"sh", "good"},
				}}
				w.ServicePath = func(context.Context) string { return "/usr/bin:/bin" }
			},
			status: Warn, area: Hosted, what: "far needs good, which is in ",
		},
		"keys that all may read": {
			breakIt: func(w *world) {
				w.units(w.at("bin/good"))
				w.write("home/.config/noused/environment", "KEY=x\n", 0o644)
			},
			status: Warn, area: Systemd, what: "keys of model providers", done: "0600",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.breakIt(w)
			before := w.snapshot()
			got := w.findings(false)
			if len(got) != 1 || got[0].Status != c.status || got[0].Area != c.area || !strings.Contains(got[0].What, c.what) {
				t.Fatalf("got %+v, want one %s of %s that says %q", got, c.status, c.area, c.what)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Fatalf("it was not to be changed: %s", diff)
			}
			got = w.findings(true)
			if c.done == "" {
				if len(got) != 1 || got[0].Status != c.status || got[0].Done != "" {
					t.Errorf("with fix: got %+v, want it told as before", got)
				}
				return
			}
			if len(got) != 1 || got[0].Status != OK || !strings.Contains(got[0].Done, c.done) || got[0].Fix != "" {
				t.Errorf("with fix: got %+v, want that it was done: %s", got, c.done)
			}
			if c.check != nil {
				c.check(w)
			}
			got = w.findings(true)
			if c.left == "" && got != nil || c.left != "" && (len(got) != 1 || !strings.Contains(got[0].What, c.left)) {
				t.Errorf("afterwards: got %+v, want only %q", got, c.left)
			}
		})
	}
}

// units installs the service with this program, in two folders.
func (w *world) units(program string) {
	w.t.Helper()
	w.write("units/noused.service", "[Unit]\nDescription=x\n[Service]\n# a comment\nExecStart=-"+
		strings.Replace(program, w.Home, "%h", 1)+
		" --log-level debug\nEnvironmentFile=-%E/noused/environment\n", 0o600)
	w.write("more-units/noused.service", "[Service]\nExecStart=/nowhere\n", 0o600) // the first folder goes first
	w.write("more-units/noused.socket", "[Socket]\n", 0o600)
	w.write("more-units/noused-events.socket", "[Socket]\n", 0o600)
}

// A process that listens where no daemon is known to run may be systemd, which would
// start one.
func TestAsksNobodyWhoCouldStartADaemon(t *testing.T) {
	w := newWorld(t)
	ln := w.listen("run/s")
	if got := w.findings(true); got != nil {
		t.Errorf("got %+v, want nothing to tell", got)
	}
	raw, err := ln.SyscallConn()
	w.must(err)
	w.must(raw.Control(func(fd uintptr) {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
			t.Errorf("somebody has connected (%d, %v)", n, err)
		}
	}))
}

// What a daemon holds is not mended under its hands.
func TestLeavesAHeldStateDirectoryAlone(t *testing.T) {
	w := newWorld(t)
	const journal = "state/sessions/ses-1.jsonl"
	w.write(journal, w.read(journal)+`{"v":1`, 0o644)
	w.write("state/sessions/ses-3.jsonl.new", `{"v":1`, 0o600)
	l, err := lock.Acquire(w.at("state/lock"))
	w.must(err)
	defer func() { _ = l.Release() }()
	before := w.snapshot()
	got := w.findings(true)
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("it was changed: %s", diff)
	}
	told := fmt.Sprint(got)
	for _, want := range []string{
		fmt.Sprintf("not done: process %d holds the state directory", os.Getpid()), "may be writing it",
		"s is not there, though process",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("got %s, want it to say %q", told, want)
		}
	}
	if strings.Contains(told, "ses-3") {
		t.Errorf("got %s, want the draft left out: a session may just be made", told)
	}
}

func TestProviderModule(t *testing.T) {
	w := newWorld(t)
	w.Provider, w.ModelName = "module", "parrot"
	w.write("tools/parrot.json",
		`{"name":"parrot","kind":"provider","capabilities":["generate"],"transport":{"type":"stdio","command":["../bin/good"]}}`, 0o600)
	w.write("tools/far.json",
		`{"name":"far","kind":"tool","capabilities":[],"transport":{"type":"http","url":"http://127.0.0.1:1/"}}`, 0o600)
	if got := w.findings(false); got != nil {
		t.Errorf("got %+v, want nothing to tell", got)
	}
}

// The model's server is asked for its list, and what it says is told with what
// to do about it, but never the key.
func TestModelServer(t *testing.T) {
	const key = "sk-do-not-tell"
	has := func(names ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer "+key {
				t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
			}
			list := []string{}
			for _, name := range names {
				list = append(list, fmt.Sprintf(`{"id":%q}`, name))
			}
			fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(list, ","))
		}
	}
	refuses := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, "not with ", r.Header.Get("Authorization"))
		}
	}
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		status    Status
		what, fix string
	}{
		"has it": {
			has("gpt-5", "gpt-6"), OK,
			"openai/gpt-5: its server answers and has the model, which reads 400000 tokens, says the catalogue", "",
		},
		"has others": {
			has("a", "gpt-5-mini", "b", "c", "d"), Warn,
			"openai/gpt-5: its server answers, but does not list it; the nearest it has: gpt-5-mini, a, b", "correct the name",
		},
		"has a like one": {
			has("claude-opus-4", "gpt5", "o3-deep-research", "whisper-large"), Warn,
			"the nearest it has: gpt5, ", "correct the name",
		},
		"has none": {has(), Warn, "openai/gpt-5: its server answers, but has no models", "ollama pull"},
		"the wrong key": {
			refuses(401), Fail, "openai/gpt-5: its server wants a key that it knows: 127.0.0.1",
			"nous login openai saves another; MY_KEY",
		},
		"no right": {
			refuses(403), Fail, "403 Forbidden: not with Bearer [redacted]",
			"nous login openai saves another; MY_KEY",
		},
		"no list": {
			refuses(404), Warn,
			"openai/gpt-5: its server answers, but does not tell which models it has: 127.0.0.1", "/v1",
		},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>")
		}, Warn, "does not tell which models", "/v1"},
		"in trouble": {
			refuses(503), Warn, "openai/gpt-5: its server answers with a failure of its own: 127.0.0.1",
			"later",
		},
		"nobody there": {nil, Fail, "openai/gpt-5: its server cannot be reached: 127.0.0.1", "start the server"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			if c.answer == nil {
				server.Close()
			}
			w := newWorld(t)
			w.Provider, w.ModelName, w.KeyVariable = "openai", "gpt-5", "MY_KEY"
			w.Models = func(ctx context.Context) ([]string, error) {
				listed, err := openai.Models(ctx, wire.Options{BaseURL: server.URL + "/v1", APIKey: key})
				return wire.NamesOf(listed), err
			}
			w.Window = func() (int64, string) { return 400_000, "the catalogue" }
			var got Finding
			if _, err := Run(t.Context(), w.Options, func(f Finding) {
				if f.Area == Model {
					got = f
				}
			}); err != nil {
				t.Fatal(err)
			}
			if got.Status != c.status || !strings.Contains(got.What, c.what) || !strings.Contains(got.Fix, c.fix) ||
				(got.Fix == "") != (c.status == OK) {
				t.Errorf("got %+v, want %s: %s; fix: %s", got, c.status, c.what, c.fix)
			}
			if strings.Contains(got.What+got.Fix, key) {
				t.Errorf("got %+v, want nothing of the key", got)
			}
		})
	}
	w := newWorld(t)
	w.Provider, w.ModelName = "openai", "gpt-5"
	w.Models = func(context.Context) ([]string, error) { return nil, errors.New("the variable MY_KEY is not set") }
	if got := w.findings(false); len(got) != 1 || got[0].Status != Fail ||
		got[0].What != "openai/gpt-5: the variable MY_KEY is not set" {
		t.Errorf("got %+v, want that no daemon would start", got)
	}
}

// A daemon's whole past is looked at, a finding for each session that has
// something wrong, and one line for all the rest.
func TestManySessions(t *testing.T) {
	w := newWorld(t)
	text := w.read("state/sessions/ses-1.jsonl")
	for i := range 2000 {
		id := fmt.Sprintf("ses-many-%04d", i)
		w.write("state/sessions/"+id+".jsonl", strings.ReplaceAll(text, "ses-1", id), 0o600)
	}
	w.write("state/sessions/ses-many-0777.jsonl", "", 0o600)
	var all []Finding
	if _, err := Run(context.Background(), w.Options, func(f Finding) { all = append(all, f) }); err != nil {
		t.Fatal(err)
	}
	told := fmt.Sprint(all)
	if !strings.Contains(told, "2002 sessions") || !strings.Contains(told, "ses-many-0777.jsonl does not say") ||
		len(all) > 20 {
		t.Errorf("got %d findings, %.2000s; want the one that is wrong, and the sum", len(all), told)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, w.Options, func(Finding) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was told to stop", err)
	}
}

// Each fallback is listed, with why one would be passed over; so are a project's hooks that
// nobody trusts, and those that were changed since.
func TestFallbacksAndHooks(t *testing.T) {
	w := newWorld(t)
	w.Fallbacks = []Fallback{
		{Model: "ollama/qwen3"},
		{Model: "mistral/large", Provider: "mistral", Err: errors.New("MISTRAL_API_KEY is not set")},
	}
	project := w.at("project")
	w.Folders = []string{project, w.at("plain"), project}
	w.write("plain/.keep", "", 0o600)
	const hook = "[[hook]]\non = \"before_tool\"\ncommand = [\"true\"]\n"
	w.write("project/.noused/config.toml", hook, 0o600)
	told := func() (all []Finding) {
		t.Helper()
		if _, err := Run(t.Context(), w.Options, func(f Finding) {
			if f.Area == Hooks || strings.Contains(f.What, "fallback") {
				all = append(all, f)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	file := w.at("project/.noused/config.toml")
	want := []Finding{
		{Status: OK, Area: Model, What: "fallback 1, ollama/qwen3: can be asked"},
		{
			Status: Warn, Area: Model, What: "fallback 2, mistral/large, is passed over: MISTRAL_API_KEY is not set",
			Fix: "nous login mistral saves its key",
		},
		{
			Status: Warn, Area: Hooks, What: file + " has 1 hook that you do not trust: it does not run",
			Fix: "nous trust, in " + project + ", shows what runs and asks you",
		},
	}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("(-want +got): %s", diff)
	}
	const wrong = "[[hook]]\non = \"before\"\n"
	w.write("project/.noused/config.toml", wrong, 0o600)
	got := told()
	if last := got[len(got)-1]; last.Status != Warn ||
		!strings.Contains(last.What, file+":2: hook.on: there is no \"before\"") ||
		last.Fix != "correct it; nothing of it holds, as you do not trust it" {
		t.Errorf("got %+v of a wrong file that nobody trusts", last)
	}
	w.write("project/.noused/config.toml", hook, 0o600)
	w.must(hookfile.Trust(w.dir, project, []byte(hook), t0))
	want[2] = Finding{Status: OK, Area: Hooks, What: file + " has 1 hook, which you trust"}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("trusted (-want +got): %s", diff)
	}
	w.write("project/.noused/config.toml", hook+hook, 0o600)
	want[2] = Finding{
		Status: Warn, Area: Hooks,
		What: file + " was changed since you trusted it: its 2 hooks do not run, and what they guarded is denied",
		Fix:  "nous trust, in " + project + ", shows what runs and asks you",
	}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("changed (-want +got): %s", diff)
	}
	w.write("project/.noused/config.toml", wrong, 0o600)
	got = told()
	if last := got[len(got)-1]; last.Status != Fail || last.Area != Hooks || !strings.Contains(last.What, "before") ||
		last.Fix != "correct it; what its hooks guarded is denied until then" {
		t.Errorf("got %+v of a file that was trusted and cannot be read, want a failure", last)
	}
}
