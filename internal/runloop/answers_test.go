package runloop

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// talker says so much, in pieces.
type talker struct{ bytes int }

func (v talker) Stream(_ context.Context, _ model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		const piece = 16 << 10
		for n := 0; n < v.bytes; n += piece {
			if !yield(model.Delta{Text: strings.Repeat("x", piece)}, nil) {
				return
			}
		}
		yield(model.Delta{Stop: model.StopEnd}, nil)
	}
}

// A long answer that finds no room for two minutes ends its run, once, and says so;
// what it had is given back. A short one beside it notices nothing.
func TestAnAnswerThatFindsNoRoomEndsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := newRecorder()
		f := newFixture(t, t.TempDir(), talker{2 << 20}, nil, events)
		long, short := f.session(), f.session()
		var others []interface{ End() }
		for range 2 { // one has all of the room, the other waits for nothing
			part := f.env.answers.Begin()
			if err := part.Grow(t.Context(), maxAnswers+64<<10); err != nil {
				t.Fatal(err)
			}
			others = append(others, part)
		}
		run, err := f.start(long, "go")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.env.Model = talker{32 << 10}
		began := time.Now()
		other, err := f.start(short, "go")
		if err != nil {
			t.Fatal(err)
		}
		events.wait(other.RunID)
		if time.Since(began) > time.Second {
			t.Errorf("the short one took %v", time.Since(began))
		}
		events.wait(run.RunID)
		if took := time.Since(began); took < time.Minute || took > 3*time.Minute {
			t.Errorf("the long one ended after %v", took)
		}
		st, err := f.getState(t.Context(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: long}})
		if err != nil || st.LastRun == nil || st.LastRun.Error == nil || !strings.Contains(st.LastRun.Error.Message,
			"KiB so far") {
			t.Errorf("the long one ended %+v, %v", st.LastRun, err)
		}
		for _, part := range others {
			part.End()
		}
		synctest.Wait()
		if used := f.env.answers.Used(); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}
