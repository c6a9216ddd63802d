package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// conceal is a jail in which home has a config folder with a key, and tools
// inside of it that may be read.
func conceal(t *testing.T, inWorkdir bool) (j *jail, config string) {
	t.Helper()
	j = imprison(t)
	config = filepath.Join(j.home, ".config", "noused")
	if inWorkdir {
		config = filepath.Join(j.work, ".config", "noused")
	}
	files := map[string]string{
		filepath.Join(config, "environment"):         "KEY=sk-secret",
		filepath.Join(config, "deep", "er"):          "KEY=sk-secret",
		filepath.Join(config, "tools.d", "tool"):     "a tool",
		filepath.Join(filepath.Dir(config), "other"): "not hidden",
		filepath.Join(j.home, "file"):                "not hidden",
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j.spawner.hidden = Hidden{
		Paths:  []string{config, filepath.Join(config, "environment"), filepath.Join(j.home, "missing", "state")},
		Except: []string{filepath.Join(config, "tools.d")},
	}
	view, err := j.Sandboxed(Sandbox{Workdir: j.work, Cache: true})
	if err != nil {
		t.Fatal(err)
	}
	j.view = view
	return j, config
}

func TestASandboxedToolCannotReadWhatIsHidden(t *testing.T) {
	t.Run("beside the workdir", func(t *testing.T) { hiddenFrom(conceal(t, false)) })
	t.Run("in the workdir", func(t *testing.T) { hiddenFrom(conceal(t, true)) })
}

func hiddenFrom(j *jail, config string) {
	for what, script := range map[string]string{
		"by name":                 `cat ` + config + `/environment`,
		"below":                   `cat ` + config + `/deep/er`,
		"by a link":               `ln -s ` + config + ` link; cat link/environment`,
		"by a link to the file":   `ln -s ` + config + `/environment l; cat l`,
		"through the root":        `cat /proc/self/root` + config + `/environment`,
		"through another process": `cat /proc/` + strconv.Itoa(os.Getpid()) + `/root` + config + `/environment`,
		"with dots":               `cd ` + config + `/tools.d && cat ../environment`,
		"by a hard link":          `ln ` + config + `/environment hard && cat hard`,
		"moved into the workdir":  `mv ` + config + `/environment moved && cat moved`,
		"moved to the tools":      `mv ` + config + `/environment ` + config + `/tools.d/x; cat ` + config + `/tools.d/x`,
		"moved with its folder": `mv ` + filepath.Dir(config) + ` ./elsewhere; cat elsewhere/noused/environment ` + config +
			`/environment | grep .`,
		"executed": `sh ` + config + `/environment`,
	} {
		if exit, said := j.run(script); exit.OK() || strings.Contains(said, "sk-secret") {
			j.t.Errorf("%s: it worked, and said %q", what, said)
		}
	}
}

func TestWhatIsBesideTheHiddenCanBeRead(t *testing.T) {
	j, config := conceal(t, false)
	for what, script := range map[string]string{
		"a neighbour":               `cat ` + filepath.Dir(config) + `/other ~/file "$OUT/file"`,
		"an exception":              `cat ` + config + `/tools.d/tool`,
		"the names beside it":       `ls ~ ~/.config /`,
		"the system":                `cat /etc/passwd /proc/self/status > /dev/null && sh -c 'sort < /dev/null'`,
		"what it writes":            `mkdir -p a && echo x > a/b && cat a/b && echo y > c && cat c && mv c a && cat a/c`,
		"its temporary files":       `echo x > "$TMPDIR/t" && cat "$TMPDIR/t"`,
		"its cache":                 `mkdir -p "$XDG_CACHE_HOME/tool" && echo x > "$XDG_CACHE_HOME/tool/x" && cat "$XDG_CACHE_HOME/tool/x"`,
		"its own output, and pipes": `echo x > /dev/stdout && echo x | cat /dev/stdin`,
	} {
		if exit, said := j.run(script); !exit.OK() {
			t.Errorf("%s: %v, it said %q", what, exit, said)
		}
	}
}

// The home folder is where tools of a service work, unless they are told
// otherwise.
func TestAWorkdirWithSomethingHiddenInItCanBeWorkedIn(t *testing.T) {
	j, config := conceal(t, true)
	if !j.canCover() {
		t.Skip("this system lets only root cover a folder")
	}
	for what, script := range map[string]string{
		"new files":           `echo x > new && cat new && mkdir -p a/b && echo y > a/b/c && cat a/b/c && mv a b && cat b/b/c && rm -r b new`,
		"replacing a file":    `echo 1 > f && echo 2 > f.new && mv f.new f && cat f`,
		"beside the hidden":   `echo x > .config/new && cat .config/new .config/other`,
		"an exception":        `cat .config/noused/tools.d/tool`,
		"who one is":          `test "$(id -u)" = ` + strconv.Itoa(os.Geteuid()) + ` && test "$(stat -c %u f)" = "$(id -u)"`,
		"the system":          `ls /proc/self/ /tmp > /dev/null && cat /etc/passwd > /dev/null`,
		"nothing in the cold": `ls .config/noused | grep -v tools.d && exit 1; exit 0`,
	} {
		if exit, said := j.run("touch f;" + script); !exit.OK() {
			t.Errorf("%s: %v, it said %q", what, exit, said)
		}
	}
	for what, script := range map[string]string{
		"undoing the cover":      `umount ` + config,
		"in a namespace":         `unshare -Urm umount ` + config + ` && cat ` + config + `/environment`,
		"writing into it":        `echo x > ` + config + `/environment`,
		"a capability":           `grep -E "^Cap(Eff|Prm|Amb):.*[1-9a-f]" /proc/self/status && test "$(id -u)" != 0`,
		"moving what it lies in": `mv .config away`,
	} {
		if exit, said := j.run(script); exit.OK() {
			t.Errorf("%s: it worked, and said %q", what, said)
		}
	}
	if text, err := os.ReadFile(filepath.Join(config, "environment")); string(text) != "KEY=sk-secret" {
		t.Errorf("got %q, %v", text, err)
	}
}

// Where nothing can be covered, what lies beside the hidden is still there.
func TestWithoutNamespacesTheHiddenStaysHidden(t *testing.T) {
	j, config := conceal(t, true)
	j.view.box.cover = nil
	hiddenFrom(j, config)
	for what, script := range map[string]string{
		"a neighbour":  `cat .config/other`,
		"its folders":  `echo x > sub/x && cat sub/x && rm sub/x`,
		"an exception": `cat .config/noused/tools.d/tool`,
	} {
		if err := os.MkdirAll(filepath.Join(j.work, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		if exit, said := j.run(script); !exit.OK() {
			t.Errorf("%s: %v, it said %q", what, exit, said)
		}
	}
}

func TestAWorkdirThatIsHiddenIsRefused(t *testing.T) {
	j, config := conceal(t, false)
	box := Sandbox{Workdir: config}
	if _, err := j.Sandboxed(box); err == nil || !strings.Contains(err.Error(), "which tools may not read") {
		t.Errorf("got %v", err)
	}
	box.Workdir = filepath.Join(config, "deep") // the user's own wish
	view, err := j.Sandboxed(box)
	if err != nil {
		t.Fatal(err)
	}
	j.view, j.work = view, box.Workdir
	if exit, said := j.run(`cat er; ! cat ../environment`); !exit.OK() {
		t.Errorf("got %v: %s", exit, said)
	}
}

func TestHiddenIsReadAsItWasWritten(t *testing.T) {
	for _, h := range []Hidden{
		{},
		{Paths: []string{"/a", "/b c"}, Except: []string{"/a/x"}, Dots: []string{"/home/me"}},
		{Paths: []string{"/a\nb\n-/c", "/d\n"}},
	} {
		if diff := cmp.Diff(h, ParseHidden(h.String())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestLinksToTheHiddenAreResolved(t *testing.T) {
	dir := Resolve(t.TempDir())
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.MkdirAll(at("dotfiles/config/tools.d"), 0o700),
		os.Symlink("dotfiles/config", at("config")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h := Hidden{Paths: []string{at("config"), at("not/there")}, Except: []string{
		at("dotfiles/config/tools.d"),
		at("config/link.d"), dir,
	}}.resolved()
	want := Hidden{
		Paths:  []string{at("dotfiles/config"), at("not/there")},
		Except: []string{at("dotfiles/config/tools.d")},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for path, hidden := range map[string]bool{
		"dotfiles/config": true, "dotfiles/config/x": true, "dotfiles/config/tools.d/x": false, "dotfiles/configured": false,
		"not/there/x": true, "": false,
	} {
		if h.Covers(at(path)) != hidden {
			t.Errorf("%s: hidden must be %t", path, hidden)
		}
	}
	if slices.Contains(h.readable(), dir) {
		t.Error("the folder above is allowed with all that is in it")
	}
}

// What can be read in something hidden, such as the descriptors of tools, is not a
// tool's to change, also where it works in a folder above: a descriptor that it wrote
// would start anything, outside the sandbox. Where it works itself it may write.
func TestWhatCanBeReadInTheHiddenCannotBeChanged(t *testing.T) {
	j, config := conceal(t, true)
	if !j.canCover() {
		t.Skip("this system lets only root cover a folder")
	}
	tools := filepath.Join(config, "tools.d")
	for what, script := range map[string]string{
		"a new file":        `echo x >` + tools + `/new`,
		"what is there":     `echo x >>` + tools + `/tool`,
		"its removal":       `rm ` + tools + `/tool`,
		"another one in it": `echo x >new && mv new ` + tools + `/tool`,
		"its mode":          `chmod 777 ` + tools + `/tool`,
		"its folder":        `mv ` + tools + ` elsewhere`,
		"as a mount":        `mount -o remount,bind,rw ` + tools + ` && echo x >` + tools + `/new`,
	} {
		if exit, said := j.run(script); exit.OK() {
			t.Errorf("%s: it worked, and said %q", what, said)
		}
	}
	if text, err := os.ReadFile(filepath.Join(tools, "tool")); err != nil || string(text) != "a tool" {
		t.Errorf("got %q %v", text, err)
	}
	view, err := j.Sandboxed(Sandbox{Workdir: tools})
	check(t, err)
	j.view, j.work = view, tools
	if exit, said := j.run(`cat tool && echo x >new && rm new && ! cat ../environment`); !exit.OK() {
		t.Errorf("in the folder itself: %v, it said %q", exit, said)
	}
}

// Of what a path lies in, the innermost counts: what a user hides cannot open what
// the daemon hides, nor what is hidden in a workdir that lies in something hidden.
func TestWhatIsHiddenInAnExceptionIsHidden(t *testing.T) {
	for what, covered := range map[string]bool{"left out": false, "covered": true} {
		t.Run(what, func(t *testing.T) {
			j, config := conceal(t, false)
			if covered && !j.canCover() {
				t.Skip("this system lets only root cover a folder")
			}
			j.work = filepath.Dir(config) // in the home, which is hidden as a whole
			j.spawner.hidden.Paths = append(j.spawner.hidden.Paths, j.home)
			view, err := j.Sandboxed(Sandbox{Workdir: j.work})
			check(t, err)
			if j.view = view; !covered {
				view.box.cover = nil
			}
			hiddenFrom(j, config)
			if exit, said := j.run(`cat other && cat ` + config + `/tools.d/tool && ! cat ../file && ! cat ` + config +
				`/environment`); !exit.OK() {
				t.Errorf("%v, it said %q", exit, said)
			}
		})
	}
}

// What is hidden need not be there: it is hidden when it comes, also where only a
// link to it is there.
func TestWhatComesLaterIsHidden(t *testing.T) {
	t.Run("beside the workdir", func(t *testing.T) { comesLater(conceal(t, false)) })
	t.Run("in the workdir", func(t *testing.T) { comesLater(conceal(t, true)) })
}

func comesLater(j *jail, config string) {
	t, base := j.t, filepath.Dir(filepath.Dir(config))
	at := func(name string) string { return filepath.Join(base, name) }
	check(t, os.MkdirAll(at("dotfiles"), 0o700))
	check(t, os.Symlink("dotfiles/ssh", at(".ssh")))
	j.spawner.hidden.Paths = append(j.spawner.hidden.Paths, at(".ssh"), at(".netrc"), at("new/keys"))
	view, err := j.Sandboxed(Sandbox{Workdir: j.work})
	check(t, err)
	j.view = view
	before := view.View()
	for _, path := range []string{"dotfiles/ssh/id", ".netrc", "new/keys/id"} {
		check(t, os.MkdirAll(filepath.Dir(at(path)), 0o700))
		check(t, os.WriteFile(at(path), []byte("sk-secret"), 0o600))
	}
	if view.View() == before {
		t.Error("a process that was started before is not told from one that was not")
	}
	for _, path := range []string{"dotfiles/ssh/id", ".ssh/id", ".netrc", "new/keys/id"} {
		if _, said := j.run("cat " + at(path)); strings.Contains(said, "sk-secret") {
			t.Errorf("%s can be read: %q", path, said)
		}
	}
}

// A daemon is ready before it knows whether it can cover something: that is found
// out when the first tool starts, as it takes a process.
func TestCoveringIsTriedWhenAToolStarts(t *testing.T) {
	work := t.TempDir()
	helper, started := filepath.Join(t.TempDir(), "helper"), filepath.Join(work, "started")
	if err := os.WriteFile(helper, []byte("#!/bin/sh\necho \"$*\" >> "+started+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := NewSupervisor(helper, zap.NewNop())
	defer s.Close()
	s.Hide(Hidden{Paths: []string{filepath.Join(work, "secret")}})
	view, err := s.Sandboxed(Sandbox{Workdir: work, Weak: true})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(started); err == nil {
		t.Errorf("without a tool, there was started: %s", text)
	}
	if got := view.box.covers(); got {
		t.Error("covered, although the helper cannot")
	}
}

// What lies in a folder that only another user can open needs no cover. One of the
// user's own that is shut does: a tool could open it.
func TestWhatTheUserCannotSeeIsHidden(t *testing.T) {
	j, config := conceal(t, true)
	if os.Geteuid() == 0 || !j.canCover() {
		t.Skip("root sees everything; else this system lets only root cover a folder")
	}
	shut := filepath.Join(j.home, "shut")
	if err := os.Mkdir(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shut, "key"), []byte("KEY=sk-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shut, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(shut, 0o700) })
	others := "/root/.ssh/noused"
	if _, err := os.Lstat(others); errors.Is(err, fs.ErrPermission) {
		j.hide(config, others)
		if exit, said := j.run("cat " + others + " 2>&1; echo x > new && cat new"); !exit.OK() ||
			strings.Contains(said, "KEY") {
			t.Errorf("beside %s: %v, it said %q", others, exit, said)
		}
	}
	j.hide(config, filepath.Join(shut, "key"))
	p, err := j.view.Start(t.Context(), Command{
		Name: "jailed", Path: "/bin/sh",
		Args: []string{"sh", "-c", "chmod 700 " + shut}, Dir: j.work, MaxLine: 1 << 16,
	})
	if err == nil {
		p.Kill()
	}
	if err == nil || !strings.Contains(err.Error(), shut) {
		t.Errorf("beside the user's own: got %v, want it refused for %s", err, shut)
	}
}

// hide has a jail hide these.
func (j *jail) hide(paths ...string) {
	j.t.Helper()
	j.spawner.hidden = Hidden{Paths: paths}
	view, err := j.Sandboxed(Sandbox{Workdir: j.work, Cache: true})
	if err != nil {
		j.t.Fatal(err)
	}
	j.view = view
}

// What is removed while it is being covered hides nothing any more, however the system says so.
func TestAFolderThatIsRemovedMeanwhileNeedsNoCover(t *testing.T) {
	there := t.TempDir()
	for _, no := range []error{unix.ENOENT, unix.EINVAL, unix.EPERM} {
		err := &os.PathError{Op: "cover", Path: there, Err: no}
		if vanished(there, err) {
			t.Errorf("%v: the folder is there, and is left uncovered", no)
		}
		if got, want := vanished(filepath.Join(there, "gone"), err), no != error(unix.EPERM); got != want {
			t.Errorf("%v: got %v of a folder that is gone, want %v", no, got, want)
		}
	}
	removed, err := os.Open(there) // which still finds it, as a path does while the removal goes on
	if err != nil {
		t.Fatal(err)
	}
	defer removed.Close()
	if err := os.Remove(there); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/.", removed.Fd())
	if !goes(path, unix.EINVAL) || goes(path, unix.EPERM) || goes(t.TempDir(), unix.EINVAL) || goes(path, nil) {
		t.Error("a folder goes if it is being removed, and says so")
	}
}

// startsIn runs a shell script that starts in a folder, and returns what it said, "" where it was not started.
func (j *jail) startsIn(view *Supervisor, dir, script string) (said string, err error) {
	j.t.Helper()
	p, err := view.Start(j.t.Context(), Command{
		Name: "where", Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: dir, MaxLine: 1 << 10, Env: os.Environ(),
	})
	if err != nil {
		return "", err
	}
	text, _ := io.ReadAll(p)
	p.Wait()
	return string(text), nil
}

// A link on the way to the folder that a program is to start in, which another session's tool may have put there for a
// moment, opens nothing that is hidden: it was an exception as the folder that the program was in.
func TestWhereAProgramStartsOpensNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		j := set(imprison(t))
		state := filepath.Join(filepath.Dir(j.work), "state")
		secrets := filepath.Join(state, "sessions")
		own := filepath.Join(state, "tree")   // where a session may be that is told so
		keys := filepath.Join(j.work, "keys") // as in a home: Landlock leaves reading to the covers then
		for _, dir := range []string{secrets, keys, filepath.Join(own, "sub"), filepath.Join(j.work, "sub")} {
			check(t, os.MkdirAll(dir, 0o700))
			check(t, os.WriteFile(filepath.Join(dir, "file"), []byte("of "+filepath.Base(dir)), 0o600))
		}
		link := filepath.Join(j.work, "link")
		check(t, os.Symlink(secrets, link))
		j.Hide(Hidden{Paths: []string{state, keys}})
		view, err := j.Sandboxed(Sandbox{Workdir: j.work})
		check(t, err)
		said, err := j.startsIn(view, link, "cat file; cat "+link+"/file; cat "+secrets+"/file; ls -l /proc/self/cwd/")
		if strings.Contains(said, "of sessions") {
			t.Errorf("through a link it starts in what is hidden, and says %q", said)
		}
		if namespaces && (err == nil || !strings.Contains(err.Error(), secrets)) {
			t.Errorf("through a link to what is hidden it starts, %v, and says %q", err, said)
		}
		if said, err := j.startsIn(view, filepath.Join(j.work, "sub"), "cat file"); err != nil || said != "of sub" {
			t.Errorf("in a folder of the workdir it says %q, %v", said, err)
		}
		inside, err := j.Sandboxed(Sandbox{Workdir: own})
		check(t, err)
		if said, err := j.startsIn(inside, filepath.Join(own, "sub"), "cat file; echo x >new && cat new"); err != nil ||
			said != "of subx\n" {
			t.Errorf("in a workdir among what is hidden it says %q, %v", said, err)
		}
	})
}
