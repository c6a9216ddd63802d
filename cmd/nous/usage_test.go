package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"noused/internal/cmdline"
)

// wrongLines are command lines that are wrong, each with what is said of it. A
// "·" stands for a space in an argument.
var wrongLines = []struct{ line, want string }{
	{"promt", `unknown command "promt", did you mean prompt?`},
	{"hlep", `unknown command "hlep", did you mean help?`},
	{"--nonsense", `nous has no flag --nonsense; it has --`},
	{"--json=perhaps", `--json perhaps: want true, false or, with prompt, result`},
	{"--session", `--session wants a value: id`},
	{"--=x", `--=x is no flag: want --NAME or --NAME=VALUE`},
	{"help nope", `unknown command "nope"`},
	{"help promt", `unknown command "promt", did you mean prompt?`},
	{"help sessions mr", `sessions has no command "mr", did you mean rm?`},
	{"completion nope", `completion has no command "nope"`},
	{"completion bash extra", `completion bash takes no arguments, and got "extra"`},
	{"completion zsh extra", `completion zsh takes no arguments, and got "extra"`},
	{"completion fish extra", `completion fish takes no arguments, and got "extra"`},
	{"completion powershell extra", `completion powershell takes no arguments, and got "extra"`},

	{"prompt", `there is no text: give it as arguments or on standard input`},
	{"prompt -", `there is no text: give it as arguments or on standard input`},
	{
		"prompt -x",
		`prompt has no flag -x; it has --active, --agent, --approvals, --as, --async, --creds, --detach-on-interrupt, --ephemeral, --help,`,
	},
	{"prompt --wait --async x", `--wait and --async exclude each other`},
	{"prompt --if-running later x", `--if-running later: want steer or follow-up`},
	{"prompt --if-running", `--if-running wants a value: steer or follow-up`},
	{"prompt --image= x", `--image "": want the name of a file`},
	{"prompt --wait=maybe x", `--wait maybe: want true or false`},
	{"prompt \xff", `the argument "\xff" is not valid UTF-8`},
	{"prompt --max-cost much x", `--max-cost much: want a number`},
	{"prompt --timeout soon x", `--timeout soon: want a time like 90s or 10m`},
	{"prompt --keep here x", `--keep goes with --ephemeral`},
	{"--json=result state", `--json=result goes with prompt`},
	{"wait --until idle", `wait has no flag --until; it has --`},
	{"man-pages", `man-pages wants a folder`},
	{"stop now", `stop takes no arguments, and got "now"`},
	{"restart now", `restart takes no arguments, and got "now"`},
	{"agents now", `agents takes no arguments, and got "now"`},
	{"mcp serve now", `mcp serve takes no arguments, and got "now"`},
	{"acp now", `acp takes no arguments, and got "now"`},
	{"steer", `there is no text:`},
	{"steer --if-idle wait x", `--if-idle wait: want prompt`},
	{"follow-up", `there is no text:`},
	{"follow-up --if-idle wait x", `--if-idle wait: want prompt`},
	{"abort one two", `abort takes 1 argument, and got "two" besides: it wants RUN, the id of a run, or nothing`},
	{"set-mode", `set-mode wants which texts, steering or follow-up, and how, one-at-a-time or all`},
	{"set-mode steering", `set-mode wants which texts,`},
	{"set-mode steering all extra", `set-mode takes 2 arguments, and got "extra" besides: it wants which texts,`},
	{"set-mode sideways all", `sideways: want steering or follow-up`},
	{"set-mode steering some", `some: want one-at-a-time or all`},
	{
		"approvals one two",
		`approvals takes 1 argument, and got "two" besides: it wants ID, the id of an approval, or nothing`,
	},
	{
		"approve apr-1 maybe",
		`maybe: want once, session, always or continue, of a form accept, decline or cancel; nous deny says no`,
	},
	{"approve once apr-1", `once apr-1: the ID comes first`},
	{
		"approve apr-1 once more",
		`approve takes 2 arguments, and got "more" besides: it wants ID, the id of an approval, and then`,
	},
	{"deny one two", `deny takes 1 argument, and got "two" besides: it wants ID, the id of an approval, or nothing`},
	{"deny --reason", `--reason wants a value: text`},
	{"set-approval-mode", `set-approval-mode wants ask, auto or deny`},
	{"set-approval-mode sometimes", `sometimes: want ask, auto or deny`},
	{"prompt --approvals perhaps x", `--approvals perhaps: want allow, ask or deny`},
	{"set-model", `set-model wants MODEL, as in openai/gpt-5`},
	{"options mode plan more", `options takes 2 arguments, and got "more" besides: it wants OPTION, one that`},
	{"set-model a b", `set-model takes 1 argument, and got "b" besides: it wants MODEL,`},
	{"set-model offline --context-window many", `--context-window many: want a whole number`},
	{"sessions extra", `sessions has no command "extra"`},
	{"sessions mr ses-1", `sessions has no command "mr", did you mean rm?`},
	{"sessions --limit few", `--limit few: want a whole number`},
	{"sessions --limit", `--limit wants a value: a whole number`},
	{"sessions --limit 99999999999999999999", `--limit 99999999999999999999: the number is out of range`},
	{"sessions rm", `sessions rm wants SESSION, the id of a session`},
	{"delete", `delete wants SESSION, the id of a session`},
	{"rename", `rename wants TITLE, one line of at most 200 characters`},
	{"withdraw", `withdraw wants INPUT, the id of a queued text; nous state shows them`},
	{"new --title x", `new has no flag --title; it has --active, --agent, --creds, --help,`},
	{"new --worktree=", `--worktree wants the name of a branch, or nothing at all`},
	{"switch", `switch wants SESSION, the id of a session`},
	{"switch one two", `switch takes 1 argument, and got "two" besides: it wants SESSION, the id of a session`},
	{
		"branch one two",
		`branch takes 1 argument, and got "two" besides: it wants SESSION, the id of a session, or nothing`,
	},
	{"diff --run run-1 --turn run-1/2", `--run and --turn exclude each other`},
	{"diff --turn", `--turn wants a value: RUN/TURN`},
	{"diff --turn run-1", `--turn wants RUN/TURN, like run-0198c5f2/2, not "run-1"`},
	{"rewind --files --conversation", `--files and --conversation exclude each other; without both, both are taken back`},
	{"rewind --undo --files", `--undo puts back all that the rewind took back: leave out --files and --conversation`},
	{"rewind one two", `rewind takes 1 argument, and got "two" besides: it wants MESSAGE, the id of a message of yours`},
	{"prune now", `prune takes no arguments, and got "now"`},
	{"logs now", `logs takes no arguments, and got "now"`},
	{"logs --lines=-1", `--lines -1: want 0 or more`},
	{"statusline now", `statusline takes no arguments, and got "now"`},
	{"status now", `status takes no arguments, and got "now"`},
	{"usage today", `usage takes no arguments, and got "today"`},
	{"usage --by hour", `--by hour: want day, model, session or folder`},
	{"board extra", `board takes no arguments, and got "extra"`},
	{"messages extra", `messages takes no arguments, and got "extra"`},
	{
		"system one two",
		`system takes 1 argument, and got "two" besides: it wants SESSION, the id of a session, or nothing`,
	},
	{"tree extra", `tree takes no arguments, and got "extra"`},
	{"set-leaf", `set-leaf wants ENTRY, the id of an entry; nous tree shows them`},
	{"set-leaf one two", `set-leaf takes 1 argument, and got "two" besides: it wants ENTRY,`},
	{"compact \xff", `the argument "\xff" is not valid UTF-8`},
	{"search", `search wants TEXT, what to look for`},
	{"search --limit few x", `--limit few: want a whole number`},
	{"show one two", `show takes 1 argument, and got "two" besides: it wants RUN, MESSAGE or SESSION,`},
	{
		"export one two",
		`export takes 1 argument, and got "two" besides: it wants SESSION, the id of a session, or nothing`,
	},
	{"export --format pdf", `--format pdf: want md, json, html or atif`},
	{"export --format html --json", `--json and --format html exclude each other`},
	{"fleet nonsense", `fleet has no command "nonsense"`},
	{"fleet submit", `there is no text: give it as arguments or on standard input`},
	{"fleet jobs extra", `fleet jobs takes no arguments, and got "extra"`},
	{"fleet cancel", `fleet cancel wants ID, the id of a job`},
	{"land now", `land takes no arguments, and got "now"`},
	{"land --squash --rebase", `--squash, --merge and --rebase exclude each other`},
	{"land --dry-run --remove", `--dry-run does nothing: it goes with neither --ask nor --remove`},
	{"pr now", `pr takes no arguments, and got "now"`},
	{"proxy extra", `proxy takes no arguments, and got "extra"`},
	{"ping extra", `ping takes no arguments, and got "extra"`},
	{"state extra", `state takes no arguments, and got "extra"`},
	{"fleet extra", `fleet has no command "extra"`},
	{"fleet hosts extra", `fleet hosts takes no arguments, and got "extra"`},
	{"fleet sessions extra", `fleet sessions takes no arguments, and got "extra"`},
	{"fleet approvals extra", `fleet approvals takes no arguments, and got "extra"`},
	{"fleet watch extra", `fleet watch takes no arguments, and got "extra"`},
	{"tools extra", `tools has no command "extra"`},
	{"tools reload extra", `tools reload takes no arguments, and got "extra"`},
	{"set-tools", `set-tools wants the names of tools, or --none`},
	{"set-tools --none files", `set-tools wants the names of tools, or --none`},
	{"ext", `ext wants NAME, the name of an operation, and then its arguments`},
	{"ext a nonsense", `nonsense: want key=text, key:=json or one JSON object`},
	{"ext a n:=five", `n: not JSON: five`},
	{"ext a a=1 a=2", `a is given twice`},
	{"ext a {", `the arguments are not one JSON object: {`},
	{"ext a --phase later", `--phase later: want setup, verify or cleanup`},
	{"mcp extra", `mcp has no command "extra"`},
	{"mcp list extra", `mcp list takes no arguments, and got "extra"`},
	{"mcp add", `add wants NAME, and then -- and a command, or --url`},
	{"mcp get", `mcp get wants NAME`},
	{"mcp remove a b", `mcp remove takes 1 argument`},
	{"mcp import", `mcp import wants FILE`},
	{"mcp trust --yes", `mcp trust has no flag --yes`},
	{"trust --yes", `trust has no flag --yes`},
	{"models extra", `models takes no arguments, and got "extra"`},
	{"wait --timeout soon", `--timeout soon: want a time like 90s or 10m`},
	{"wait --timeout 0s", `--timeout 0s: want more than nothing`},
	{"setup one two", `setup takes 1 argument, and got "two" besides: it wants PROVIDER, AGENT, URL, or nothing`},
	{"model one two", `model takes 1 argument, and got "two" besides: it wants PROVIDER/NAME, or nothing`},
	{"login", `login wants PROVIDER`},
	{"logout", `logout wants PROVIDER`},
	{"events extra", `events takes no arguments, and got "extra"`},
	{"events --after soon", `--after soon: want a whole number that is not negative`},
	{"events --after -1", `--after -1: want a whole number that is not negative`},
	{`events --types "a`, `--types "a: want types, separated by commas`},
}

// foreign are the words of the libraries that read the command line.
var foreign = regexp.MustCompile(
	`arg\(s\)|strconv|parsing|invalid argument|unknown (shorthand )?flag|needs an argument|bad flag syntax|jsontext|json:`)

func TestWrongCommandLinesAreToldInPlainWords(t *testing.T) {
	told := map[string]bool{}
	for _, tc := range wrongLines {
		t.Run(tc.line, func(t *testing.T) {
			var out, errout bytes.Buffer
			a := newApp(strings.NewReader(""), &out, &errout)
			args := unanswered(tc.line)
			status := a.main(args)
			lines := strings.SplitAfter(errout.String(), "\n")
			if status != exitUsage || out.Len() > 0 || !strings.HasPrefix(lines[0], "nous: "+tc.want) {
				t.Errorf("got status %d, output %q, errors %q, want %d and %q", status, out.String(), errout.String(), exitUsage,
					tc.want)
			}
			if len(lines) != 4 || !strings.HasPrefix(lines[1], "for example: nous") ||
				!strings.HasSuffix(lines[2], " --help says more\n") {
				t.Errorf("got %q, want what is wrong, an example, and where there is more", errout.String())
			}
			if words := foreign.FindString(errout.String()); words != "" {
				t.Errorf("%q is a library's way to say it: %s", words, errout.String())
			}
			if cmd, _, err := newApp(nil, nil, nil).root().Find(strings.Fields(tc.line)); err == nil {
				told[cmd.CommandPath()] = true
			}
		})
	}
	everyCommand(func(cmd *cobra.Command) {
		if !told[cmd.CommandPath()] {
			t.Errorf("no wrong line of %q is tried", cmd.CommandPath())
		}
	})
}

// everyCommand is called with every command that does something, but doctor,
// whose flags are noused's.
func everyCommand(f func(*cobra.Command)) {
	todo := []*cobra.Command{newApp(strings.NewReader(""), nil, nil).root()}
	for len(todo) > 0 {
		cmd := todo[0]
		todo = append(todo[1:], cmd.Commands()...)
		if cmd.Runnable() && !cmd.DisableFlagParsing {
			f(cmd)
		}
	}
}

// What is shown as an example is right: all that it lacks is a daemon, or what one
// leaves.
func TestExamplesAreRightCommandLines(t *testing.T) {
	everyCommand(func(cmd *cobra.Command) {
		// acp asks a daemon when its client does
		if top := strings.Fields(cmd.CommandPath() + " -")[1]; slices.Contains([]string{
			"-", "help", "completion", "acp",
			"man-pages",
		}, top) {
			return
		}
		line, _, _ := strings.Cut(strings.TrimPrefix(cmdline.Example(cmd), "nous "), " > ")
		var errout bytes.Buffer
		a := newApp(strings.NewReader(""), &bytes.Buffer{}, &errout)
		status := a.main(unanswered(line))
		if (strings.HasPrefix(line, "mcp ") || line == "trust") && status != exitUsage { // files are enough for it
			return
		}
		want := exitNoDaemon
		switch cmd.Name() {
		case "stop", "statusline": // it is done
			want = exitOK
		case "logs": // there is none
			want = exitFailed
		}
		if status != want {
			t.Errorf("nous %s: got status %d and %q, want %d", line, status, errout.String(), want)
		}
	})
}

func TestHelpTellsOfCommands(t *testing.T) {
	for line, want := range map[string]string{
		"help":                      "Sessions:",
		"help prompt":               "Start a run",
		"help sessions rm":          "Delete sessions",
		"help exit-status":          "130  the run was aborted",
		"__complete help sessions ": "rm\tDelete",
	} {
		var out, errout bytes.Buffer
		args := strings.Split(line, " ")
		if status := newApp(strings.NewReader(""), &out, &errout).main(args); status != 0 ||
			!strings.Contains(out.String(), want) {
			t.Errorf("%s: got status %d, %q, %q, want %q", line, status, out.String(), errout.String(), want)
		}
	}
}

// unanswered is a command line for a daemon, or a fleet, that does not exist.
func unanswered(line string) []string {
	if strings.HasPrefix(line, "fleet") {
		return append([]string{"--via", "nats://127.0.0.1:1"}, strings.Fields(line)...)
	}
	return append([]string{"--socket", "/nonexistent/s"}, strings.Fields(line)...)
}
