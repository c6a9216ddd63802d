package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

// Bounds of what show looks through.
const (
	maxShowSessions = 200 // the newest
	maxShowBranches = 20  // of a session, for a run
)

func (a *app) showCommand() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "show [RUN|MESSAGE|SESSION]",
		Short: "Show one run, one message or the facts of a session",
		Long: `Show one run, one message or the facts of a session, by its id or by a beginning
of the id that no other has. It is looked for in the 200 newest sessions, on all
their branches; with --session in that session only. A session may also be
called by its title. Without an argument it is the session that --session names,
or that of this folder.`,
		Example: `  nous show run-0198c5f2
  nous show --raw msg-0198c5f2`,
		Args:              cmdline.Wants(0, 1, "RUN, MESSAGE or SESSION, an id or the beginning of one, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.show(cmd.Context(), args[0], full)
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			if scope.SessionID == "" { // the active one
				state, err := ask(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{})
				if err != nil {
					return err
				}
				scope.SessionID = state.SessionID
			}
			return a.show(cmd.Context(), scope.SessionID, full)
		},
	}
	a.rawFlag(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "print the tool calls and results of a run whole")
	return cmd
}

func (a *app) show(ctx context.Context, name string, full bool) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	f := &finder{a: a, c: c, name: name, ids: map[string]bool{}, taken: map[string]bool{}}
	if f.sessions, err = f.list(ctx); err != nil {
		return err
	}
	if s, ok, err := f.session(); err != nil || ok {
		if err == nil {
			err = a.printFacts(s)
		}
		return err
	}
	if err := f.look(ctx); err != nil {
		return err
	}
	if f.run != nil {
		return a.printRun(ctx, c, *f.run, full)
	}
	return a.printWhole(f.in, f.entry)
}

// finder looks for what a name means: a session, else entries and runs.
type finder struct {
	a        *app
	c        *client.Client
	name     string
	sessions []protocol.SessionInfo
	ids      map[string]bool // of what was found
	run      *foundRun
	taken    map[string]bool // run's messages
	in       string
	entry    jsontext.Value // in that session
}

// foundRun is a run: what it left in a session, on all branches.
type foundRun struct {
	SessionID string           `json:"session_id"`
	RunID     string           `json:"run_id"`
	Messages  []jsontext.Value `json:"messages"`
}

func (f *finder) list(ctx context.Context) ([]protocol.SessionInfo, error) {
	limit := maxShowSessions
	r, err := call(ctx, f.a, f.c, protocol.ListSessions, protocol.ListSessionsParams{Limit: &limit})
	if err != nil || f.a.session == "" {
		return r.Sessions, err
	}
	for _, s := range r.Sessions {
		if s.SessionID == f.a.session {
			return []protocol.SessionInfo{s}, nil
		}
	}
	return []protocol.SessionInfo{{SessionID: f.a.session}}, nil
}

// session is the session that the name means.
func (f *finder) session() (protocol.SessionInfo, bool, error) {
	var found []protocol.SessionInfo
	for _, s := range f.sessions {
		switch {
		case s.SessionID == f.name:
			return s, true, nil
		case strings.HasPrefix(s.SessionID, f.name) && strings.HasPrefix(f.name, "ses-"), s.Title == f.name:
			found = append(found, s)
			f.ids[s.SessionID] = true
		}
	}
	if len(found) == 0 && !strings.HasPrefix(f.name, "ses-") {
		return protocol.SessionInfo{}, false, nil
	}
	if err := f.one(); err != nil {
		return protocol.SessionInfo{}, false, err
	}
	return found[0], true, nil
}

// one fails unless the name means one thing.
func (f *finder) one() error {
	switch n := len(f.ids); n {
	case 0:
		return fmt.Errorf("nothing in the %s that were looked through has the id %s",
			format.Count(len(f.sessions), "session"), f.name)
	case 1:
		return nil
	default:
		return fmt.Errorf("%s is the beginning of %d ids; more of it says which is meant", f.name, n)
	}
}

// look goes through the sessions' entries. A whole id ends it.
func (f *finder) look(ctx context.Context) error {
	for _, s := range f.sessions {
		scope := protocol.Scope{SessionID: s.SessionID}
		tree, err := call(ctx, f.a, f.c, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
		var wire *protocol.Error
		if errors.As(err, &wire) && !errors.Is(err, client.ErrUnsupported) {
			continue // deleted meanwhile, or its journal cannot be read
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(f.name, "run-") {
			err = f.runsIn(ctx, tree)
		} else {
			err = f.entriesIn(ctx, tree)
		}
		if err != nil || f.ids[f.name] {
			return err
		}
	}
	return f.one()
}

func (f *finder) entriesIn(ctx context.Context, tree protocol.Tree) error {
	for _, n := range tree.Nodes {
		if !strings.HasPrefix(n.ID, f.name) {
			continue
		}
		known := len(f.ids) > 0
		if f.ids[n.ID] = true; known {
			continue
		}
		if err := f.read(ctx, tree.SessionID, n.ID); err != nil {
			return err
		}
	}
	return nil
}

// read takes an entry. It is asked for as the end of its branch; an older entry
// that stands for others is not the last one there.
func (f *finder) read(ctx context.Context, session, id string) error {
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: session}, LeafID: id}
	for page, err := range client.Pages(p, f.a.messagesFrom(ctx, f.c)) {
		if err != nil {
			return err
		}
		for _, entry := range page.Messages {
			var of struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(entry, &of, jsontext.AllowInvalidUTF8(true)); err != nil {
				return fmt.Errorf("decode entry: %w", err)
			}
			if of.ID == id {
				f.in, f.entry = session, entry
				return nil
			}
		}
	}
	return fmt.Errorf("%s: the daemon does not tell it", id)
}

// runsIn goes through the branches of a session, the newest first.
func (f *finder) runsIn(ctx context.Context, tree protocol.Tree) error {
	tips := tipsOf(tree)
	for i := range min(len(tips), maxShowBranches) {
		p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: tree.SessionID}, LeafID: tips[len(tips)-1-i]}
		for page, err := range client.Pages(p, f.a.messagesFrom(ctx, f.c)) {
			if err == nil {
				err = f.addMessages(page)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *finder) addMessages(r protocol.Messages) error {
	for _, entry := range r.Messages {
		var of struct {
			ID    string `json:"id"`
			RunID string `json:"run_id"`
		}
		if err := json.Unmarshal(entry, &of, jsontext.AllowInvalidUTF8(true)); err != nil {
			return fmt.Errorf("decode entry: %w", err)
		}
		if !strings.HasPrefix(of.RunID, f.name) {
			continue
		}
		f.ids[of.RunID] = true
		if f.run == nil {
			f.run = &foundRun{SessionID: r.SessionID, RunID: of.RunID}
		}
		if f.run.SessionID == r.SessionID && f.run.RunID == of.RunID && !f.taken[of.ID] {
			f.taken[of.ID] = true
			f.run.Messages = append(f.run.Messages, entry)
		}
	}
	return nil
}

// printFacts prints what list_sessions knows of a session.
func (a *app) printFacts(s protocol.SessionInfo) error {
	if a.json {
		return a.encodeLine(s)
	}
	pairs := [][2]string{{"session", s.SessionID}}
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, [2]string{key, value})
		}
	}
	add("title", oneLine(s.Title, 200))
	add("folder", a.folderText(s.Workdir))
	if repo, branch, ok := a.worktreeOf(s.Workdir); ok {
		add("worktree", describeWorktree(repo, branch))
	}
	add("made", stamp(s.CreatedAt))
	add("last used", stamp(s.UpdatedAt))
	add("branched from", s.ParentID)
	add("state", string(s.RunState))
	add("waiting for", string(s.WaitingFor))
	if w := s.Working; w != nil {
		add("run", w.RunID+", since "+stamp(w.StartedAt))
		add("tool", w.ToolName)
	}
	add("last run", string(s.LastStopReason))
	if s.Unread {
		add("unread", "yes")
	}
	add("model", modelName(s.Model))
	add("messages", fmt.Sprint(s.Messages))
	add("usage", describeCost(s.Usage))
	add("last said", oneLine(s.LastText, lineWidth))
	a.printPairs(pairs)
	return nil
}

// printRun prints what a run was and what was said in it.
func (a *app) printRun(ctx context.Context, c *client.Client, r foundRun, full bool) error {
	if a.json {
		return a.encodeLine(r)
	}
	sum, err := sumUp(r)
	if err != nil {
		return err
	}
	state, err := call(ctx, a, c, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: r.SessionID}})
	if err != nil {
		return err
	}
	end := sum.end
	switch last := state.LastRun; {
	case state.RunID == r.RunID:
		end = string(state.RunState)
	case last != nil && last.RunID == r.RunID:
		end = string(last.StopReason)
		if last.Error != nil {
			end += ": " + describeError(last.Error.Code, last.Error.Message, "")
		}
	}
	a.printPairs([][2]string{
		{"run", r.RunID},
		{"session", strings.TrimSpace(r.SessionID + " " + oneLine(state.Title, 60))},
		{"began", stamp(sum.began)},
		{"took", sum.took().String()},
		{"result", oneLine(end, 2*lineWidth)},
		{"models", oneLine(strings.Join(sum.models, ", "), lineWidth)},
		{"tools", oneLine(cmp.Or(strings.Join(sum.tools, ", "), "none"), 2*lineWidth)},
		{"usage", describeCost(sum.usage)},
	})
	for _, entry := range r.Messages {
		a.println("")
		if err := a.printEntry(entry, full); err != nil {
			return err
		}
	}
	return nil
}

// runSum is what the messages of a run say together.
type runSum struct {
	began, ended time.Time
	models       []string
	tools        []string // each once, with how often it was called
	usage        protocol.Usage
	end          string
}

func (s runSum) took() time.Duration { return s.ended.Sub(s.began).Round(time.Millisecond) }

func sumUp(r foundRun) (s runSum, err error) {
	var calls []string
	for _, entry := range r.Messages {
		var m protocol.Message
		if err := json.Unmarshal(entry, &m, jsontext.AllowInvalidUTF8(true)); err != nil {
			return s, fmt.Errorf("decode message: %w", err)
		}
		if s.began.IsZero() {
			s.began = m.CreatedAt
		}
		s.ended, s.end = m.CreatedAt, "not known"
		if m.Role == "assistant" {
			if s.end = string(m.StopReason); m.StopReason == protocol.StopEnd {
				s.end = string(protocol.StopCompleted)
			}
		}
		if m.Model != "" && !slices.Contains(s.models, m.Model) {
			s.models = append(s.models, m.Model)
		}
		for _, call := range m.ToolCalls {
			calls = append(calls, call.Name)
		}
		addUsage(&s.usage, m.Usage)
	}
	s.tools = counted(calls)
	return s, nil
}

// counted is a list with each word once: "read × 2".
func counted(words []string) (once []string) {
	slices.Sort(words)
	for len(words) > 0 {
		n := 1
		for n < len(words) && words[n] == words[0] {
			n++
		}
		word := words[0]
		if n > 1 {
			word = fmt.Sprintf("%s × %d", word, n)
		}
		once, words = append(once, word), words[n:]
	}
	return once
}

func addUsage(sum, u *protocol.Usage) {
	if u == nil {
		return
	}
	sum.InputTokens += u.InputTokens
	sum.OutputTokens += u.OutputTokens
	sum.CachedTokens += u.CachedTokens
	if u.Cost != nil {
		if sum.Cost == nil {
			sum.Cost = &protocol.Cost{Currency: u.Cost.Currency}
		}
		sum.Cost.Amount += u.Cost.Amount
	}
}

// describeCost is what was used, and what it cost where prices are known.
func describeCost(u protocol.Usage) string {
	text := describeUsage(&u)
	if u.Cost != nil {
		text += ", " + costOf(u.Cost)
	}
	return text
}

func costOf(c *protocol.Cost) string { return fmt.Sprintf("%.4f %s", c.Amount, c.Currency) }

// printWhole prints an entry whole, and where it is.
func (a *app) printWhole(session string, entry jsontext.Value) error {
	if a.json {
		a.printJSON(entry)
		return nil
	}
	if err := a.printEntry(entry, true); err != nil {
		return err
	}
	var m protocol.Message
	if err := json.Unmarshal(entry, &m, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	if m.Thinking != "" {
		a.println("  thinking:")
		a.println(indent(a.fit(m.Thinking), "    "))
	}
	where := []string{session}
	for _, more := range []string{m.RunID, m.Model, string(m.StopReason)} {
		if more != "" {
			where = append(where, oneLine(more, lineWidth))
		}
	}
	if m.Usage != nil {
		where = append(where, describeCost(*m.Usage))
	}
	a.printSpans(span{strings.Join(where, " · "), asDim})
	return nil
}

func (a *app) encodeLine(v any) error {
	line, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	a.printJSON(line)
	return nil
}

func stamp(at time.Time) string { return at.Local().Format(time.DateTime) }
