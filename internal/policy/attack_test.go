package policy

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// set makes a set of the text of a rules file.
func rulesOf(t testing.TB, text string) *Set {
	t.Helper()
	src, err := ReadRules("rules.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(src)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bashCall is a call of bash in /home/me/proj.
func bashCall(line string, outside bool) Call {
	args, err := json.Marshal(map[string]any{"command": line, "outside_sandbox": outside}, json.Deterministic(true))
	if err != nil { // not UTF-8: as far as JSON can have it
		args = []byte(`{"command":0}`)
	}
	return Call{Tool: "bash", Module: "files", Kind: Builtin, Workdir: "/home/me/proj", Home: "/home/me", Arguments: args}
}

// sensible are rules as a person might have them, for work that needs no question.
const sensible = `
[[policy.rule]]
tool      = "bash"
decision  = "allow"
command   = ["git", ["status", "diff", "log", "show", "add", "commit", "fetch", "branch", "stash", "rev-parse", "blame"]]
match     = ["git status", "git diff -w"]
not_match = ["git push"]

[[policy.rule]]
tool     = "bash"
decision = "allow"
command  = ["go", ["build", "test", "vet", "run", "list", "version", "mod"]]

[[policy.rule]]
tool     = "bash"
decision = "allow"
command  = [["ls", "cat", "head", "tail", "wc", "grep", "rg", "find", "fd", "echo", "printf", "pwd", "sort", "uniq", "cut", "tr", "sed", "diff", "which", "true", "false", "cd", "test", "[", "date", "stat", "file", "tree", "mkdir", "touch"]]

[[policy.rule]]
tool     = "bash"
decision = "allow"
command  = [["make", "cargo", "pytest", "npm"], ["test", "build", "check", "run", "-j8", "install", "ci"]]

[[policy.rule]]
tool     = "bash"
decision = "allow"
command  = ["bash", "scripts/check.sh"]

[[policy.rule]]
tool     = "bash"
decision = "allow"
command  = ["./configure"]
workdir  = "/home/me/proj"
`

// ordinary lines must not ask outside the sandbox under sensible rules.
var ordinary = []string{
	"git status",
	"git diff -w",
	"git diff --stat HEAD~1",
	"git log --oneline -20",
	"git log --oneline main..HEAD",
	"git log --format='%h %s' -5",
	"git log --author=me --since=2.weeks",
	"git show HEAD^",
	"git show HEAD:internal/policy/line.go",
	"git add -A",
	"git add internal/policy docs/tools.md",
	`git commit -m "fix the build"`,
	`git commit -m 'it is "done"'`,
	"git commit -m \"a title\n\nA body of\ntwo lines.\"",
	"git commit --amend --no-edit",
	"git fetch origin --prune",
	"git branch -a",
	"git stash list",
	"git show 'stash@{0}'",
	"git rev-parse --abbrev-ref HEAD",
	"git blame -L 10,20 main.go",
	"go build ./...",
	"go test ./...",
	"go test -run TestX -count=1 ./internal/policy",
	"go test ./... 2>&1 | tail -40",
	"go vet ./... && go test ./...",
	"go build ./cmd/noused && go test ./cmd/noused; go vet ./cmd/noused",
	"go run ./internal/protocol/gen",
	"go list -m all | grep yaml",
	"go version",
	"go mod tidy",
	"ls",
	"ls -la",
	"ls -la internal/policy",
	"ls -la | head -5",
	"cat go.mod",
	"cat 'a file with blanks.txt'",
	`cat a\ file\ with\ blanks.txt`,
	"cat go.mod go.sum | wc -l",
	"head -n 20 README.md",
	"tail -100 build.log",
	"grep -rn TODO .",
	`grep -rn "func main" --include='*.go' .`,
	`grep -E 'a|b' file.txt`,
	`grep -c '^#' README.md || true`,
	`grep 'price: $5' notes.txt`,
	"rg -n 'fmt\\.Println' internal",
	"rg --files | sort | uniq -c | sort -rn | head",
	"find . -name '*.go' -type f",
	"find . -name '*.go' -newer go.mod | wc -l",
	`find . \( -name a -o -name b \)`,
	"echo done",
	`echo "all good: 100%"`,
	"echo grep: nothing >&2",
	"printf '%s\\n' one two",
	"pwd",
	"cd internal && ls",
	"sed -n '1,20p' main.go",
	"sed -e 's/a/b/' main.go | diff main.go -",
	"cut -d: -f1 /etc/passwd | sort",
	"tr a-z A-Z",
	"which git go make",
	"test -f go.mod && echo yes",
	"[ -d internal ] && ls internal",
	"date -u +%Y-%m-%dT%H:%M:%SZ",
	"mkdir -p build/out",
	"touch build/.keep",
	"make test",
	"make -j8",
	"make check 2>&1 | tail -n 50",
	"cargo build --release",
	"cargo test -- --nocapture",
	"pytest test -k 'not slow'",
	"npm run build",
	"npm ci",
	"npm install --save-dev typescript@5.4.2",
	"bash scripts/check.sh",
	"bash scripts/check.sh --fast",
	"./configure --prefix=/usr",
	"git status\ngit diff --stat",
	"git status;\n\ngo vet ./...\n",
	"git status\tdiff",
	`"git" status`,
	`g\it 'sta'"tus"`,
	"\\ls -l",
	`""git status a"" ''`,
	"echo 'größe: 5 µm — ok'",
	`echo "naïve café"`,
	`echo "a;b|c&d>e"`,
}

func TestOrdinaryLinesDoNotAsk(t *testing.T) {
	if len(ordinary) < 60 {
		t.Fatalf("only %d lines", len(ordinary))
	}
	s := rulesOf(t, sensible)
	for _, line := range ordinary {
		if d := s.Decide(bashCall(line, true)); d.Verdict != Allow {
			t.Errorf("%q: got %s (%s), want it allowed", line, d.Rule, d.Why)
		}
	}
}

// past are lines that try to get past rules that allow: what bash would run is
// not, or not only, what a rule allows.
var past = []struct{ name, line string }{
	{"nothing", ""},
	{"blanks", " \t "},
	{"newlines", "\n\n"},
	{"a semicolon", ";"},
	{"a comment", "# git status"},
	{"no rule", "git push"},
	{"no rule, second", "git status; git push"},
	{"no rule, and", "git status && git push"},
	{"no rule, or", "git status || git push"},
	{"no rule, pipe", "git status | tee out"},
	{"no rule, pipe with errors", "git status |& cat"},
	{"no rule, newline", "git status\ngit push"},
	{"no rule, newline after and", "git status &&\ngit push"},
	{"background", "git status &"},
	{"background and more", "git status & git push"},
	{"background then allowed", "ls & git status"},
	{"prefix of a word", "gitx status"},
	{"prefix of the second word", "git statusx"},
	{"only the first word", "git"},
	{"other case", "GIT status"},
	{"option before", "git -c core.pager=sh status"},
	{"option with alias", "git -c alias.status='!sh' status"},
	{"with a folder", "./git status"},
	{"with an absolute folder", "/tmp/git status"},
	{"with a folder above", "../git status"},
	{"relative folder", "bin/ls"},
	{"substitution", "git log $(git push)"},
	{"substitution as a command", "$(echo git) status"},
	{"substitution in double quotes", `git log "$(git push)"`},
	{"backquotes", "git log `git push`"},
	{"backquotes in double quotes", "git log \"`git push`\""},
	{"backquotes as a command", "`git push`"},
	{"nested substitution", `echo "$(echo "$(git push)")"`},
	{"substitution with braces", "echo ${ git push; }"},
	{"process substitution in", "cat <(git push)"},
	{"process substitution out", "ls >(git push)"},
	{"variable", "git $x"},
	{"variable as a command", "$x status"},
	{"variable in quotes", `git "$x"`},
	{"variable in braces", "git ${x}"},
	{"default of a variable", "git ${x:-push}"},
	{"default that assigns", "echo ${x:=$(git push)}"},
	{"indirect variable", "echo ${!x}"},
	{"prompt expansion", "echo ${x@P}"},
	{"positional", "echo $1 $@ $*"},
	{"special", "echo $$ $? $!"},
	{"a dollar alone", "echo $"},
	{"arithmetic", "echo $((x))"},
	{"old arithmetic", "echo $[x]"},
	{"arithmetic with a substitution", "echo $((a[$(git push)]))"},
	{"arithmetic command", "((x=1))"},
	{"let", "let x=1"},
	{"ansi-c quotes", `$'git' status`},
	{"ansi-c quotes with escapes", `$'\x67it' status`},
	{"ansi-c argument", `git $'status'`},
	{"locale quotes", `$"git" status`},
	{"locale argument", `git log $"x"`},
	{"glob as a command", "/bin/g?t status"},
	{"glob star", "ls *"},
	{"glob question", "ls ?"},
	{"glob class", "ls [a-z]"},
	{"glob as a second word", "git stat*"},
	{"extended glob", "ls @(a|b)"},
	{"extended glob not", "ls !(a)"},
	{"braces", "git {status,push}"},
	{"braces as a command", "{git,status}"},
	{"brace range", "echo {1..3}"},
	{"tilde as a command", "~/git status"},
	{"tilde", "ls ~"},
	{"tilde of somebody", "ls ~root"},
	{"tilde after an equals sign", "make test x=~/y"},
	{"tilde after a colon", "echo a:~/y"},
	{"assignment before", "PATH=/tmp git status"},
	{"assignment of a pager", "GIT_PAGER=sh git log"},
	{"assignment of an editor", "GIT_EDITOR='sh -c x' git commit"},
	{"assignment alone", "x=1"},
	{"assignment then command", "x=1; git status"},
	{"assignment appended", "x+=1 git status"},
	{"assignment of an element", "a[0]=1 git status"},
	{"assignment of an array", "a=(1 2) git status"},
	{"assignment with a substitution", "x=$(git push) git status"},
	{"ifs", "IFS=x git status"},
	{"ifs expansion", "git${IFS}push"},
	{"export", "export GIT_PAGER=sh; git log"},
	{"declare", "declare -x GIT_PAGER=sh; git log"},
	{"readonly", "readonly x=1"},
	{"local", "local x=1"},
	{"typeset", "typeset x=1"},
	{"quoted export", "\\export PATH=/tmp; git status"},
	{"output to a file", "git log > x"},
	{"output without a blank", "git log>x"},
	{"output before", "> x git log"},
	{"output appended", "git log >> x"},
	{"output over", "git log >| x"},
	{"errors to a file", "git log 2> x"},
	{"errors to nothing", "git log 2>/dev/null"},
	{"both to a file", "git log &> x"},
	{"both to a file, old", "git log >& x"},
	{"both appended", "git log &>> x"},
	{"input from a file", "git log < x"},
	{"input and output", "git log <> x"},
	{"descriptor of many digits", "echo 12>&1"},
	{"descriptor to many digits", "echo >&12"},
	{"descriptor in a variable", "echo {x}>&1"},
	{"descriptor of a variable", "echo >&$x"},
	{"descriptor moved", "echo 2>&1-"},
	{"descriptor closed", "echo 2>&-"},
	{"descriptor read", "cat <&3"},
	{"redirection alone", "2>&1"},
	{"here-document", "cat <<E\ngit push\nE"},
	{"here-document quoted", "cat <<'E'\n$(git push)\nE"},
	{"here-document with tabs", "cat <<-E\n\tx\n\tE"},
	{"here-document that does not end", "cat <<E"},
	{"here-document into a shell", "bash <<E\ngit push\nE"},
	{"here-string", "cat <<< x"},
	{"here-string into a shell", "bash <<< 'git push'"},
	{"subshell", "(git status)"},
	{"subshell with more", "git status; (git push)"},
	{"group", "{ git status; }"},
	{"not", "! git status"},
	{"time", "time git status"},
	{"time with an option", "time -p git status"},
	{"if", "if git status; then git push; fi"},
	{"while", "while git status; do git push; done"},
	{"until", "until git status; do git push; done"},
	{"for", "for x in a b; do git status; done"},
	{"for in arithmetic", "for ((;;)); do git status; done"},
	{"case", "case x in x) git push;; esac"},
	{"select", "select x in a; do git push; done"},
	{"test clause", "[[ -f x ]] && git status"},
	{"test clause with a substitution", "[[ -v a[$(git push)] ]]"},
	{"function", "git() { echo x; }; git status"},
	{"function, long form", "function git { echo x; }; git status"},
	{"function, one word", "ls() echo x"},
	{"coprocess", "coproc git status"},
	{"named coprocess", "coproc x { git status; }"},
	{"trap", "trap 'git push' EXIT; git status"},
	{"trap, debug", "trap 'git push' DEBUG"},
	{"alias", "alias git='git push'; git status"},
	{"alias in quotes", `"alias" ls=rm`},
	{"unalias", "unalias -a"},
	{"shopt", "shopt -s expand_aliases"},
	{"set", "set -- git push"},
	{"hash", "hash -p /tmp/x git; git status"},
	{"enable", "enable -f /tmp/x.so git"},
	{"enable a builtin off", "enable -n echo; echo x"},
	{"eval", "eval git push"},
	{"eval in quotes", `"eval" "git push"`},
	{"eval with a backslash", `\eval git push`},
	{"eval in pieces", `e'va'l git push`},
	{"exec", "exec git push"},
	{"exec of a redirection", "exec 3>x"},
	{"command", "command git status"},
	{"builtin", "builtin echo x"},
	{"source", "source x"},
	{"dot", ". x"},
	{"dot in quotes", `"." x`},
	{"read", "read PATH"},
	{"mapfile", "mapfile -C 'git push' x"},
	{"printf into a variable", "printf -v PATH /tmp"},
	{"printf into a variable, joined", "printf -vPATH /tmp"},
	{"test of an element", "test -v 'a[$(git push)]'"},
	{"bracket of an element", "[ -v 'a[$(git push)]' ]"},
	{"unset", "unset 'a[$(git push)]'"},
	{"getopts", "getopts a x"},
	{"complete", "complete -C 'git push' x"},
	{"compgen", "compgen -C 'git push'"},
	{"bind", "bind -x '\"a\":git push'"},
	{"history", "fc -s"},
	{"jobs", "jobs -x git push"},
	{"sh -c", "sh -c 'git status'"},
	{"bash -c", "bash -c 'git status'"},
	{"bash with options", "bash -lc 'git status'"},
	{"bash with a plus", "bash +x scripts/check.sh"},
	{"bash and a quoted option", `bash "-c" 'git push'`},
	{"bash alone", "bash"},
	{"bash from a pipe", "echo git push | bash"},
	{"sh from a pipe", "cat x | sh"},
	{"bash of its input", "echo git push | bash /dev/stdin"},
	{"bash of another file", "bash scripts/other.sh"},
	{"bash with a folder", "/bin/bash scripts/check.sh"},
	{"env", "env git status"},
	{"env with a variable", "env PATH=/tmp git status"},
	{"env split", "env -S 'git push'"},
	{"env with a folder", "/usr/bin/env git status"},
	{"xargs", "echo push | xargs git"},
	{"xargs with an allowed command", "ls | xargs cat"},
	{"parallel", "parallel git ::: push"},
	{"find with exec", "find . -exec git push ;"},
	{"find with exec in quotes", `find . '-exec' git push ';'`},
	{"find with exec in pieces", `find . -ex"ec" git push \;`},
	{"find with execdir", "find . -execdir git push +"},
	{"find with ok", "find . -ok git push ;"},
	{"find that deletes", "find . -delete"},
	{"find that writes", "find . -fprintf x y"},
	{"fd with exec", "fd -x git push"},
	{"fd with exec batch", "fd --exec-batch=git push"},
	{"rg with a preprocessor", "rg --pre sh x"},
	{"sudo", "sudo git status"},
	{"doas", "doas git status"},
	{"su", "su -c 'git push'"},
	{"ssh", "ssh host git status"},
	{"nice", "nice -n 5 git status"},
	{"timeout", "timeout 5 git status"},
	{"nohup", "nohup git status"},
	{"setsid", "setsid git status"},
	{"stdbuf", "stdbuf -oL git status"},
	{"time as a program", "/usr/bin/time git status"},
	{"time with a backslash", `\time git status`},
	{"watch", "watch git status"},
	{"script", "script -c 'git push'"},
	{"flock", "flock x git push"},
	{"strace", "strace git status"},
	{"busybox", "busybox sh"},
	{"unshare", "unshare -r git status"},
	{"chroot", "chroot / git status"},
	{"systemd-run", "systemd-run --user git push"},
	{"keyword in quotes", `"if" x`},
	{"keyword alone", "then"},
	{"a bang", "git log && !x"},
	{"a closing brace", "git status; }"},
	{"a job", "%1"},
	{"option for a command", "-x"},
	{"empty command", "'' status"},
	{"line that goes on", "git \\\nstatus"},
	{"line that goes on in a word", "gi\\\nt status"},
	{"line that goes on in quotes", "git log \"a\\\nb\""},
	{"comment that goes on", "git status # \\\ngit push"},
	{"comment on a line of its own", "git status\n# x"},
	{"comment behind", "git status # git push"},
	{"comment, then a newline", "git status # x\ngit diff"},
	{"comment in the middle", "git status && # x\ngit diff"},
	{"hash in a word", "echo a#b"},
	{"carriage return", "git status\rgit push"},
	{"carriage return and newline", "git status\r\ngit diff"},
	{"carriage return in quotes", "git log 'a\rb'"},
	{"nul", "git status\x00git push"},
	{"escape", "git log \x1b[2J"},
	{"delete", "git log \x7f"},
	{"control of the shell's own", "git log \x01"},
	{"vertical tab", "git\vstatus"},
	{"form feed", "git\fstatus"},
	{"backspace", "git log x\b"},
	{"no-break space", "git\u00a0status"},
	{"no-break space behind", "git status\u00a0push"},
	{"ideographic space", "git status\u3000push"},
	{"zero width space", "git stat\u200bus"},
	{"line separator", "git status\u2028git push"},
	{"next line", "git status\u0085git push"},
	{"right to left", "git log '\u202e'"},
	{"byte order mark", "\ufeffgit status"},
	{"letters that look alike", "gіt status"},
	{"wide letters", "ｇｉｔ status"},
	{"wide semicolon", "git status； git push"},
	{"letters without quotes", "echo größe"},
	{"a backslash behind a letter in quotes", `echo "あ\\"`},
	{"backslash at the end", `git status\`},
	{"quote that does not end", `git log "x`},
	{"single quote that does not end", "git log 'x"},
	{"parenthesis too many", "git status)"},
	{"parenthesis too few", "(git status"},
	{"double semicolon", "git status;; git push"},
	{"operator at the end", "git status &&"},
	{"operator at the beginning", "&& git status"},
	{"two operators", "git status | | cat"},
	{"folder of the rule left", "cd / && ./configure"},
	{"folder of the rule left later", "./configure; cd ..; ./configure"},
	{"very many commands", strings.Repeat("ls;", 501)},
	{"popd", "popd; ./configure"},
}

func TestLinesThatTryToGetPastAnAllow(t *testing.T) {
	if len(past) < 150 {
		t.Fatalf("only %d lines", len(past))
	}
	s := rulesOf(t, sensible)
	for _, c := range past {
		d := s.Decide(bashCall(c.line, true))
		if d.Verdict == Allow {
			t.Errorf("%s: %q is allowed by %s", c.name, c.line, d.Rule)
		}
		if d.Offer != nil && readLine(c.line).why != "" {
			t.Errorf("%s: %q: %q is offered", c.name, c.line, d.Offer.Pattern())
		}
	}
}
