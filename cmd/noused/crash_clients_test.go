package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"noused/internal/client"
	"noused/internal/protocol"
)

// notebook is what the clients of a daemon were told, which it must keep to,
// and what they asked for and were not answered, which it may have done.
type notebook struct {
	mu       sync.Mutex
	accepted []acceptance
	aborts   []protocol.AbortAccepted
	withdraw []protocol.Withdrawn
	results  []protocol.PromptResult
	made     map[string]string // sessions, with their parent
	order    []string          // sessions as they were made
	leaves   map[string][]string
	summary  map[string][]string
	settings map[setting]*value
	active   value
	wrong    []string
	dark     bool // the power has failed: what a daemon says now, it says of a disk that is gone

	left    int // what is still to be read or answered before the kill
	trigger chan struct{}
}

// acceptance is an accepted text. The input is "" where only the run was told.
type acceptance struct{ session, text, key, run, input string }

type setting struct{ session, what string }

// value is the last one that was acknowledged, and those that were asked for
// since.
type value struct {
	told  string
	asked []string
}

func (v *value) allows(got string) bool { return v.told == got || slices.Contains(v.asked, got) }

func newNotebook() *notebook {
	return &notebook{
		made: map[string]string{}, leaves: map[string][]string{}, summary: map[string][]string{},
		settings: map[setting]*value{},
	}
}

// note writes something down. It also counts towards the kill.
func (n *notebook) note(write func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	write()
	if n.left--; n.left == 0 {
		close(n.trigger)
	}
}

// arm has the trigger closed after so many notes.
func (n *notebook) arm(left int) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left, n.trigger = left, make(chan struct{})
	return n.trigger
}

func (n *notebook) bad(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrong = append(n.wrong, fmt.Sprintf(format, args...))
}

func (n *notebook) sessions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.order)
}

// guest is one of the clients: what it does is decided by its own dice.
type guest struct {
	n       int
	book    *notebook
	rng     *rand.Rand
	session string
	owner   bool // the only one that changes the session's settings
	first   bool // the only one that changes which session is the active one
	texts   int
	latest  acceptance   // that it may take back
	keyed   []acceptance // those it may ask for again
	unsure  []ask        // those it got no answer to
}

// ask is a text that was sent.
type ask struct{ kind, session, text, key string }

// images go with one text in three.
func (a ask) images() []protocol.AttachmentParams {
	if len(a.text)%3 > 0 {
		return nil
	}
	return []protocol.AttachmentParams{{Data: base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n" + a.text))}}
}

// work does one thing after the other until the daemon is gone.
func (u *guest) work(c *client.Client) {
	retry := u.unsure
	u.unsure = nil
	for i, a := range retry {
		if a.key == "" {
			continue // whether it was accepted is for the journal to say
		}
		if !u.send(c, a, false) {
			u.unsure = append(u.unsure, retry[i+1:]...)
			return
		}
	}
	for u.act(c) {
	}
}

// text is one that nobody else says, some with tool calls: each call is made
// once in the world, and says who it is.
func (u *guest) text() string {
	u.texts++
	name := fmt.Sprintf("u%d-%d", u.n, u.texts)
	switch u.rng.IntN(6) {
	case 0:
		return fmt.Sprintf("!sh.mark {\"token\":\"%s-a\"}\n%s", name, name)
	case 1:
		return fmt.Sprintf("%s then\n!sh.slow {\"token\":\"%s-a\"}\n!sh.mark {\"token\":\"%s-b\"}", name, name, name)
	case 2:
		return fmt.Sprintf("!pad.mark {\"token\":\"%s-a\"}\n!sh.slow {\"token\":\"%s-b\"}\n%s", name, name, name)
	case 3:
		return fmt.Sprintf("!pad.slow {\"token\":\"%s-a\"}\n?hm\n%s", name, name)
	default:
		return name + strings.Repeat(" and more words", u.rng.IntN(6))
	}
}

// act does one random thing. False: the daemon is gone.
func (u *guest) act(c *client.Client) bool {
	ctx, scope := context.Background(), protocol.Scope{SessionID: u.session}
	switch u.rng.IntN(22) {
	case 0, 1, 2, 3:
		return u.send(c, u.newAsk("prompt"), u.rng.IntN(2) == 0)
	case 4, 5, 6:
		return u.send(c, u.newAsk("steer"), false)
	case 7, 8, 9:
		return u.send(c, u.newAsk("follow_up"), false)
	case 10:
		return u.send(c, u.newAsk([]string{"prompt_as_steer", "prompt_as_follow_up"}[u.rng.IntN(2)]), u.rng.IntN(2) == 0)
	case 11:
		r, err := client.Call(ctx, c, protocol.Abort, protocol.AbortParams{Scope: scope})
		return u.over(err, func() { u.book.aborts = append(u.book.aborts, r) })
	case 12, 13:
		return u.again(c)
	case 19, 20:
		return u.takeBack(c)
	case 14, 15:
		return !u.owner || u.set(c)
	case 16:
		return u.moveLeaf(c)
	case 17:
		r, err := client.Call(ctx, c, protocol.CompactSession, protocol.CompactSessionParams{Scope: scope})
		return u.over(err, func() { u.book.summary[u.session] = append(u.book.summary[u.session], r.Summary) })
	case 18:
		r, err := client.Call(ctx, c, protocol.ExtensionCommand, protocol.ExtensionCommandParams{
			Scope: scope,
			Name:  "sh.quiet",
		})
		return u.over(err, func() {
			if !r.OK {
				u.book.wrong = append(u.book.wrong, fmt.Sprintf("extension command: %+v", r.Error))
			}
		})
	default:
		return !u.first || u.choose(c)
	}
}

func (u *guest) newAsk(kind string) ask {
	a := ask{kind: kind, session: u.session, text: u.text()}
	if u.rng.IntN(2) == 0 {
		a.key = fmt.Sprintf("key-%d-%d", u.n, u.texts)
	}
	return a
}

// over notes what was answered, or that nothing was. False: the daemon is gone.
func (u *guest) over(err error, write func()) bool {
	var refused *protocol.Error
	switch {
	case u.unheard(err):
		return false
	case err == nil:
		u.book.note(write)
	case !errors.As(err, &refused) || refused.Code != protocol.CommandRejected &&
		!strings.Contains(refused.Message, "crash_loop"):
		u.book.bad("client %d: %v", u.n, err)
	}
	return true
}

// unheard is that for a daemon whose power fails, too: from then on nobody hears anything.
func (u *guest) unheard(err error) bool {
	u.book.mu.Lock()
	defer u.book.mu.Unlock()
	return unheard(err) || u.book.dark
}

// unheard reports that a command was not answered for good, as the daemon is
// gone or going: it may have been done or not.
func unheard(err error) bool {
	var refused *protocol.Error
	return errors.Is(err, client.ErrLost) || errors.As(err, &refused) &&
		strings.HasPrefix(refused.Message, string(protocol.ShuttingDown))
}

// send says a text. One without an answer may have been accepted or not.
func (u *guest) send(c *client.Client, a ask, wait bool) bool {
	got := acceptance{session: a.session, text: a.text, key: a.key}
	var result *protocol.PromptResult
	ctx, scope, idle := context.Background(), protocol.Scope{SessionID: a.session},
		[]protocol.Kind{"", "prompt"}[len(a.text)%2]
	var err error
	switch a.kind {
	case "steer":
		var r protocol.InputAccepted
		r, err = client.Call(ctx, c, protocol.Steer, protocol.SteerParams{
			Scope: scope, Text: a.text, IfIdle: idle,
			IdempotencyKey: a.key, Attachments: a.images(),
		})
		got.run, got.input = r.RunID, r.InputID
	case "follow_up":
		var r protocol.InputAccepted
		r, err = client.Call(ctx, c, protocol.FollowUp, protocol.FollowUpParams{
			Scope: scope, Text: a.text, IfIdle: idle,
			IdempotencyKey: a.key, Attachments: a.images(),
		})
		got.run, got.input = r.RunID, r.InputID
	default:
		_, behaviour, _ := strings.Cut(a.kind, "prompt_as_")
		var r protocol.PromptReply
		r, err = client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
			Scope: scope, Text: a.text, Wait: &wait, StreamingBehavior: protocol.Kind(behaviour), IdempotencyKey: a.key,
			Attachments: a.images(),
		})
		switch {
		case err != nil:
		case r.Result != nil:
			got.run, result = r.Result.RunID, r.Result
		default:
			got.run, got.input = r.Accepted.RunID, r.Accepted.InputID
		}
	}
	if u.unheard(err) {
		u.unsure = append(u.unsure, a)
	}
	return u.over(err, func() {
		u.book.accepted = append(u.book.accepted, got)
		u.latest = got
		if result != nil {
			u.book.results = append(u.book.results, *result)
		}
		if a.key != "" {
			u.keyed = append(u.keyed, got)
		}
	})
}

// takeBack takes a text back, or comes too late.
func (u *guest) takeBack(c *client.Client) bool {
	if u.latest.input == "" {
		return true
	}
	r, err := client.Call(context.Background(), c, protocol.Withdraw,
		protocol.WithdrawParams{Scope: protocol.Scope{SessionID: u.latest.session}, InputID: u.latest.input})
	return u.over(err, func() { u.book.withdraw = append(u.book.withdraw, r) })
}

// again asks with a key that was answered before.
func (u *guest) again(c *client.Client) bool {
	if len(u.keyed) == 0 {
		return true
	}
	before, no := u.keyed[u.rng.IntN(len(u.keyed))], false
	r, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: before.session}, Text: before.text, Wait: &no, IdempotencyKey: before.key,
	})
	if err == nil && (r.Accepted.RunID != before.run || before.input != "" && r.Accepted.InputID != before.input) {
		u.book.bad("client %d: key %s was answered with %+v, now with %+v", u.n, before.key, before, *r.Accepted)
	}
	if err != nil && !u.unheard(err) {
		u.book.bad("client %d: key %s was answered with %+v, now: %v", u.n, before.key, before, err)
	}
	return u.over(err, func() {})
}

// asked says which value is about to be asked for.
func (u *guest) asked(what, want string) *value {
	u.book.mu.Lock()
	defer u.book.mu.Unlock()
	v := u.book.settings[setting{u.session, what}]
	if v == nil {
		v = &value{}
		u.book.settings[setting{u.session, what}] = v
	}
	v.asked = append(v.asked, want)
	return v
}

func (u *guest) set(c *client.Client) bool {
	ctx, scope := context.Background(), protocol.Scope{SessionID: u.session}
	modes := protocol.SetModeParams{Scope: scope, Mode: []protocol.Mode{"one-at-a-time", "all"}[u.rng.IntN(2)]}
	var v *value
	var want string
	var err error
	switch u.rng.IntN(3) {
	case 0:
		want = string(modes.Mode)
		v = u.asked("steer", want)
		_, err = client.Call(ctx, c, protocol.SetSteeringMode, modes)
	case 1:
		want = string(modes.Mode)
		v = u.asked("follow_up", want)
		_, err = client.Call(ctx, c, protocol.SetFollowUpMode, modes)
	case 2:
		// Mostly all of them, so that there is something to call.
		tools := [][]string{{"sh.mark", "sh.slow", "pad.mark", "pad.slow"}, {"pad.mark", "sh.slow"}}[u.rng.IntN(4)/3]
		want = strings.Join(tools, " ")
		v = u.asked("tools", want)
		_, err = client.Call(ctx, c, protocol.SetActiveTools, protocol.SetActiveToolsParams{Scope: scope, Tools: tools})
	}
	return u.over(err, func() { *v = value{told: want} })
}

func (u *guest) moveLeaf(c *client.Client) bool {
	ctx, scope := context.Background(), protocol.Scope{SessionID: u.session}
	tree, err := client.Call(ctx, c, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
	if err != nil || len(tree.Nodes) == 0 {
		return u.over(err, func() {})
	}
	id := tree.Nodes[u.rng.IntN(len(tree.Nodes))].ID
	_, err = client.Call(ctx, c, protocol.SetLeaf, protocol.SetLeafParams{Scope: scope, LeafID: id})
	return u.over(err, func() { u.book.leaves[u.session] = append(u.book.leaves[u.session], id) })
}

// anySession stands for one that was asked for and has no name yet.
const anySession = "?"

// choose makes or chooses the active session.
func (u *guest) choose(c *client.Client) bool {
	ctx, all := context.Background(), u.book.sessions()
	pick, what := all[u.rng.IntN(len(all))], u.rng.IntN(4)
	if len(all) > 8 {
		what = 0
	}
	var err error
	made, parent := "", ""
	u.book.mu.Lock()
	if what < 2 {
		u.book.active.asked = append(u.book.active.asked, pick)
	} else {
		u.book.active.asked = append(u.book.active.asked, anySession)
	}
	u.book.mu.Unlock()
	switch what {
	case 0, 1:
		_, err = client.Call(ctx, c, protocol.SwitchSession, protocol.SwitchSessionParams{SessionID: pick})
	case 2:
		var r protocol.Session
		r, err = client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{})
		made = r.SessionID
	case 3:
		var r protocol.Branch
		r, err = client.Call(ctx, c, protocol.BranchSession, protocol.BranchSessionParams{SessionID: pick})
		made, parent = r.SessionID, pick
	}
	return u.over(err, func() {
		if made != "" {
			pick = made
			u.book.made[made] = parent
			u.book.order = append(u.book.order, made)
		}
		u.book.active = value{told: pick}
	})
}
