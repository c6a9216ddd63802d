// Command nous talks to a noused daemon from a terminal or a script.
//
// Concurrency: one goroutine does a command's work; two Ctrl-C are turned into
// two contexts, so that nothing else runs beside it.
//
// It refuses to hold any state of its own, and to read a session's files: what it knows it was
// told over the two sockets.
package main

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/machine"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/fleet/via"
	"noused/internal/protocol"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for the process around it; it returns the exit
// status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(stdin, stdout, stderr).main(args)
}

// patience is how long a stream waits for a daemon that went away.
const patience = 10 * time.Second

// app is what every command shares: the three streams and the global flags.
type app struct {
	*plain.Printer // prints as the global flags and the two streams say
	in             io.Reader
	out            *plain.Output // where the Printer writes to
	patience       time.Duration
	answer         time.Duration // how long an answer is waited for that is given at once
	look           time.Duration // between looks at a run whose events may be missed
	daemon         follow.Dialer // that is meant

	socket      string
	socketGiven bool
	also        string          // the socket of another daemon, which is not meant; or ""
	hostNames   []string        // of --host
	hosts       []*machine.Host // that they are
	far         *machine.Host   // whose daemon is meant; nil is this machine's
	workdir     string          // what --workdir says
	via         viaFlags
	fleet       *via.Fleet // nil until it is needed
	session     string     // what --session says; once it was found, the id, and "" is the active one
	found       bool
	active      bool
	result      bool        // --json=result
	board       bool        // the screen begins with the board
	tree        bool        // child sessions are listed below their parents
	whyFile     string      // gets why the command has failed, for the screen that has run it
	noStart     bool        // a daemon that is not there is not started
	completing  bool        // a shell asks for words: nothing is started for them
	met         atomic.Bool // a daemon has answered
	going       atomic.Bool // it was told that one is stopping
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	out := &plain.Output{W: stdout}
	a := &app{
		Printer: &plain.Printer{
			Out: out, Err: stderr, OutStyle: plain.StyleFor(stdout), ErrStyle: plain.StyleFor(stderr),
		},
		in: stdin, out: out, patience: patience, answer: 3 * patience, look: time.Second,
	}
	a.daemon = client.Adapt(dialer{a})
	return a
}

// main runs one command line and returns its exit status.
func (a *app) main(args []string) int {
	defer a.hangUp()
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		err = a.out.Failure()
	}
	status := a.report(cmd, err)
	if a.whyFile != "" && status != exitOK {
		_ = os.WriteFile(a.whyFile, []byte(a.Complained()), 0o600) // who wants it has the status, too
	}
	return status
}

func (a *app) root() *cobra.Command {
	var plain bool
	root := &cobra.Command{
		Use:   "nous",
		Short: "Talk to noused, the agent daemon",
		Example: `  nous prompt what is in this directory
  nous --session ses-0198c5f2
  nous --host box
  nous help prompt`,
		Long: `nous talks to noused, the agent daemon. Without a command it opens the terminal
interface: the conversation, what tools do, and an input. Where no daemon runs, it
starts one.

Runs belong to the daemon. They go on when nous ends, or the terminal.

What models, tools and servers say could hold escape sequences, control
characters, or characters that reorder a line. nous removes them from texts. Commands
that have --raw print texts unchanged with it; --json writes such characters as
\uXXXX.

Exit status: 0 done, 1 refused or failed, 2 wrong command line, 3 no daemon, 4 no
model, 130 aborted or left by Ctrl-C; nous help exit-status lists all.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			a.socketGiven = cmd.Flags().Changed("socket")
			a.completing = cmd.Name() == cobra.ShellCompRequestCmd
			if err := cmdline.CheckEncoding(cmd, args); err != nil {
				return err
			}
			if a.result && cmd.Name() != "prompt" {
				return cmdline.Errorf("--json=result goes with prompt")
			}
			if err := a.chooseHosts(cmd); err != nil {
				return err
			}
			if a.far == nil && !a.named() && readsOf(cmd) != readsNobody {
				a.chooseSocket(cmd.Context(), protocol.OtherSocket(os.Getenv))
			}
			return a.checkFlag(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.openTUI(cmd, plain)
			}
			return cmdline.Unknown(cmd, args[0])
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(cmdline.FlagError)
	root.SetHelpCommand(cmdline.Help("  nous help prompt\n  nous help exit-status"))
	cmdline.Version(root, func() string { return buildinfo.Line("nous") })

	flags := root.PersistentFlags()
	flags.StringVar(&a.socket, "socket", client.DefaultSocket(), "the daemon's command `socket`; also NOUSED_SOCKET")
	flags.StringArrayVar(&a.hostNames, "host", nil, "the daemon of another machine, by ssh: `[user@]box`, or a name of "+
		"nous's config.toml;\nalso NOUS_HOST; may be given again for the screen, and with board, sessions, "+
		"approvals,\nevents, state")
	flags.StringVar(&a.workdir, "workdir", "",
		"the `folder` that is meant instead of the current one; with --host, one there")
	a.via.register(root)
	flags.StringVar(&a.session, "session", "", "the session's `id`, its title, or the beginning of one; also "+
		"NOUS_SESSION\n(default: the one of the current folder that was used last)")
	flags.BoolVar(&a.active, "active", false, "the daemon's active session, whatever its folder is")
	flags.BoolVar(&a.noStart, "no-start", false,
		"start no daemon where none runs; also autostart = false in nous's config.toml")
	flags.Var((*jsonFlag)(a), "json",
		"print what the daemon says, one JSON object per line;\nprompt --json=result prints one object")
	flags.Lookup("json").NoOptDefVal = "true"
	root.Flags().BoolVar(&plain, "plain", false, "show the session line by line, for screen readers; not with a command")
	a.completeSessions(root)
	must(root.RegisterFlagCompletionFunc("host", completer(a.hostNamesForShell)))

	a.addCommands(root)
	return root
}

// addCommands adds each command to the group that help shows it in.
func (a *app) addCommands(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Runs:"},
		&cobra.Group{ID: "session", Title: "Sessions:"},
		&cobra.Group{ID: "daemon", Title: "Tools and daemon:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"run": {
			a.promptCommand(), a.waitCommand(), a.steerCommand(), a.followUpCommand(), a.withdrawCommand(), a.abortCommand(),
			a.setModeCommand(), a.setModelCommand(), a.optionsCommand(), a.approvalsCommand(), a.approveCommand(),
			a.denyCommand(), a.setApprovalModeCommand(),
		},
		"session": {
			a.boardCommand(), a.sessionsCommand(), a.newCommand(), a.switchCommand(), a.branchCommand(),
			a.renameCommand(), a.deleteCommand(), a.messagesCommand(), a.treeCommand(), a.setLeafCommand(), a.compactCommand(),
			a.searchCommand(), a.showCommand(), a.exportCommand(), a.diffCommand(), a.rewindCommand(),
			a.landCommand(), a.prCommand(),
		},
		"daemon": {
			a.setupCommand(), a.modelCommand(), a.loginCommand(), a.logoutCommand(), a.acpCommand(), a.pingCommand(),
			a.statusCommand(), a.statuslineCommand(), a.logsCommand(), a.stateCommand(), a.usageCommand(), a.systemCommand(),
			a.agentsCommand(), a.toolsCommand(), a.setToolsCommand(), a.extCommand(), a.mcpCommand(), a.trustCommand(),
			a.modelsCommand(), a.eventsCommand(), a.pruneCommand(),
			a.doctorCommand(), a.stopCommand(), a.restartCommand(), a.proxyCommand(), a.fleetCommand(),
		},
	} {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(&cobra.Command{Use: "exit-status", Short: "The exit status", Long: exitHelp()})
	root.AddCommand(manPagesCommand(root))
	cmdline.Completion(root)
}
