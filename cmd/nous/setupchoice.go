package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/model/catalogue"
	"noused/internal/protocol"
	"noused/internal/setup"
)

// setupChoice is who is to answer: a provider of models, an agent, or a server that is no
// provider yet.
type setupChoice struct {
	provider string
	agent    string
	other    bool
	address  string // of the other server; "" is asked for
}

// otherServer is the word for a server that neither the catalogue nor the configuration has.
const otherServer = "other"

// named is what a word means.
func (s *setupRun) named(word string) (setupChoice, error) {
	wrong := s.known(word)
	switch {
	case strings.Contains(word, "://"):
		return setupChoice{other: true, address: word}, nil
	case wrong == nil:
		return setupChoice{provider: word}, nil
	case word == otherServer && s.asks():
		return setupChoice{other: true}, nil
	case word == otherServer:
		return setupChoice{}, cmdline.Errorf("want the server's URL in the place of other: there is no terminal to ask on")
	}
	if err := s.listAgents(); err != nil {
		return setupChoice{}, err
	}
	var names []string
	for _, agent := range s.agents {
		if names = append(names, agent.Name); word == agent.Name || word == agentWord(agent.Name) {
			return setupChoice{agent: agent.Name}, nil
		}
	}
	return setupChoice{}, s.unknown("provider or agent", word, append(s.providers(), names...))
}

// agentWord is what an agent is chosen by: its name, where no provider has that.
func agentWord(name string) string {
	if _, clash := catalogue.FindProvider(name); clash {
		return "agent " + name
	}
	return name
}

// providers are the names of those that can be chosen.
func (s *setupRun) providers() []string {
	names := catalogue.Names()
	for _, m := range s.models {
		names = append(names, m.Provider)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// known says that there is no such provider.
func (s *setupRun) known(provider string) error {
	if names := s.providers(); !slices.Contains(names, provider) {
		return s.unknown("provider", provider, names)
	}
	return nil
}

func (s *setupRun) unknown(what, name string, names []string) error {
	hint := cmp.Or(cmdline.DidYouMean(name, names),
		"; nous models lists the providers that have a key, docs/models.md all")
	return cmdline.Errorf("there is no %s %.64q%s", what, name, hint)
}

// setupNames are the words that nous setup takes, for a shell.
func (a *app) setupNames(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.agentNames(cmd, nil, "")
	names = append(slices.DeleteFunc(names, func(name string) bool { return name == protocol.OwnAgent }),
		catalogue.Names()...)
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !strings.HasPrefix(name, typed) })
	return completions(names, nil)
}

// chooseProvider asks who is to answer: those that could now come first.
func (s *setupRun) chooseProvider() (setupChoice, error) {
	if !s.asks() {
		return setupChoice{}, cmdline.Errorf(
			"want the name of a provider or agent, or a URL: there is no terminal to ask on")
	}
	if err := s.listAgents(); err != nil {
		return setupChoice{}, err
	}
	words, about := s.choices()
	var choice setupChoice
	word, err := s.choose("Provider?", words, about, func(word string) (err error) {
		choice, err = s.named(word)
		return err
	})
	if err == nil && slices.Contains(words, word) {
		choice, err = s.named(word)
	}
	return choice, err
}

// choices are the words for who can be chosen, and what is known of each.
func (s *setupRun) choices() (words, about []string) {
	add := func(name, what string) {
		if name != offline && name != "module" && !slices.Contains(words, name) {
			words, about = append(words, name), append(about, what)
		}
	}
	for _, m := range s.models {
		if m.Source != "server" && m.Reachable != nil && !m.Refused {
			add(m.Provider, aboutKey(m))
		}
	}
	for _, m := range s.models {
		if m.Source == "server" && localProvider(m.BaseURL) == m.Provider {
			add(m.Provider, "answers on this machine, with "+s.someModels(m.Provider))
		}
	}
	for _, agent := range s.agents {
		if agent.Found {
			add(agentWord(agent.Name), "an agent on this machine, with its own login")
		} else if notInPath(agent) != "" {
			add(agentWord(agent.Name), "an agent on this machine; the daemon's PATH does not have it")
		} else if _, err := exec.LookPath(agent.Name); err == nil {
			add(agentWord(agent.Name), "an agent on this machine; it needs "+plain.Cell(agent.Command[0]))
		}
	}
	for _, name := range []string{
		"anthropic", "openai", "gemini", "openrouter", "deepseek", "mistral", "xai", "groq",
		"moonshot", "zai", "ollama",
	} {
		add(name, "")
	}
	for _, name := range catalogue.Names() {
		add(name, "")
	}
	last := min(len(words), maxChoices-1) // of the lines that are shown
	return slices.Insert(words, last, otherServer),
		slices.Insert(about, last, "an OpenAI-compatible server: its URL is asked for")
}

// aboutKey says where a provider's key is, and whether it can be used.
func aboutKey(m protocol.ListedModel) string {
	text := "its key is there"
	if m.KeyVariable != "" {
		text += ", in " + plain.Cell(m.KeyVariable)
	}
	switch {
	case m.NoCredit:
		text += "; there is no credit left"
	case !*m.Reachable:
		text += "; it does not answer now"
	}
	return text
}

// someModels are the first models of a provider, and how many more there are.
func (s *setupRun) someModels(provider string) string {
	var names []string
	for _, m := range s.models {
		if m.Provider == provider && m.Name != "" {
			names = append(names, plain.OneLine(m.Name, 40))
		}
	}
	text := strings.Join(names[:min(len(names), 2)], ", ")
	if more := len(names) - 2; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// localProvider is the provider without a key that comes at the port of a server of this
// machine, "" where there is none.
func localProvider(baseURL string) string {
	at, err := url.Parse(baseURL)
	if err != nil || at.Hostname() != "127.0.0.1" {
		return ""
	}
	for _, name := range catalogue.Names() {
		p, _ := catalogue.FindProvider(name)
		for _, server := range p.Servers {
			u, err := url.Parse(server)
			if err == nil && p.KeyVariable == "" && u.Hostname() == "localhost" && u.Port() == at.Port() {
				return name
			}
		}
	}
	return ""
}

// saveAgent has an agent make the turns of new sessions.
func (s *setupRun) saveAgent(name string) error {
	find := func() protocol.AgentInfo {
		if i := slices.IndexFunc(s.agents, func(a protocol.AgentInfo) bool { return a.Name == name }); i >= 0 {
			return s.agents[i]
		}
		return protocol.AgentInfo{Problem: fmt.Sprintf("there is no agent %q any more", name)}
	}
	if agent := find(); !agent.Found {
		return errors.New(cmp.Or(notInPath(agent), agent.Problem))
	}
	if err := setup.SaveAgent(s.dir, name); err != nil {
		return err
	}
	if err := errors.Join(s.reload(), s.listAgents()); err != nil {
		return err
	}
	agent := find()
	if !agent.Default {
		return fmt.Errorf("it is written to %s, and the daemon did not take it: is its configuration somewhere else?", s.dir)
	}
	s.Println(name + " answers in new sessions now; nous setup PROVIDER chooses a model instead")
	if agent.SignIn != "" {
		s.Notef("it uses its own login; without one: %s", plain.Cell(agent.SignIn))
	}
	return nil
}

// notInPath says what to do about an agent that is in the PATH of this shell alone, "" for any
// other.
func notInPath(agent protocol.AgentInfo) string {
	if len(agent.Command) == 0 {
		return ""
	}
	path, err := exec.LookPath(agent.Command[0])
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s is in the PATH of this shell, and not in the daemon's: nous stop, then nous setup %s starts "+
		"one that has it; where systemd starts the daemon, systemctl --user import-environment PATH goes first",
		plain.Cell(path), agent.Name)
}

// maxAddresses is how often a person is asked for the URL of a server that answers.
const maxAddresses = 3

// addServer makes a provider of a server at an address, which is tried at once. One that does
// not answer as such a server is not kept, and a person is asked for another.
func (s *setupRun) addServer(address string) (provider string, err error) {
	for asked := 1; ; asked++ {
		if address == "" {
			fmt.Fprint(s.Err, "Its URL, as http://box:8000/v1: ")
			line, _ := s.in.ReadString('\n')
			if address = strings.TrimSpace(line); address == "" {
				return "", errors.New("no URL was given; nothing was changed")
			}
		}
		provider, problem, err := s.tryServer(address)
		if err != nil || problem == "" {
			return provider, err
		}
		if asked == maxAddresses || !s.asks() {
			return "", fmt.Errorf("%s; it is not kept", problem)
		}
		s.Complain(problem)
		address = ""
	}
}

// tryServer has the daemon know a server and ask it for its models. Problem says why it is
// not kept.
func (s *setupRun) tryServer(address string) (provider, problem string, err error) {
	at, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" || at.User != nil ||
		at.RawQuery != "" || at.Fragment != "" {
		return "", fmt.Sprintf("%.200q is no URL of a server: want http:// or https://, a host, and a path that "+
			"ends in /v1 most often", address), nil
	}
	if at.Path == "" {
		at.Path = "/v1"
	}
	provider, undo, err := setup.AddServer(s.dir, setup.ServerName(at), at.String(), func(name string) bool {
		_, known := catalogue.FindProvider(name)
		return known || name == "module" || name == "default" || name == offline
	})
	if err != nil {
		return "", "", err
	}
	trying := *s
	ctx, stop := signal.NotifyContext(s.ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	trying.ctx = ctx
	takeBack := func() error { return errors.Join(undo(), s.reload()) }
	err = errors.Join(trying.reload(), trying.listModels(true))
	s.models = trying.models
	row, found := s.row(provider)
	switch {
	case ctx.Err() != nil:
		s.Notef("the server was not tried, and is not kept")
		return "", "", errors.Join(takeBack(), &quietExit{exitLeft})
	case err != nil:
		return "", "", errors.Join(err, takeBack())
	case !found:
		return "", "", errors.Join(fmt.Errorf(
			"the daemon does not see what was written to %s: is its configuration somewhere else?", s.dir), takeBack())
	case row.Refused || row.NoCredit:
	case row.Problem != "":
		return "", fmt.Sprintf("%s does not answer as a server of models: %s", plain.Cell(at.String()),
			plain.OneLine(row.Problem, plain.LineWidth)), takeBack()
	default:
		s.Notef("it answers, with %s", cmp.Or(s.someModels(provider), "no models"))
	}
	s.undo = takeBack
	return provider, "", nil
}

// dropServer forgets the server that this run has put into config.toml, as no key of it is kept: why.
func (s *setupRun) dropServer(why error) error {
	if s.undo == nil {
		return why
	}
	s.Notef("the server is not kept")
	return errors.Join(s.undo(), why)
}
