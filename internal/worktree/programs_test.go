package worktree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// meanwhile has a job of a session run these lines of sh right before each git that is run
// while do is: the worst moment that it could find. $* are git's arguments.
func meanwhile(t *testing.T, lines string, do func()) {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin, path := folder(t), os.Getenv("PATH")
	write(t, filepath.Join(bin, "git"), fmt.Sprintf("#!/bin/sh\nPATH='%s'\n%s\nexec '%s' \"$@\"\n", path, lines, git))
	t.Setenv("PATH", bin+":"+path)
	do()
	t.Setenv("PATH", path)
}

// evil is a program that says in ran that it was run, and takes what it is given as it is.
func evil(t *testing.T, ran string) string {
	path := filepath.Join(folder(t), "program")
	write(t, path, "#!/bin/sh\necho \"$0 $*\" >>"+ran+"\ncat\n")
	return path
}

// hostile is a script for meanwhile: git's own question for the configuration has the answer
// that was true, and all others read one that names the program.
func (b *bench) hostile(ran string) string {
	b.t.Helper()
	config, kept := filepath.Join(b.main, ".git/config"), filepath.Join(folder(b.t), "config")
	text, err := os.ReadFile(config)
	if err != nil {
		b.t.Fatal(err)
	}
	write(b.t, kept, string(text))
	named := evil(b.t, ran)
	write(b.t, kept+"-evil", string(text)+strings.ReplaceAll(`[filter "x"]
	clean = EVIL
	smudge = EVIL
[log]
	showSignature = true
[gpg]
	program = EVIL
[merge "x"]
	driver = EVIL %A
[core]
	sshCommand = "EVIL </dev/null; :"
[hook "x"]
	event = reference-transaction
	command = EVIL </dev/null
`, "EVIL", named))
	b.put(b.main, ".git/info/attributes", "* filter=x merge=x\n")
	return "case \" $* \" in *' config '*) cp " + kept + " " + config + ";; *) cp " + kept + "-evil " + config + ";; esac"
}

func quiet(t *testing.T, ran string) {
	t.Helper()
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("this was run:\n%s", text)
	}
}

// A signature is not looked at: the repository's configuration says which program does that.
func TestNoSignatureIsChecked(t *testing.T) {
	b := newBench(t)
	ran := filepath.Join(folder(t), "ran")
	text := filepath.Join(folder(t), "commit")
	write(t, text, "tree "+run(t, b.tree.Dir, "write-tree")+"\nparent "+run(t, b.tree.Dir, "rev-parse", "HEAD")+
		"\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n AAAA\n"+
		" -----END PGP SIGNATURE-----\n\nthe subject\n")
	run(t, b.tree.Dir, "update-ref", "refs/heads/topic", run(t, b.tree.Dir, "hash-object", "-t", "commit", "-w", text))
	run(t, b.tree.Dir, "config", "log.showSignature", "true")
	run(t, b.tree.Dir, "config", "gpg.program", evil(t, ran))
	b.work("a", "topic\n")
	l, err := Plan(t.Context(), b.request(Rebase))
	if err != nil || l.Subject != "the subject" {
		t.Errorf("got %+v, %v", l, err)
	}
	quiet(t, ran)
}

// What a session writes to the configuration once it was judged changes nothing.
func TestAProgramThatIsNamedMeanwhile(t *testing.T) {
	b := newBench(t)
	ran, own := filepath.Join(folder(t), "ran"), filepath.Join(folder(t), "gpg")
	write(t, own, "#!/bin/sh\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho mine\n")
	b.put(filepath.Dir(own), "gitconfig", "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = "+own+"\n")
	b.work("b", "b\ntopic\n")
	b.work("new", "new\n")
	b.commit(b.tree.Dir, "topic")
	b.work("dir/c", "not committed\n")
	b.put(b.main, "b", "main\nb\n")
	b.commit(b.main, "main")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(filepath.Dir(own), "gitconfig"))
	meanwhile(t, b.hostile(ran), func() {
		_, err := Plan(t.Context(), b.request(Merge))
		var conflict *ConflictError // no driver is named, and what git does itself ends in none
		if err != nil && !errors.As(err, &conflict) {
			t.Error(err)
		}
		b.work("b", "b\n")
		if _, err := Land(t.Context(), b.request(Squash)); err != nil {
			t.Error(err)
		}
	})
	quiet(t, ran)
	if out := run(t, b.main, "cat-file", "commit", "main"); !strings.Contains(out, "gpgsig mine") {
		t.Errorf("it is not signed as the user has it:\n%s", out)
	}
	b.has(b.main, "dir/c", "not committed\n")
	meanwhile(t, b.hostile(ran), func() {
		if err := Remove(t.Context(), b.tree.Dir, b.home); err != nil {
			t.Error(err)
		}
	})
	quiet(t, ran)
}

// A landing that was ended in the middle is finished by gits that run nothing either.
func TestAProgramThatIsNamedBeforeALandingIsFinished(t *testing.T) {
	b := newBench(t)
	ran := filepath.Join(folder(t), "ran")
	b.work("a", "topic\n")
	l, err := open(t.Context(), b.request(Squash))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.halfway(l, 5)
	l.close()
	meanwhile(t, b.hostile(ran), func() {
		if _, err := Plan(t.Context(), b.request(Squash)); !errors.Is(err, ErrNothingToLand) {
			t.Errorf("got %v", err)
		}
	})
	quiet(t, ran)
	b.has(b.main, "a", "topic\n")
}

// git would ask a repository in the worktree for its state, and that runs what it names.
func TestASubmoduleThatComesMeanwhile(t *testing.T) {
	b := newBench(t)
	ran, kept := filepath.Join(folder(t), "ran"), filepath.Join(folder(t), "sub")
	run(t, b.main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", repo(t, "sub"), "sub")
	b.commit(b.main, "with a submodule")
	run(t, b.tree.Dir, "merge", "-q", "main")
	run(t, ".", "clone", "-q", filepath.Join(b.main, "sub"), kept)
	run(t, kept, "config", "filter.x.clean", evil(t, ran))
	b.put(kept, ".git/info/attributes", "* filter=x\n")
	b.work("a", "topic\n")
	sub := filepath.Join(b.tree.Dir, "sub")
	lines := "rm -rf " + sub + "/.git\ncase \" $* \" in *' ls-files '*) ;; *) cp -r " + kept + "/. " + sub + " ;; esac"
	meanwhile(t, lines, func() {
		if _, err := Land(t.Context(), b.request(Squash)); err != nil {
			t.Error(err)
		}
	})
	quiet(t, ran)
	b.has(b.main, "a", "topic\n")
	if err := os.RemoveAll(filepath.Join(sub, ".git")); err != nil {
		t.Fatal(err)
	}
	run(t, b.tree.Dir, "reset", "-q", "--hard")
	wantError(t, Remove(t.Context(), b.tree.Dir, b.home), "git removes no worktree with submodules")
}

// A push reads the configuration that was judged, and goes where it was said.
func TestAPushGoesWhereItWasSaid(t *testing.T) {
	b := newBench(t)
	ran, far := filepath.Join(folder(t), "ran"), filepath.Join(folder(t), "me/shop.git")
	run(t, ".", "init", "-q", "--bare", far)
	ssh := filepath.Join(folder(t), "ssh")
	write(t, ssh, "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n")
	b.put(filepath.Dir(ssh), "gitconfig", "[core]\n\tsshCommand = "+ssh+"\n")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(filepath.Dir(ssh), "gitconfig"))
	run(t, b.main, "remote", "add", "origin", "ssh://me@example.com"+far)
	b.work("a", "topic\n")
	_, to, err := PlanPush(t.Context(), b.request(Squash))
	if err == nil {
		_, err = Commit(t.Context(), b.request(Squash))
	}
	if err != nil {
		t.Fatal(err)
	}
	meanwhile(t, b.hostile(ran), func() {
		if err := Push(t.Context(), b.request(Squash), "topic", to); err != nil {
			t.Error(err)
		}
	})
	quiet(t, ran)
	if got, want := run(t, far, "rev-parse", "topic"), run(t, b.main, "rev-parse", "origin/topic"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	run(t, b.main, "config", "--unset", "core.sshCommand")
	run(t, b.main, "remote", "set-url", "origin", "ssh://me@elsewhere.example.com"+far)
	wantError(t, Push(t.Context(), b.request(Squash), "topic", to), "was "+to.URL+", and is ssh://me@elsewhere.")
}

// What is neither a key nor a name of a program is as the repository has it, included files
// and a worktree's own configuration too.
func TestTheRepositorysConfigurationHolds(t *testing.T) {
	b := newBench(t)
	run(t, b.main, "config", "extensions.worktreeConfig", "true")
	b.put(b.main, ".git/more", "[core]\n\tautocrlf = input\n[x \"a.\\\"b\\\\\"]\n\tempty\n\ty = \" a\\tb\\n;\\\"\\\\\"\n")
	run(t, b.main, "config", "include.path", "more")
	run(t, b.tree.Dir, "config", "--worktree", "user.name", "Own")
	b.work("new", "one\r\ntwo\r\n")
	if err := os.Chmod(filepath.Join(b.tree.Dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := open(t.Context(), b.request(Squash))
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.tree.git(t.Context(), "config", "--null", "--get-regexp", `^x\.`)
	if want := "x.a.\"b\\.empty\x00x.a.\"b\\.y\n a\tb\n;\"\\\x00"; err != nil || list != want {
		t.Errorf("got %q, %v, want %q", list, err, want)
	}
	l.close()
	b.land(Squash)
	if got := run(t, b.main, "cat-file", "blob", "main:new"); got != "one\ntwo" {
		t.Errorf("main has %q", got)
	}
	if got := run(t, b.main, "log", "-1", "--format=%an", "main"); got != "Own" {
		t.Errorf("got %q", got)
	}
	if got := run(t, b.main, "reflog", "-1", "--format=%gs", "main"); got != "nous land: topic" {
		t.Errorf("the reflog has %q", got)
	}
	b.clean()
}
