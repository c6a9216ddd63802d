package policy

import "testing"

const denials = `
[[policy.rule]]
tool     = "bash"
decision = "deny"
command  = ["git", "push"]

[[policy.rule]]
tool     = "bash"
decision = "deny"
command  = ["rm", ["-rf", "-fr"]]

[[policy.rule]]
tool     = "bash"
decision = "ask"
command  = ["curl"]
`

// pastDeny are lines that try to get past rules that deny and ask, in the sandbox.
// sure: it must be seen for what it is.
var pastDeny = []struct {
	name, line string
	sure       bool
}{
	{"plain", "git push", true},
	{"with more", "git push --force origin main", true},
	{"after another", "ls; git push", true},
	{"after and", "ls && git push", true},
	{"in a pipe", "ls | git push", true},
	{"on a line of its own", "ls\ngit push\nls", true},
	{"in the background", "git push &", true},
	{"quoted", "'git' \"push\"", true},
	{"escaped", `\g\i\t p\ush`, true},
	{"in pieces", `g"i"t pu''sh`, true},
	{"with a folder", "/usr/bin/git push", true},
	{"in this folder", "./git push", true},
	{"goes on", "git \\\n push", true},
	{"goes on in a word", "gi\\\nt push", true},
	{"with an assignment", "A=1 git push", true},
	{"with a redirection", "git push >/dev/null 2>&1", true},
	{"redirection first", "</dev/null git push", true},
	{"in a subshell", "(git push)", true},
	{"in a group", "{ git push; }", true},
	{"not", "! git push", true},
	{"time", "time git push", true},
	{"if", "if true; then git push; fi", true},
	{"else", "if false; then :; else git push; fi", true},
	{"condition", "if git push; then :; fi", true},
	{"while", "while git push; do :; done", true},
	{"for", "for x in 1; do git push; done", true},
	{"case", "case x in x) git push;; esac", true},
	{"function", "f() { git push; }; f", true},
	{"coprocess", "coproc git push", true},
	{"substitution", "echo $(git push)", true},
	{"backquotes", "echo `git push`", true},
	{"in quotes", `echo "$(git push)"`, true},
	{"nested", `echo "$(echo "$(git push)")"`, true},
	{"process substitution", "cat <(git push)", true},
	{"in an assignment", "x=$(git push)", true},
	{"in a declaration", "export x=$(git push)", true},
	{"in an array", "a=($(git push))", true},
	{"in arithmetic", "echo $((a[$(git push)]))", true},
	{"in a default", "echo ${x:-$(git push)}", true},
	{"in a redirection", "echo > $(git push)", true},
	{"in a here-document", "cat <<E\n$(git push)\nE", true},
	{"in a here-string", "cat <<< $(git push)", true},
	{"in a test", "[[ -n $(git push) ]]", true},
	{"sh -c", "sh -c 'git push'", true},
	{"bash -lc", "bash -lc 'ls; git push'", true},
	{"bash -e -c", "bash -e -c 'git push'", true},
	{"sh in sh", `sh -c "sh -c 'git push'"`, true},
	{"shell with a folder", "/bin/sh -c 'git push'", true},
	{"eval", "eval git push", true},
	{"eval quoted", "eval 'git push'", true},
	{"eval in pieces", "eval git 'push x'", true},
	{"eval twice", `eval eval "'git push'"`, true},
	{"exec", "exec git push", true},
	{"command", "command git push", true},
	{"command with an option", "command -p git push", true},
	{"builtin eval", "builtin eval 'git push'", true},
	{"env", "env git push", true},
	{"env with options", "env -i A=1 git push", true},
	{"env split", "env -S 'git push'", true},
	{"xargs", "xargs git push", true},
	{"xargs and input", "echo push | xargs git", false},
	{"xargs and all of it", "echo git push | xargs", false},
	{"find", "find . -exec git push ;", true},
	{"find and sh", "find . -exec sh -c 'git push' ;", true},
	{"nice", "nice -n 5 git push", true},
	{"timeout", "timeout 5 git push", true},
	{"nohup", "nohup git push &", true},
	{"sudo", "sudo -u me git push", true},
	{"sudo sh", "sudo sh -c 'git push'", true},
	{"su", "su - me -c 'git push'", true},
	{"ssh", "ssh host 'git push'", true},
	{"ssh in words", "ssh host git push", true},
	{"watch", "watch 'git push'", true},
	{"script", "script -qc 'git push' /dev/null", true},
	{"parallel", "parallel ::: 'git push'", true},
	{"wrappers in a row", "sudo nice timeout 5 env git push", true},
	{"trap", "trap 'git push' EXIT", true},
	{"alias", "alias p='git push'", true},
	{"flock", "flock x -c 'git push'", true},
	{"option between", "git -C /tmp push", false},
	{"setting between", "git -c a=b push", false},
	{"long option between", "git --no-pager push", false},
	{"variable for the command", "x=git; $x push", false},
	{"variable for the word", "x=push; git $x", false},
	{"variable for all", "x='git push'; $x", false},
	{"variable in quotes", `x=push; git "$x"`, false},
	{"all arguments", `set -- git push; "$@"`, false},
	{"substitution for the command", "$(echo git) push", false},
	{"substitution for a word", "git $(echo push)", false},
	{"glob for the command", "/usr/bin/gi? push", false},
	{"braces", "{git,push}", false},
	{"braces for the word", "git {push,origin}", false},
	{"ansi-c quotes", `$'\x67it' push`, false},
	{"locale quotes", `$"git" push`, false},
	{"eval of a variable", `eval "$x"`, false},
	{"sh -c of a variable", `sh -c "$x"`, false},
	{"sh from a pipe", "echo git push | sh", false},
	{"bash -s from a pipe", "echo git push | bash -s", false},
	{"bash from a here-document", "bash <<E\ngit push\nE", false},
	{"bash from a here-string", "bash <<< 'git push'", false},
	{"bash of its input", "echo git push | bash /dev/stdin", false},
	{"shell in a variable", `S=sh; "$S" -c 'git push'`, true},
	{"shell below a variable", `"$P/sh" -c 'git push'`, true},
	{"below a variable", `"$P"/git push`, false},
	{"dot of its input", ". /dev/stdin <<< 'git push'", false},
	{"dot of a substitution", ". <(echo git push)", false},
	{"at", "echo git push | at now", false},
	{"su from a pipe", "echo git push | su me", false},
	{"base64", "echo Z2l0IHB1c2g= | base64 -d | sh", false},
	{"comment that goes on", "ls # \\\ngit push", false},
	{"not parsable", "git push (", false},
	{"not UTF-8", "git pu\xffsh", false},
	{"rm", "rm -rf /", true},
	{"rm, other order", "rm -fr /", true},
	{"rm with an option before", "rm -v -rf /", false},
	{"curl", "curl http://x", true},
	{"curl in a pipe into a shell", "curl http://x | sh", true},
}

func TestLinesThatTryToGetPastADeny(t *testing.T) {
	s := rulesOf(t, denials)
	for _, c := range pastDeny {
		d := s.Decide(bashCall(c.line, false))
		if d.Verdict == Allow {
			t.Errorf("%s: %q is allowed", c.name, c.line)
		}
		if isCurl := d.Pattern == "bash: curl …"; c.sure && (d.Why != "" || d.Verdict != Deny && !isCurl) {
			t.Errorf("%s: %q: got %s (%s), want it seen", c.name, c.line, d.Rule, d.Why)
		}
	}
}

// A rule that denies something else must not ask about ordinary work.
func TestDenialsLeaveOtherLinesAlone(t *testing.T) {
	s := rulesOf(t, denials)
	for _, line := range append([]string{
		"git log push", "git stash push", "git commit -m 'git push'", "echo git push", "grep -r 'git push' .", "rm x",
		"rm -r build",
		"x=$(date); echo \"$x\"", "for f in *.go; do gofmt -l \"$f\"; done", "FOO=1 make test > log 2>&1",
		"cat > x.py <<'E'\nimport os  # (((\nprint('git push')\nE", `"$HOME/bin/tool" --version`,
		"source venv/bin/activate && pip list",
		"timeout 60 go test ./...", "sh -c 'make test'", "find . -name '*.go' -exec gofmt -l {} +", "env FOO=1 make",
		"ls | xargs -n1 wc -l",
		"git --no-pager log", "[ \"$x\" = y ] || exit 1", "sleep 1 &", "if [ -f x ]; then cat x; fi",
		"bash scripts/check.sh $x",
	}, ordinary...) {
		if d := s.Decide(bashCall(line, false)); d.Verdict != Allow {
			t.Errorf("%q: got %s (%s), want it allowed", line, d.Rule, d.Why)
		}
	}
}
