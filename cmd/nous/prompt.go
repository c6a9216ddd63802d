package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/runs"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// promptFlags are the flags of nous prompt.
type promptFlags struct {
	wait, async              bool
	leaf, whileRunning, idem string
	images                   []string
	title                    string // of a new session
	fresh                    bool   // in a new session
	agent                    string // of a new session
	as                       string // the named agent that makes the run
	activate                 bool
	approvals                string
	detach                   bool // Ctrl-C leaves the run alone
	script                   scriptFlags
}

func (a *app) promptCommand() *cobra.Command {
	var f promptFlags
	cmd := &cobra.Command{
		Use:   "prompt [TEXT… | -]",
		Short: "Start a run and follow it to its end",
		Long: `Start a run with a text and follow it to its end. What the assistant says goes
to standard output as it arrives. Everything else (tools, thinking, warnings) goes
to standard error.

` + inputHelp + `

Ctrl-C aborts the run and waits for its end; a second Ctrl-C does not wait. With
--detach-on-interrupt the first one leaves the run alone.
If the daemon is restarted meanwhile, nous connects again and goes on with the
same run.

What your rules ask about is shown on standard error, and asked there too if that
and standard input are a terminal. nous approve answers from anywhere. Without a
terminal it is denied at once, whatever the session's mode is; with --approvals
ask the mode counts, and the run waits. With --approvals allow nous answers yes to
each call that asks, for this run; what a rule denies stays denied.

The run is in the session of the current folder that was used last. Where there
is none yet, nous makes one. --ephemeral takes a private daemon for this one run.

--json prints each event, --json=result one object at the end: output, stop_reason,
session_id, run_id, usage, cost, changes, error. nous help exit-status lists what
nous exits with.`,
		Example: `  nous prompt what is in this directory
  git diff | nous prompt review this | tee review.txt
  nous prompt --if-running follow-up and then run the tests
  nous prompt --new='fix the parser' the tests fail, see why
  nous prompt -i before.png -i after.png what is different
  nous prompt --ephemeral --max-cost 0.50 --timeout 10m --output-schema s.json list the bugs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.fresh = cmd.Flags().Changed("new")
			return a.prompt(cmd.Context(), args, f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "print the last answer only, when the run has ended")
	flags.BoolVar(&f.async, "async", false, "print the run's id and do not wait for it")
	flags.StringVar(&f.leaf, "leaf", "", "continue from the entry with this `id`")
	flags.StringVar(&f.whileRunning, "if-running", "", "while a run is active, queue the text as `steer|follow-up` of it")
	flags.StringVar(&f.idem, "key", "", "idempotency `key`: the same again within 24 h starts nothing new")
	flags.StringVar(&f.approvals, "approvals", "",
		"`allow|ask|deny` what the rules ask about\n(default: ask, and deny where standard input or error is no terminal)")
	flags.BoolVar(&f.detach, "detach-on-interrupt", false, "let the run go on at Ctrl-C")
	flags.StringVar(&f.title, "new", "", "in a new session of the current folder, with this `title`")
	flags.Lookup("new").NoOptDefVal = noTitle
	a.agentFlag(cmd, &f.agent)
	flags.StringVar(&f.as, "as", "", "make this run as the agent `name` of a file, or as explore or plan, which only read")
	switchFlag(cmd, &f.activate)
	imageFlag(cmd, &f.images)
	f.script.register(cmd)
	a.rawFlag(cmd)
	completeWords(cmd, "if-running", "steer", "follow-up")
	completeWords(cmd, "approvals", "allow", "ask", "deny")
	must(cmd.RegisterFlagCompletionFunc("model", a.modelNames))
	must(cmd.RegisterFlagCompletionFunc("as", a.namedAgents))
	return cmd
}

// check refuses flags that do not go together.
func (f promptFlags) check() error {
	switch {
	case f.activate && !f.fresh && f.agent == "":
		return cmdline.Errorf("--switch goes with --new")
	case f.wait && f.async:
		return cmdline.Errorf("--wait and --async exclude each other")
	case f.async && f.detach:
		return cmdline.Errorf("--async and --detach-on-interrupt exclude each other")
	}
	return nil
}

// prompt starts the run, and shows it as the flags say. With --json=result it prints an
// object also where no run was started.
func (a *app) prompt(ctx context.Context, args []string, f promptFlags) error {
	t := &runs.Tally{
		Console: a.console(), Schema: f.script.schemaFile != "", LastMessage: f.script.lastMessage,
	}
	err := a.promptOnce(ctx, args, f, t)
	if a.result && !t.Ended() && !errors.As(err, new(*cmdline.Error)) {
		t.PrintFailed(err)
	}
	return err
}

func (a *app) promptOnce(ctx context.Context, args []string, f promptFlags, t *runs.Tally) (err error) {
	if err := cmp.Or(f.check(), a.checkScript(f)); err != nil {
		return err
	}
	behavior, err := behaviorOf(f.whileRunning)
	if err != nil {
		return err
	}
	mode, err := a.approvalsOf(f.approvals)
	if err != nil {
		return err
	}
	p := protocol.PromptParams{
		LeafID: f.leaf, StreamingBehavior: behavior, IdempotencyKey: f.idem, Approvals: mode,
		MaxCost: f.script.maxCost, MaxModelCalls: f.script.maxTurns, As: f.as,
	}
	if p.OutputSchema, err = f.script.schema(); err != nil {
		return err
	}
	servers, err := f.script.servers()
	if err != nil {
		return err
	}
	if p.Text, err = a.readText(args); err != nil {
		return err
	}
	if p.Attachments, err = a.attachments(f.images); err != nil {
		return err
	}
	if f.script.ephemeral {
		private, wrong := a.startPrivate(ctx, f.script.keep)
		if wrong != nil {
			return wrong
		}
		defer private.End()
		defer func() {
			if errors.Is(err, client.ErrLost) || isNoDaemon(err) {
				err = private.Lost()
			}
		}()
	}
	if f.fresh || servers != nil || f.script.ephemeral || f.agent != "" {
		p := protocol.NewSessionParams{Title: f.title, Activate: &f.activate, MCPServers: servers, Agent: f.agent}
		if err := a.newHere(ctx, p); err != nil {
			return err
		}
	}
	if p.Scope, err = a.scope(ctx, needOrMake); err != nil {
		return err
	}
	if f.approvals != "" {
		if err := a.mustAsk(ctx, p.Scope); err != nil {
			return err
		}
	}
	if f.as != "" {
		if err := a.mustHaveNamed(ctx, p.Scope); err != nil {
			return err
		}
	}
	if f.script.model == "" && !f.script.ephemeral {
		if text := a.otherModel(ctx, false); text != "" {
			a.Notef("%s", text)
		}
	}
	if err := a.chooseModel(ctx, p.Scope, f.script.model); err != nil {
		return err
	}
	if p.Text, p.Attachments, err = a.expanded(ctx, p.Scope, p.Text, p.Attachments); err != nil {
		return err
	}
	return a.sendPrompt(ctx, p, f, t)
}

// sendPrompt sends the prompt and shows how its run goes.
func (a *app) sendPrompt(ctx context.Context, p protocol.PromptParams, f promptFlags, t *runs.Tally) error {
	held := f.daemonWaits(a) // the answer is the daemon's, events and all
	p.Wait = &held
	if f.async || held {
		p.IdempotencyKey = keyOr(f.idem)
	}
	switch {
	case f.async:
		return query(ctx, a, protocol.Prompt, p, a.printAnswer)
	case held:
		return a.promptAndWait(ctx, p)
	}
	c := t.Console
	t.View = c.NewView()
	switch {
	case a.result:
		t.View = runs.SilentView{}
	case a.JSON:
	case p.OutputSchema != nil:
		t.View = &runs.AnswerView{Console: c}
	case f.wait:
		t.View = &runs.LastView{Console: c}
	}
	if f.approvals == "" && p.Approvals == protocol.ApprovalsDeny {
		t.View = &runs.UnaskedView{View: t.View, Console: c}
	}
	w := &runs.Watch{
		Console: c, Tally: t, Asks: c.NewApprovalPrompt(), Detach: f.detach, Limit: f.script.timeout,
		Abort: a.abortRun, Exit: exitOfWatched,
	}
	if f.approvals == allowAll {
		w.Asks.Allow = w.Allow
	}
	err := a.promptAndFollow(ctx, p, w)
	if lost := isNoDaemon(err) || errors.Is(err, client.ErrLost); lost && t.Run != "" && !f.script.ephemeral {
		a.Notef("run %s is kept, and goes on as soon as a daemon runs", t.Run)
	}
	return cmp.Or(err, t.KeepLast())
}

// daemonWaits reports whether the daemon is to wait for the run, and reply with all its events:
// --wait --json.
func (f promptFlags) daemonWaits(a *app) bool { return f.wait && a.JSON && !a.result }

// noTitle is what --new has without a title: the daemon makes one of the text.
const noTitle = "the prompt"

// newHere makes a session in the current folder, in which the command goes on.
func (a *app) newHere(ctx context.Context, p protocol.NewSessionParams) (err error) {
	if p.Workdir, err = a.folder(); err != nil {
		return err
	}
	if p.Title == noTitle {
		p.Title = ""
	}
	activate := *p.Activate || a.nowhere(p.Workdir)
	p.Activate = &activate
	return a.makeSession(ctx, p)
}

func imageFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "image", "i", nil,
		"show the model this png, jpeg, gif or webp `file`; may be given again")
}

// attachments names files as the daemon, which is on the same machine, finds
// them. They are the daemon's to read.
func attachments(files []string) ([]protocol.AttachmentParams, error) {
	var list []protocol.AttachmentParams
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, fmt.Errorf("--image %s: %w", file, err)
		}
		if file == "" || !utf8.ValidString(path) {
			return nil, cmdline.Errorf("--image %q: want the name of a file", file)
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, cmdline.Errorf("--image %s: no such file or directory", file)
		}
		list = append(list, protocol.AttachmentParams{Path: path})
	}
	return list, nil
}

// behaviorOf is the wire's word for what --if-running says.
func behaviorOf(flag string) (protocol.Kind, error) {
	switch flag {
	case "", "steer":
		return protocol.Kind(flag), nil
	case "follow-up", "follow_up":
		return protocol.KindFollowUp, nil
	default:
		return "", cmdline.Errorf("--if-running %s: want steer or follow-up", flag)
	}
}

// promptAndFollow subscribes before it prompts, so that no event of the run
// can be missed: those that come before the reply wait in the subscription.
func (a *app) promptAndFollow(ctx context.Context, p protocol.PromptParams, w *runs.Watch) error {
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	if w.Limit > 0 {
		soft, cancel := context.WithTimeoutCause(keys.Soft, w.Limit, runs.ErrTimeUp)
		defer cancel()
		keys.Soft = soft
	}
	c, err := a.dial(keys.Hard)
	if err != nil {
		return interruptedExit(err)
	}
	defer c.Close()
	err = client.Meet(keys.Hard, c, protocol.Prompt, p)
	if err == nil && p.IdempotencyKey != "" {
		err = c.KeepsKeys(keys.Hard)
	}
	if err != nil {
		return interruptedExit(err)
	}
	f, err := a.subscribe(keys.Hard, protocol.SubscribeParams{})
	if err != nil {
		return interruptedExit(err)
	}
	w.Keys, w.Feed = keys, f
	defer f.Close()
	w.Doubt = p.IdempotencyKey != "" // the run may be an old one
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	reply, err := call(keys.Hard, a, c, protocol.Prompt, p)
	if err != nil {
		return interruptedExit(err)
	}
	if reply.Accepted == nil || reply.Accepted.RunID == "" {
		return errors.New("prompt: the daemon's reply names no run")
	}
	w.Run, w.Session = reply.Accepted.RunID, reply.Accepted.SessionID
	w.Tally.Run, w.Tally.Session = w.Run, w.Session
	err = w.Follow()
	if !errors.Is(err, cmdline.ErrInterrupted) && !errors.Is(err, client.ErrLost) {
		a.seen(keys.Hard, w.Session)
	}
	return interruptedExit(err)
}

// promptAndWait lets the daemon wait and prints its answer as it is on the wire;
// it still listens to Ctrl-C.
func (a *app) promptAndWait(ctx context.Context, p protocol.PromptParams) error {
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	answered := make(chan error, 1)
	go func() {
		reply, err := fetch(keys.Hard, a, protocol.Prompt, p, a.printAnswer)
		if err == nil && reply.Result != nil {
			err = exitOfResult(reply.Result)
		}
		answered <- interruptedExit(err)
	}()
	select {
	case err := <-answered:
		return err
	case <-keys.Soft.Done():
	}
	if err := a.abortRun(keys.Hard, protocol.AbortParams{Scope: p.Scope}); err != nil {
		return interruptedExit(err)
	}
	return <-answered
}

func (a *app) printAnswer(r protocol.PromptReply) {
	switch {
	case r.Accepted != nil:
		a.Println(r.Accepted.RunID)
	case r.Result.Output != "":
		a.Println(r.Result.Output)
	}
}

// exitOfResult is the error that sets the exit status by the events of a result.
func exitOfResult(r *protocol.PromptResult) error {
	denied := false
	for _, line := range r.Events {
		var env protocol.EventEnvelope
		if err := json.Unmarshal(line, &env); err != nil {
			return nil
		}
		switch ev, _ := client.Decode(env); ev := ev.(type) {
		case protocol.ToolEnd:
			denied = denied || runs.IsDenied(ev)
		case protocol.AgentEnd:
			return exitOfRun(ev, denied)
		}
	}
	return nil
}

// interruptedExit turns the error of a second Ctrl-C into its exit status; others pass.
func interruptedExit(err error) error {
	if errors.Is(err, cmdline.ErrInterrupted) {
		return &quietExit{exitLeft}
	}
	return err
}

// abortRun aborts, and tells what the daemon hands back. That the run has
// ended already is no error.
func (a *app) abortRun(ctx context.Context, p protocol.AbortParams) error {
	what := "the run"
	if p.RunID != "" {
		what = p.RunID
	}
	a.Notef("aborting %s; Ctrl-C leaves without waiting for its end", what)
	reply, err := request(ctx, a, protocol.Abort, p)
	var wire *protocol.Error
	if errors.As(err, &wire) && wire.Code == protocol.CommandRejected {
		return nil
	}
	if err != nil {
		return err
	}
	a.HandBack(reply.Discarded)
	return nil
}
