package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/model/catalogue"
	"noused/internal/model/credentials"
	"noused/internal/protocol"
	"noused/internal/setup"
)

// maxPasted is how much of standard input a key is looked for in, in bytes.
const maxPasted = 128 << 10

// whyFlag names the file in which the screen reads why nous setup has failed: what it prints is behind
// the screen then.
const whyFlag = "why-file"

// maxChoices is how many lines a question shows.
const maxChoices = 15

func (a *app) setupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup [PROVIDER | AGENT | URL]",
		Short: "Choose a model and save its key, or choose an agent",
		Long: `Choose a provider, save its key, and choose the model that answers. The daemon
takes both at once. On a terminal nous asks; else PROVIDER must be named, the key
comes from standard input, and the provider's default model is chosen.

An agent of another maker that is installed, such as codex, can be chosen instead: it
makes the turns of new sessions, with the login that it has. The URL of any other
server that speaks OpenAI's chat completions becomes a provider, if it answers.

The key is kept in ~/.config/noused/credentials.toml, which only you can read, and
the choice in config.toml beside it, where everything else stays.`,
		Example: "  nous setup\n  pass show anthropic | nous setup anthropic\n  nous setup codex\n  " +
			"nous setup http://box:8000/v1 </dev/null",
		Args:              cmdline.Wants(0, 1, "PROVIDER, AGENT, URL, or nothing"),
		ValidArgsFunction: a.setupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.newSetup(cmd.Context())
			if err != nil {
				return err
			}
			choice := setupChoice{}
			if len(args) == 1 {
				choice, err = s.named(args[0])
			} else {
				choice, err = s.chooseProvider()
			}
			switch {
			case err != nil:
				return err
			case choice.agent != "":
				return s.saveAgent(choice.agent)
			case choice.other:
				choice.provider, err = s.addServer(choice.address)
			}
			if err != nil {
				return err
			}
			provider, name := choice.provider, offlineModel
			if provider != offline { // which needs no key
				if err := s.login(provider, !s.hasKey(provider)); err != nil {
					return s.dropServer(err)
				}
				if name, err = s.chooseModel(provider); err != nil {
					return err
				}
			}
			if err := setup.SaveAgent(s.dir, ""); err != nil { // the model is to answer
				return err
			}
			return s.saveModel(provider, name)
		},
	}
	cmd.Flags().StringVar(&a.whyFile, whyFlag, "", "a file for the reason")
	_ = cmd.Flags().MarkHidden(whyFlag)
	return cmd
}

// The provider that needs no key, and its model.
const offline, offlineModel = "offline", "script"

func (a *app) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "login PROVIDER",
		Short: "Save the key of a provider of models",
		Long: "Save the key of a provider of models. It is asked for and not shown, or read from\nstandard input, and " +
			"tried at once.",
		Example: "  nous login anthropic\n  pass show openai | nous login openai",
		Args:    cmdline.Wants(1, 1, "PROVIDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.newSetup(cmd.Context())
			if err == nil {
				err = s.known(args[0])
			}
			if err != nil {
				return err
			}
			return s.login(args[0], true)
		},
	}
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "logout PROVIDER",
		Short:   "Forget the saved key of a provider",
		Example: "  nous logout anthropic",
		Args:    cmdline.Wants(1, 1, "PROVIDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.newSetup(cmd.Context())
			if err != nil {
				return err
			}
			saved, err := credentials.Read(s.dir)
			if err != nil {
				return err
			}
			if saved[args[0]] == "" {
				return fmt.Errorf("no key of %q is saved in %s", args[0], s.dir)
			}
			if err := credentials.Forget(s.dir, args[0]); err != nil {
				return err
			}
			return s.reload()
		},
	}
}

func (a *app) modelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "model [PROVIDER/NAME]",
		Short: "Show or choose the default model, which answers where a session has chosen none",
		Long: `Show the daemon's model, or choose another. Sessions that a model has answered keep
it: nous set-model, or /model on the screen, changes that of one session.`,
		Example:           "  nous model anthropic/claude-opus-5-5",
		Args:              cmdline.Wants(0, 1, "PROVIDER/NAME, or nothing"),
		ValidArgsFunction: a.modelNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				st, err := a.daemonState(cmd.Context())
				if err != nil {
					return err
				}
				if st.Model.Provider == "" {
					return protocol.Rejectf(protocol.NoModel, "no model is chosen: nous setup")
				}
				a.Println(modelWord(st.Model))
				return nil
			}
			s, err := a.newSetup(cmd.Context())
			if err != nil {
				return err
			}
			provider, name, _ := strings.Cut(args[0], "/")
			if provider == offline {
				name = offlineModel
			}
			if name == "" || strings.ContainsFunc(name, unicode.IsSpace) {
				return cmdline.Errorf("want PROVIDER/NAME, as nous models lists them")
			}
			if err := s.known(provider); err != nil { // no daemon starts with a provider that is none
				return err
			}
			return s.saveModel(provider, name)
		},
	}
}

// setupArgs is the command that sets up the daemon that is meant, but for the file that gets why
// it has failed; nil where the daemon is another machine's.
func (a *app) setupArgs() []string {
	self, err := os.Executable()
	if err != nil || a.far != nil {
		return nil
	}
	return []string{self, "--socket", a.socket, "setup", "--" + whyFlag}
}

// setupRun is one run of a command that changes keys or the daemon's model.
type setupRun struct {
	*app
	ctx    context.Context
	dir    string // of the daemon's configuration
	in     *bufio.Reader
	models []protocol.ListedModel // as of the last look, the servers asked
	agents []protocol.AgentInfo   // as of listAgents

	untried bool         // the provider did not answer when its key was tried
	undo    func() error // takes the server out of config.toml that this run has put there, if any
}

// newSetup starts the daemon where none runs.
func (a *app) newSetup(ctx context.Context) (*setupRun, error) {
	if a.far != nil || len(a.hosts) > 0 {
		return nil, cmdline.Errorf("keys and the daemon's model are files of its machine: run nous there")
	}
	s := &setupRun{app: a, ctx: ctx, dir: setup.ConfigDir(os.Getenv), in: bufio.NewReader(io.LimitReader(a.in, maxPasted))}
	return s, s.listModels(false)
}

// listAgents asks the daemon which agents there are.
func (s *setupRun) listAgents() error {
	r, err := request(s.ctx, s.app, protocol.ListAgents, protocol.ListAgentsParams{})
	s.agents = r.Agents
	return err
}

// listModels asks the daemon which models there are; the daemon asks the servers, with saved keys
// where saved is set. What servers of this machine list is that of the provider that the
// catalogue has at their port.
func (s *setupRun) listModels(saved bool) error {
	r, err := request(s.ctx, s.app, protocol.ListModels, protocol.ListModelsParams{Probe: true, Saved: saved})
	for i, m := range r.Models {
		if m.Source == "server" && m.Provider == "openai" {
			r.Models[i].Provider = cmp.Or(localProvider(m.BaseURL), m.Provider)
		}
	}
	s.models = r.Models
	return err
}

// reload has the daemon read the keys and its configuration.
func (s *setupRun) reload() error {
	r, err := request(s.ctx, s.app, protocol.ReloadTools, protocol.ReloadToolsParams{})
	for _, wrong := range r.Errors {
		s.Notef("%s", wrong)
	}
	return err
}

// asks tells whether questions can be asked.
func (s *setupRun) asks() bool { return s.personThere() }

// choose asks for one of some lines by its number or its word; Enter is the first. Any other
// word is the answer where takes has nothing against it.
func (s *setupRun) choose(question string, words, about []string, takes func(string) error) (string, error) {
	for i, word := range words[:min(len(words), maxChoices)] {
		fmt.Fprintf(s.Err, "  %2d  %-28s %s\n", i+1, word, s.ErrStyle.Paint(plain.Dim, about[i]))
	}
	if more := len(words) - maxChoices; more > 0 {
		s.Notef("      and %d more: write a name", more)
	}
	for {
		fmt.Fprintf(s.Err, "%s [%s] ", question, words[0])
		line, err := s.in.ReadString('\n')
		answer := strings.TrimSpace(line)
		n, noNumber := strconv.Atoi(answer)
		switch {
		case err != nil && answer == "":
			return "", errors.New("no answer; nothing was changed")
		case answer == "":
			return words[0], nil
		case noNumber == nil && n >= 1 && n <= min(len(words), maxChoices):
			return words[n-1], nil
		case noNumber != nil && slices.Contains(words, answer):
			return answer, nil
		case noNumber != nil:
			if err = takes(answer); err == nil {
				return answer, nil
			}
			s.Complain(err.Error())
			continue
		}
		s.Notef("write a number from 1 to %d, or a name", min(len(words), maxChoices))
	}
}

// hasKey tells whether the daemon has a key that is taken, or needs none.
func (s *setupRun) hasKey(provider string) bool {
	p, ok := catalogue.FindProvider(provider)
	if ok && p.KeyVariable == "" {
		return true
	}
	row, found := s.row(provider)
	return found && row.Reachable != nil && !row.Refused
}

// row is what is known of a provider's server.
func (s *setupRun) row(provider string) (protocol.ListedModel, bool) {
	for _, m := range s.models {
		if m.Provider == provider && m.Source != "server" {
			return m, true
		}
	}
	return protocol.ListedModel{}, false
}

// maxKeys is how often a person is asked for a key that the provider takes.
const maxKeys = 3

// login reads a key where one is wanted, saves it, and tries it. One that is refused is not
// kept, and a person is asked for another.
func (s *setupRun) login(provider string, wanted bool) error {
	if !wanted && (s.asks() || !s.inputFollows()) {
		return nil
	}
	if f, ok := s.app.in.(*os.File); ok && plain.IsTerminal(f) { // also what is pasted between two tries
		show, err := plain.HideInput(f)
		if err != nil {
			return fmt.Errorf("the terminal cannot hide what is written: %w", err)
		}
		defer func() { _ = show() }()
	}
	for asked := 1; ; asked++ {
		key, err := s.readKey(provider)
		if err != nil {
			return err
		}
		refused, err := s.tryKey(provider, key)
		if refused != "" {
			s.Complain(fmt.Sprintf("%s does not take this key: %s", provider, refused))
		}
		if err != nil || refused == "" {
			return err
		}
		if asked == maxKeys || !s.asks() {
			s.Notef("the key is not kept")
			return &quietExit{exitNoModel}
		}
		s.Notef("the key is not kept; copy it again")
	}
}

// tryKey saves a key and has the daemon try it. One that is refused, or that nobody waits for
// any more, gives way to the one that was saved before; refused is what the provider says.
func (s *setupRun) tryKey(provider, key string) (refused string, err error) {
	saved, _ := credentials.Read(s.dir) // what is wrong with others is theirs
	trying := *s
	ctx, stop := signal.NotifyContext(s.ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	trying.ctx = ctx
	takeBack := func() error {
		return errors.Join(credentials.TakeBack(s.dir, provider, key, saved[provider]), s.reload())
	}
	if err := credentials.Save(s.dir, provider, key); err != nil {
		return "", err
	}
	err = errors.Join(trying.reload(), trying.listModels(true))
	s.models = trying.models
	if ctx.Err() != nil {
		s.Notef("the key was not tried, and is not kept")
		return "", errors.Join(takeBack(), &quietExit{exitLeft})
	}
	if err != nil {
		return "", fmt.Errorf("the key is saved in %s, and was not tried: %w", s.dir, err)
	}
	row, found := s.row(provider)
	switch {
	case !found:
		return "", fmt.Errorf("the key is saved in %s, and the daemon does not see it: is its configuration somewhere else?",
			s.dir)
	case row.Refused:
		return row.Problem, takeBack()
	case row.NoCredit:
		s.Notef("the key is saved; %s takes it, and there is no credit left: add some there, then go on", provider)
	case row.Reachable != nil && !*row.Reachable:
		s.Notef("the key is saved; it could not be tried: %s", row.Problem)
		s.untried = true
	default:
		s.Notef("the key works")
	}
	if row.KeyVariable != "" {
		s.Notef("the daemon has another key in its environment, in %s, and uses that one until the variable is gone",
			row.KeyVariable)
	}
	return "", nil
}

// readKey reads a key without showing it, or the first line of standard input.
func (s *setupRun) readKey(provider string) (string, error) {
	f, terminal := s.app.in.(*os.File)
	if terminal = terminal && plain.IsTerminal(f); !terminal {
		line, err := s.in.ReadString('\n')
		if line = strings.TrimSpace(line); line != "" {
			return line, nil
		}
		if err != nil && err != io.EOF {
			return "", fmt.Errorf("standard input: %w", err)
		}
		return "", errors.New("want the key on standard input: its first line is empty")
	}
	ctx, stop := signal.NotifyContext(s.ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	show, err := plain.HideInput(f)
	if err != nil {
		return "", fmt.Errorf("the terminal cannot hide what is written: %w", err)
	}
	fmt.Fprintf(s.Err, "Key of %s (it is not shown): ", provider)
	type pasted struct {
		line string
		err  error
	}
	read := make(chan pasted, 1)
	go func() { // ends with a line, or with the process
		line, err := s.in.ReadString('\n')
		read <- pasted{line, err}
	}()
	select {
	case p := <-read:
		fmt.Fprintln(s.Err)
		key := strings.TrimSpace(p.line)
		switch {
		case key != "":
			return key, show()
		case p.err != nil && p.err != io.EOF:
			return "", errors.Join(p.err, show())
		}
		return "", errors.Join(errors.New("no key was given; nothing was changed"), show())
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return "", errors.Join(show(), &quietExit{exitLeft})
	}
}

// chooseModel asks for one of a provider's models, the default one first.
func (s *setupRun) chooseModel(provider string) (string, error) {
	var names []string
	for _, m := range s.models {
		if m.Provider == provider && m.Name != "" && m.Problem == "" {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names) // of one kind the newest comes first
	first := catalogue.Default(provider)
	if first != "" && len(names) > 0 && !slices.Contains(names, first) {
		first = names[0]
	}
	if first == "" && len(names) > 0 {
		first = names[0]
	}
	if !s.asks() {
		if first == "" {
			return "", fmt.Errorf("%s does not list its models: nous model %s/NAME chooses one", provider, provider)
		}
		return first, nil
	}
	words := []string{}
	for _, name := range append([]string{first}, names...) {
		if name != "" && !slices.Contains(words, name) {
			words = append(words, name)
		}
	}
	if len(words) == 0 {
		return "", fmt.Errorf("%s does not list its models: nous model %s/NAME chooses one", provider, provider)
	}
	about := make([]string, len(words))
	for i, name := range words {
		about[i] = aboutModel(provider, name)
	}
	return s.choose("Model?", words, about, func(name string) error {
		if strings.ContainsFunc(name, unicode.IsSpace) || len(name) > 200 {
			return fmt.Errorf("%.200q cannot be the name of a model", name)
		}
		return nil
	})
}

// aboutModel is what the catalogue knows of a model, for people.
func aboutModel(provider, name string) string {
	m, ok := catalogue.Find(provider, name)
	if !ok {
		return ""
	}
	text := ""
	if m.Window > 0 {
		text = fmt.Sprintf("%dk tokens", m.Window/1000)
	}
	if len(m.Prices) > 0 {
		text += fmt.Sprintf("  $%s in, $%s out for a million", m.Prices[0].Input, m.Prices[0].Output)
	}
	return text
}

// saveModel writes the choice, has the daemon take it, and says what answers now.
func (s *setupRun) saveModel(provider, name string) error {
	if err := setup.SaveModel(s.dir, provider, name); err != nil {
		return err
	}
	if err := s.reload(); err != nil {
		return err
	}
	st, err := s.daemonState(s.ctx)
	switch {
	case err != nil:
		return err
	case st.Model.Provider != provider || st.Model.Name != name:
		return fmt.Errorf(
			"it is written to %s, but the daemon has %s: it was started with --model, NOUSED_MODEL or another configuration, "+
				"or another nous setup has chosen since; unset NOUSED_MODEL and run nous stop: the next command starts one with "+
				"what is written",
			s.dir, modelWord(st.Model))
	}
	what := " answers now"
	if s.untried {
		what = " is chosen"
	}
	s.Println(modelWord(st.Model) + what +
		". Sessions that another model has answered keep it: nous set-model default changes that")
	return nil
}

// daemonState is get_state of the daemon, without a session.
func (a *app) daemonState(ctx context.Context) (protocol.State, error) {
	return request(ctx, a, protocol.GetState, protocol.GetStateParams{Daemon: true})
}

func modelWord(m protocol.ModelInfo) string {
	if m.Provider == "" {
		return "no model"
	}
	return strings.TrimSuffix(m.Provider+"/"+m.Name, "/")
}
