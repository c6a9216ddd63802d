package tui

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// newestQueued is the id of the text that waits and was sent last, as far as
// this screen knows: of its own, else the one that is delivered last. It is ""
// where none waits, or the core does not name them.
func (m *model) newestQueued() string {
	waits := m.state.Queued.Inputs
	for _, id := range slices.Backward(m.ours) {
		if slices.ContainsFunc(waits, func(in protocol.QueuedInput) bool { return in.InputID == id }) {
			return id
		}
	}
	if len(waits) == 0 {
		return ""
	}
	return waits[len(waits)-1].InputID
}

// takeBack takes the newest text that waits back into the input, which is empty,
// and tells whether there is one.
func (m *model) takeBack() bool {
	id := m.newestQueued()
	lacks := refusal(m.link, protocol.Withdraw, protocol.WithdrawParams{})
	switch {
	case slices.Contains(m.working, "take-back"):
	case id != "":
		m.do("take-back", func(ctx context.Context, p place) outcome { return withdraw(ctx, p, id) })
	case m.state.PendingCounts.Steer+m.state.PendingCounts.FollowUp > 0 && lacks != nil:
		m.talk.Notice("info", explain(lacks, "to take a queued text back").Error()+"; "+
			m.keyed("stop", "ends the run and gives back all"))
		return false
	default:
		return false
	}
	return true
}

func withdraw(ctx context.Context, p place, id string) outcome {
	r, err := ask(ctx, p, protocol.Withdraw, protocol.WithdrawParams{Scope: p.scope(), InputID: id})
	if err != nil {
		return failed(explain(err, "to take a queued text back"))
	}
	return outcome{back: []string{r.Text}}
}

// newestWaiting is takeBack for the command.
func newestWaiting(ctx context.Context, p place, _ string) outcome {
	waits := p.state.Queued.Inputs
	if len(waits) == 0 {
		return failed(errors.New("no queued text waits that could be taken back"))
	}
	return withdraw(ctx, p, waits[len(waits)-1].InputID)
}

// editLast goes on in a branch from before the user's last message, whose text
// is in the input.
func editLast(ctx context.Context, p place, _ string) outcome {
	branch := protocol.BranchSessionParams{SessionID: p.state.SessionID, LeafID: "of the message"}
	switch err := refusal(p.link, protocol.BranchSession, branch); {
	case err != nil:
		return failed(err)
	case p.running():
		return failed(errors.New("a run is active: its messages can be edited when it is over"))
	}
	var last *protocol.Message
	for page, err := range client.Pages(protocol.GetMessagesParams{Scope: p.scope()},
		func(params protocol.GetMessagesParams) (protocol.Messages, error) {
			return ask(ctx, p, protocol.GetMessages, params)
		}) {
		if err == nil {
			last, err = lastUser(page.Messages, last)
		}
		if err != nil {
			return failed(err)
		}
	}
	if last == nil {
		return failed(errors.New("nothing was said yet"))
	}
	return editFrom(ctx, p, *last)
}

// lastUser is the last message of a user in messages, or before where there is none.
func lastUser(messages []jsontext.Value, before *protocol.Message) (*protocol.Message, error) {
	for _, raw := range slices.Backward(messages) {
		var said protocol.Message
		if err := json.Unmarshal(raw, &said); err != nil {
			return nil, err
		}
		if said.Role == "user" {
			return &said, nil
		}
	}
	return before, nil
}

func editFrom(ctx context.Context, p place, said protocol.Message) outcome {
	var out outcome
	title := nextTitle(ctx, p)
	if said.ParentID == "" { // there is nothing before it
		out = newSession(ctx, p, title)
	} else if out = branchSession(ctx, p, said.ParentID); out.err == nil && title != "" {
		_, _ = ask(ctx, p, protocol.SetTitle, protocol.SetTitleParams{
			Scope: protocol.Scope{SessionID: *out.follow},
			Title: title,
		})
	}
	if out.err == nil {
		out.text = said.Text
		out.info = "this is a branch of " + p.state.SessionID + ", from before the message that is in the input"
	}
	return out
}

// nextTitle is the session's title with the next number that no session has, "fix
// the parser (2)".
func nextTitle(ctx context.Context, p place) string {
	title, taken := p.state.Title, map[string]bool{}
	list, _ := listSessions(ctx, p) // without a list it is the second
	for _, s := range list {
		taken[s.Title] = true
		if s.SessionID == p.state.SessionID { // the list knows a title that the first prompt has given
			title = s.Title
		}
	}
	if title == "" {
		return ""
	}
	base := numbered().ReplaceAllString(title, "")
	base = string([]rune(base)[:min(utf8.RuneCountInString(base), 190)]) // of the 200 that a title may have
	for n := 2; ; n++ {
		if title := fmt.Sprintf("%s (%d)", base, n); !taken[title] {
			return title
		}
	}
}

var numbered = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` \([0-9]{1,4}\)$`) })
