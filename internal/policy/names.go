package policy

import "strings"

// wrappers run what their arguments say, so that a rule about them would allow
// anything. No list of such programs is complete: a rule that allows an
// interpreter, or a program with plugins, allows what that can do.
var wrappers = set(`
	env xargs parallel sudo doas su runuser pkexec gosu su-exec runas ssh rsh mosh pdsh eval exec command builtin
	nice ionice chrt taskset numactl cpulimit prlimit timeout time nohup setsid setpriv setarch linux32 linux64 i386
	x86_64 stdbuf unbuffer chroot unshare nsenter capsh watch entr script scriptreplay flock lockfile strace ltrace gdb
	valgrind perf busybox toybox start-stop-daemon systemd-run systemd-inhibit systemd-nspawn dbus-run-session dbus-launch
	run-parts at batch crontab fakeroot faketime firejail bwrap proot expect rlwrap torsocks torify proxychains
	proxychains4 tmux screen dtach abduco xvfb-run xterm daemonize catchsegv choom uclampset coresched ts-node npx bunx
	pipx uvx direnv`)

// shellWords are builtins that run something, or change what a later command
// means: its name, its variables, its options.
var shellWords = set(`
	. source trap alias unalias enable hash set shopt export declare typeset local readonly nameref unset read mapfile
	readarray getopts let bind complete compgen compopt fc history jobs wait logout suspend coproc function return
	elif vared zmodload autoload emulate`)

var shells = set(
	"sh bash rbash dash ash zsh ksh ksh93 mksh lksh oksh pdksh yash posh fish csh tcsh elvish nu xonsh pwsh")

// movers change the folder that a line's later commands run in.
var movers = set("cd pushd popd")

// riskyOptions are how the options begin with which a harmless command runs
// others, removes or writes files, or evaluates a word as shell.
var riskyOptions = map[string][]string{
	"find": {"-exec", "-ok", "-delete", "-fprint", "-fls"},
	"fd":   {"-x", "-X", "--exec"}, "fdfind": {"-x", "-X", "--exec"},
	"rg":   {"--pre", "--hostname-bin"},
	"test": {"-v", "-R"}, "[": {"-v", "-R"}, "printf": {"-v"},
}

// folderRunners run what the files of the folder say that they work on: a setting, a
// hook or a filter of a repository, a Makefile, a script of a package, a test.
var folderRunners = set(`
	git hg svn jj make gmake cmake ctest ninja meson bazel go cargo npm pnpm yarn bun deno pytest tox nox hatch poetry
	uv pdm mvn gradle gradlew ant sbt rake bundle gem composer just task pre-commit tsc eslint jest vitest mix
	dotnet swift zig stack cabal docker podman terraform tofu ansible-playbook helm vagrant code vim nvim emacs`)

// finders run a command for each file that they find.
var finders = set("find fd fdfind")

func set(words string) map[string]bool {
	s := map[string]bool{}
	for _, w := range strings.Fields(words) {
		s[w] = true
	}
	return s
}

// base is a command's name without the folder.
func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func runsOthers(name string) bool { return wrappers[base(name)] || shellWords[base(name)] }

func isOption(word string) bool { return strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+") }

func isNumber(word string) bool { return word != "" && word[0] >= '0' && word[0] <= '9' }

// readers run what they read, whatever their arguments are.
var readers = set("at batch crontab su")

// isInput tells whether a file can be what is piped into a command.
func isInput(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")
}
