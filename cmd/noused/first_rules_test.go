package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// trap is what a tool in the sandbox makes of its folder: anyone who runs one of these
// outside the sandbox runs ./evil.
const trap = `git init -q . && git config user.email a@example.org && git config user.name a && echo x >x && git add x && git commit -qm x &&
git config core.fsmonitor "$PWD/evil" && git config core.pager ./evil && git config core.hooksPath . && git config alias.st '!./evil' &&
git config filter.f.clean ./evil && git config filter.f.smudge ./evil && git config diff.external ./evil && git config core.sshCommand ./evil &&
echo '* filter=f' >.gitattributes &&
printf '#!/bin/sh\ntouch "$HOME/ran"\nexit 1\n' >evil && chmod 755 evil && cp evil pre-push && cp evil pre-commit &&
printf 'all:\n\t./evil\n' >Makefile && echo '{"scripts":{"test":"./evil"}}' >package.json && echo 'module x' >go.mod &&
printf 'package x\n\nimport ("os/exec"; "testing")\n\nfunc TestX(*testing.T) { exec.Command("./evil").Run() }\n' >x_test.go &&
mkdir -p release schema && echo old >release/it && echo 'old' >schema/a.sql && cp evil df && cp evil ping &&
ln -s release published && ln -s release/it it && ln -s schema/a.sql a && echo rea''dy`

// The rules that docs/approvals.md shows, copied as they are, are no way out for what
// a tool in the sandbox has made of the folder.
func TestTheFirstRulesHoldInAHostileFolder(t *testing.T) {
	page, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(page)
	if rules == nil {
		t.Fatal("docs/approvals.md shows no rules")
	}
	home := filepath.Join(t.TempDir(), "home")
	work, ran := filepath.Join(home, "shop"), filepath.Join(home, "ran")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	d := unstarted(t, "noused")
	d.write("noused/rules.toml", strings.ReplaceAll(string(rules[1]), "/home/me/shop", work), 0o600)
	d.Start()
	c, session := d.dial(), d.session(work)
	b := &besieged{daemon: d, c: c, session: session}
	if said := b.inside(trap); !strings.Contains(said, "ready") {
		t.Fatalf("the folder is not made hostile: %s", said)
	}
	if said := b.inside("./evil; git status; ls $HOME/ran 2>&1"); !strings.Contains(said, "No such file") {
		t.Skipf("no sandbox here: %s", said)
	}
	git := exec.Command("git", "status")
	git.Dir = work
	if _ = git.Run(); os.Remove(ran) != nil {
		t.Fatal("git status outside the sandbox runs nothing: this test proves nothing")
	}

	for _, line := range []string{
		"git status", "git log -1", "git -p log", "git diff", "git st", "git add x", "git fetch ssh://localhost/x",
		"git push", "git commit -am x",
		"make", "npm test", "go test ./...", "./evil", "sh evil", "./df", "df; git status", "df `git status`", "df | ./evil",
		"PATH=. df",
		"cd . && git status", "ping -c 1 $(git status)", "env df", "df > ../.bashrc",
	} {
		asked := d.asks(c, session, outside(line))
		if len(asked.Options) != 2 {
			t.Errorf("%s: offers %+v", line, asked.Options)
		}
		if name, _, _ := strings.Cut(line, " "); (name == "git" || name == "make" || name == "npm" || name == "go") &&
			!strings.Contains(asked.Rule, "runs what files of its folder say") {
			t.Errorf("%s: the question says %q", line, asked.Rule)
		}
		d.answers(c, asked, "deny")
	}
	b.want("!bash", `{"command":"df . && id && uname -a","outside_sandbox":true,"reason":"r"}`, "")
	for _, path := range []string{
		"release/new", "published/new", "./published/../published/it", "it", work + "/it",
		"~/shop/it",
	} {
		b.want("!write", `{"path":"`+path+`","content":"new"}`, "forbidden")
		b.want("!edit", `{"path":"`+path+`","old_text":"old","new_text":"new"}`, "forbidden")
	}
	for _, path := range []string{"schema/a.sql", "a"} {
		if asked := d.asks(c, session, `!edit {"path":"`+path+`","old_text":"old","new_text":"new"}`); !strings.HasPrefix(
			asked.Rule, "ask: edit: schema/*.sql") {
			t.Errorf("%s: asks by %q", path, asked.Rule)
		} else {
			d.answers(c, asked, "deny")
		}
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something of the folder has run outside the sandbox")
	}
	if text, err := os.ReadFile(filepath.Join(work, "release", "it")); err != nil || string(text) != "old\n" {
		t.Errorf("what is released is %q, %v", text, err)
	}
}

// want makes a call that nobody is asked about; code is that of its error, "": none.
func (b *besieged) want(name, arguments, code string) {
	b.t.Helper()
	events := b.events(protocol.SubscribeParams{})
	if _, err := client.Call(b.t.Context(), b.c, protocol.Prompt,
		protocol.PromptParams{
			Scope: protocol.Scope{SessionID: b.session}, Text: name + " " + arguments, Wait: new(bool),
		}); err != nil {
		b.t.Fatal(err)
	}
	got := ""
	end := comes[protocol.ToolEnd](b.t, events)
	await(b.t, events, endOf(end.RunID))
	if end.Error != nil {
		got = end.Error.Code
	}
	if got != code {
		b.t.Errorf("%s %s: got error %q, want %q", name, arguments, got, code)
	}
}
