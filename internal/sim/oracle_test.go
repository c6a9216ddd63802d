//go:build sim

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing/synctest"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

// vow is what a client was told, and what the journals must therefore have.
type vow struct {
	what, session string
	kept          func(map[string]*sessiontest.Story) bool
}

// held looks whether the journals have what was announced and replied.
func (w *world) held(power bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	files, err := filepath.Glob(filepath.Join(w.dir, "state", "sessions", "*.jsonl"))
	must(w.t, err)
	sort.Strings(files)
	if power { // what was written and not synced may be gone, though a former life has read it
		clear(w.stories)
		clear(w.said)
	}
	for _, id := range sorted(w.stories) {
		if !slices.Contains(files, w.path(id)) {
			if !w.isDoomed(id) && w.stories[id].Made { // else it was no session yet
				w.fail("session %s is gone, and nobody has deleted it", id)
			}
			delete(w.stories, id)
		}
	}
	for _, path := range files {
		id := strings.TrimSuffix(base(path), ".jsonl")
		s := w.stories[id]
		if s == nil {
			s = sessiontest.New(id)
			s.Holed = w.holed(id)
			w.stories[id] = s
		}
		if err := s.Take(path); err != nil {
			w.fail("session %s: %v", id, err)
		}
		for _, wrong := range s.Wrong {
			w.fail("session %s: %s", id, wrong)
		}
		s.Wrong = nil
		w.imagesOf(s)
		told := s.Events[min(w.from[id], len(s.Events)):]
		for i, e := range w.heard[id] {
			if power || s.Holed {
				break
			}
			if i == len(w.heard[id])-1 && len(told) > i+1 {
				w.sometimes("killed between the journal and what is announced of it")
			}
			if i >= len(told) || told[i] != e {
				w.fail("session %s: announced was %q, the journal has %q", id, e, told[min(i, len(told)):min(i+1, len(told))])
				break
			}
		}
		w.from[id] = len(s.Events)
	}
	for _, v := range w.vows {
		if w.isDoomed(v.session) && w.stories[v.session] == nil {
			continue
		}
		if !v.kept(w.stories) {
			w.fail("a client was told, and the journals do not have it: %s", v.what)
		}
	}
	for _, s := range w.stories {
		if w.life.unclean {
			w.crashed[s.Run]++
		}
	}
	w.kinOf(w.stories)
	w.addUp()
	w.judgeBy(files)
}

// imagesOf looks for the images that a journal names: they are durable before it is.
func (w *world) imagesOf(s *sessiontest.Story) {
	for _, id := range sorted(s.Inputs) {
		for _, a := range s.Inputs[id].Attachments {
			info, err := os.Stat(filepath.Join(w.dir, "state", "sessions", s.ID+".files", a.File))
			if err != nil || info.Size() != a.Size {
				w.fail("session %s: an image of %s is gone", s.ID, id)
			}
			w.sometimes("a text has an image")
		}
	}
}

// judgeBy has the next life judged by what the journals have: the last thing that was
// written may not have been announced any more, and after a power cut what was announced
// and not synced is gone (wire-v1 §7).
func (w *world) judgeBy(journals []string) {
	w.checker, w.told = protocoltest.NewChecker(), map[string]string{}
	w.handed, w.beside = map[string][]string{}, map[string][]string{}
	for _, path := range journals {
		id := strings.TrimSuffix(base(path), ".jsonl")
		s := sessiontest.NewIn(id, w.checker)
		s.Holed = w.holed(id)
		if err := s.Take(path); err != nil {
			w.fail("session %s: %v", id, err)
		}
		for _, in := range s.Inputs {
			if s.Delivered[in.InputID] > 0 {
				w.told[in.Text] = in.InputID
				w.handed[id] = append(w.handed[id], in.Text)
			}
		}
	}
}

// holed reports that a power cut left holes in a session's journal. What it lacks then
// nobody was promised; that lines are skipped, and those behind them do not fit, is as
// docs/journal.md says. Held against it are what clients were told, that its runs end, and
// what the daemon makes of it.
func (w *world) holed(session string) bool {
	return w.disk.holed[filepath.Join(w.dir, "state", "sessions", session+".jsonl")]
}

// unmade reports that a power cut left a hole where a journal says whose it is: none of it was on
// the disk yet, so that it is no session, and nobody was promised one.
func (w *world) unmade(session string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stories[session]
	return w.holed(session) && (s == nil || !s.Made)
}

// activeKept looks whether the active session is the one that a client was told: a
// session that nothing has happened in may be gone after a power cut. False: the daemon
// was killed meanwhile.
func (w *world) activeKept(store *session.Store) bool {
	w.mu.Lock()
	l, want := w.life, w.active
	look := want != "" && w.rng.IntN(2) == 0
	w.mu.Unlock()
	if !look {
		return true
	}
	is, err := store.Active()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case l.gone():
		_ = store.Close()
		return false
	case err != nil: // a fault
	case is != want && w.stories[want] != nil && w.stories[want].Made:
		w.fail("the active session is %q, and a client was told that it is %q", is, want)
	case is == want:
		w.sometimes("the active session is looked for after a start")
	}
	return true
}

// views are the sessions as the daemon has them now, by their ids; nil: it could not be
// asked, or a session whose journal has holes is not at rest, of which the checker knows
// nothing, and it is early yet.
func (w *world) views(early bool) map[string]string {
	l := w.life
	store, err := l.store.IDs()
	must(w.t, err)
	views := map[string]string{}
	w.mu.Lock()
	recovered := w.recovered
	w.mu.Unlock()
	for _, id := range store {
		for _, typ := range []string{"get_state", "get_messages"} {
			line := w.ask(l, typ, id)
			var r struct {
				OK      bool                       `json:"ok"`
				Payload map[string]json.RawMessage `json:"payload"`
				Error   struct{ Code string }      `json:"error"`
			}
			parsed := line != nil && json.Unmarshal(line, &r) == nil
			if parsed && r.Error.Code == "session_error" && w.unmade(id) {
				continue
			}
			if !parsed || !r.OK && r.Error.Code != "session_not_found" {
				w.fail("%s of %s: %s", typ, id, line)
				return nil
			}
			if is := r.Payload["run_state"]; typ == "get_state" && r.OK && string(is) != `"idle"` {
				if early && w.holed(id) {
					return nil
				}
				w.fail("liveness: nothing is under way any more, and %s is %s", id, is)
			}
			for _, key := range []string{"daemon", "last_seq", "runs", "folders"} { // of this daemon alone
				delete(r.Payload, key)
			}
			text, err := json.Marshal(r.Payload)
			must(w.t, err)
			var sorted any // as the names of an object are not
			must(w.t, json.Unmarshal(text, &sorted))
			text, err = json.Marshal(sorted)
			must(w.t, err)
			views[typ+" of "+id] = string(text)
		}
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if early && (len(w.gates) > 0 || w.recovered != recovered) { // to be asked had one take up what was left in it
		return nil
	}
	return views
}

// ask returns the reply to a command, while everything goes on.
func (w *world) ask(l *life, typ, session string) (reply []byte) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		cmd := protocol.Command{ID: "view", Type: typ, Payload: fmt.Appendf(nil, `{"session_id":%q}`, session)}
		out := l.mux.Run(l.heard, cmd)
		if later := out.Later(); later != nil {
			out = later(l.heard)
		}
		reply = out.Append(nil, cmd.ID)
	}()
	for range 10000 {
		synctest.Wait()
		select {
		case <-done:
			return reply
		default:
		}
		w.mu.Lock()
		gates := len(w.gates)
		w.mu.Unlock()
		if gates > 0 {
			w.release(0)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// same holds what a daemon has in memory against what the next one reads.
func (w *world) same(before, after map[string]string) {
	for _, what := range sorted(before) {
		if before[what] != after[what] {
			w.fail("%s was %s, and after a restart it is %s", what, before[what], after[what])
		}
	}
}

// refusedRun reports that a journal has a run that the daemon knows nothing of: a text was
// refused since the disk failed, and could not be taken back for the same reason. The next
// daemon does it (docs/journal.md).
func (w *world) refusedRun() bool {
	for _, s := range w.stories {
		if len(s.Owed()) > 0 && !s.Holed {
			return true
		}
	}
	return false
}

// finish holds the journals against themselves once all is done.
func (w *world) finish() {
	for _, id := range sorted(w.stories) {
		s := w.stories[id]
		if err := s.Done(); err != nil && !s.Holed {
			w.fail("the journal of %s: %v", id, err)
		}
		if s.Rewinding != "" && !s.Holed {
			w.fail("the journal of %s: rewind %s has not ended", id, s.Rewinding)
		}
		w.reported(s)
		w.handedUp(s)
	}
	store, err := session.Open(filepath.Join(w.dir, "state"))
	if err != nil {
		w.fail("the store cannot be opened: %v", err)
		return
	}
	ids, err := store.IDs()
	must(w.t, err)
	for _, id := range ids {
		_, err := store.Peek(context.Background(), id)
		if err != nil && !errors.Is(err, session.ErrNotFound) && !w.unmade(id) { // the first: it was being made
			w.fail("a session that is listed cannot be read: %v", err)
		}
	}
	must(w.t, store.Close())
}

func (w *world) announced(ev protocol.Event) {
	at := ev.Where()
	w.say("event %s %s", ev.Type(), strings.TrimSpace(at.RunID+" "+sessiontest.Essence(ev)))
	w.host(at.SessionID)
	if !w.holed(at.SessionID) {
		w.checker.Hosted = w.hosted[at.SessionID] != ""
		if err := w.checker.Event(ev); err != nil {
			w.fail("%v", err)
		}
	}
	w.noteEvent(ev)
	w.notePlace(ev)
	w.noteSteers(ev)
	w.noteAgent(ev)
	w.noteChanges(ev)
	w.noteChildren(ev)
	w.noteDay(ev)
	if e := sessiontest.Essence(ev); e != "" && !isApproval(ev) {
		w.heard[at.SessionID] = append(w.heard[at.SessionID], e)
	}
	switch ev := ev.(type) {
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusApprovalRequested:
			w.counts["questions"]++
			w.open[ev.Approval.ApprovalID] = *ev.Approval
		case protocol.StatusApprovalResolved:
			delete(w.open, ev.ApprovalID)
		}
	case protocol.MessageStart:
		if ev.Role == "user" && w.refused[ev.Text] == w.life.number {
			w.fail("%q is delivered, and was refused", ev.Text)
		}
		if ev.Role == "assistant" && w.aborted[at.RunID] {
			w.fail("run %s goes on, and was aborted", at.RunID)
		}
	case protocol.AgentEnd:
		w.ends[ev.RunID] = ev.Usage
		if ev.Error != nil && ev.Error.Code == protocol.ProviderError &&
			w.hosted[at.SessionID] == "" && !strings.Contains(ev.Error.Message, errProvider.Error()) {
			w.fail("run %s ends in an error that no provider had: %s", at.RunID, ev.Error.Message)
		}
		e := sessiontest.Essence(ev)
		w.vow("announced: "+e, at.SessionID, func(all map[string]*sessiontest.Story) bool {
			s := all[at.SessionID]
			return s != nil && (slices.Contains(s.Events, e) || s.Holed && s.Runs[at.RunID] != "")
		})
	case protocol.MessageUpdate:
		w.said[ev.MessageID] += ev.Delta
	case protocol.MessageEnd:
		if said := w.said[ev.MessageID]; !strings.HasPrefix(ev.Text, said) {
			w.fail("message %s ends as %q, and %q was announced of it", ev.MessageID, ev.Text, said)
		}
		delete(w.said, ev.MessageID)
		if text := ev.Text; ev.Role == "user" && strings.HasPrefix(text, "text ") {
			if w.told[text] != "" {
				w.fail("%q was delivered twice, as %s and %s", text, w.told[text], ev.MessageID)
			}
			w.told[text] = ev.MessageID
		}
	}
}

// steerWaits notes that a text waits, or no more. w.mu is held.
func (w *world) steerWaits(session, input string, waits bool) {
	if !waits {
		delete(w.steers[session], input)
		return
	}
	if w.steers[session] == nil {
		w.steers[session] = map[string]bool{}
	}
	w.steers[session][input] = true
}

// noteSteers notes which steers wait. w.mu is held.
func (w *world) noteSteers(ev protocol.Event) {
	in := ev.Where().SessionID
	switch ev := ev.(type) {
	case protocol.MessageStart:
		w.steerWaits(in, ev.InputID, false)
	case protocol.AgentEnd:
		delete(w.steers, in)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusSteerQueued:
			w.steerWaits(in, ev.InputID, true)
		case protocol.StatusInputWithdrawn:
			w.steerWaits(in, ev.InputID, false)
		case protocol.StatusAbortRequested:
			w.aborted[ev.RunID] = true
			delete(w.steers, in)
		}
	}
}

// vow notes what the journals must have of a session from now on, unless it is deleted.
func (w *world) vow(what, session string, kept func(map[string]*sessiontest.Story) bool) {
	w.vows = append(w.vows, vow{what, session, kept})
}

// notePlace notes what not every history comes to.
func (w *world) notePlace(ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.AgentEnd:
		if ev.Error != nil && ev.Error.Code == protocol.CrashLoop {
			w.sometimes("a run is given up after crashes")
			if n := w.crashed[ev.RunID]; n < 3 {
				w.fail("run %s is given up for its crashes, and the daemon was killed %d times", ev.RunID, n)
			}
		}
		if len(ev.Discarded) > 0 {
			w.sometimes("the end of a run hands texts back")
		}
	case protocol.MessageEnd:
		if ev.Role == "assistant" && ev.StopReason == protocol.StopError {
			w.sometimes("a message is cut off")
		}
	case protocol.ToolEnd:
		if ev.Skipped {
			w.sometimes("a steer skips a call")
		}
		if ev.Error != nil && ev.Error.Code == model.Interrupted {
			w.sometimes("a call is cut off")
		}
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusCompacting:
			w.summing[ev.SessionID] = true
		case protocol.StatusCompacted:
			w.sometimes("a conversation is summarised")
			delete(w.summing, ev.SessionID)
		}
	}
}

// isApproval reports events that a later life announces again without a record.
func isApproval(ev protocol.Event) bool {
	s, ok := ev.(protocol.Status)
	return ok && (s.Code == protocol.StatusApprovalRequested || s.Code == protocol.StatusApprovalResolved)
}
