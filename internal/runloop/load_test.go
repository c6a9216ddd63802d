package runloop

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"noused/internal/model"
	"noused/internal/model/offline"
)

// weigher is the offline model, and what requests have of the daemon's memory when it
// has the messages.
type weigher struct {
	offline.Model
	env  *env
	used []int
}

func (w *weigher) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	_, done, err := req.Loaded(0)
	if err == nil {
		w.used = append(w.used, w.env.requests.Used())
		done()
	}
	return w.Model.Stream(ctx, req)
}

// A conversation is not read before there is room for it. What has no room waits, and
// goes on as soon as there is some.
func TestAConversationIsReadOnceThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := newRecorder()
		m := &weigher{}
		f := newFixture(t, t.TempDir(), m, nil, events)
		m.env = f.env
		const size = 1 << 20
		id := f.session()
		full, last := f.env.requests.Begin(), f.env.requests.Begin()
		for _, part := range []interface {
			Grow(ctx context.Context, n int) error
		}{full, last} { // one has all of the room, the other waits for nothing
			if err := part.Grow(t.Context(), maxRequests+64<<10); err != nil {
				t.Fatal(err)
			}
		}
		run, err := f.start(id, strings.Repeat("x", size))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(m.used) > 0 {
			t.Error("the conversation was read without room")
		}
		full.End()
		last.End()
		events.wait(run.RunID)
		if run, err = f.start(id, "and now?"); err != nil {
			t.Fatal(err)
		}
		events.wait(run.RunID)
		if len(m.used) != 2 || m.used[1] < size { // the first was the one that waits for nothing
			t.Errorf("with the messages %d bytes were taken, want twice, and %d or more", m.used, size)
		}
		synctest.Wait()
		if used := f.env.requests.Used(); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}

// longCaller calls a tool with arguments of so many bytes, and ends then.
type longCaller struct{ bytes int }

func (c longCaller) Stream(_ context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		whole, done, err := req.Loaded(0)
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		last := whole.Messages[len(whole.Messages)-1]
		done()
		if last.Role == model.Tool {
			yield(model.Delta{Text: last.Text, Stop: model.StopEnd}, nil)
			return
		}
		call := &model.ToolCall{ID: "c", Name: "sink", Arguments: []byte(`{"text":"` + strings.Repeat("x", c.bytes) + `"}`)}
		if yield(model.Delta{ToolCall: call}, nil) {
			yield(model.Delta{Stop: model.StopToolCalls}, nil)
		}
	}
}

// The arguments of calls that run have a bound together: a call with long ones waits
// for room, and its session does not keep them. A short one waits for nobody.
func TestACallWithLongArgumentsWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3 << 20
		events := newRecorder()
		got := make(chan int, 3)
		f := newFixture(t, t.TempDir(), longCaller{size}, func(_ context.Context, inv model.Invocation,
			_ func(model.ToolUpdate),
		) model.ToolResult {
			got <- len(inv.Arguments)
			return model.ToolResult{OK: true, Text: "done"}
		}, events)
		long, short := f.session(), f.session()
		var others []interface{ End() }
		for range 2 { // one has all of the room, the other waits for nothing
			part := f.env.arguments.Begin()
			if err := part.Grow(t.Context(), maxArguments+64<<10); err != nil {
				t.Fatal(err)
			}
			others = append(others, part)
		}
		run, err := f.start(long, "go")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Error("the long one runs without room")
		}
		kept, err := readSession(t.Context(), f.Hub, long, func(m *machine) (n int, err error) {
			for _, c := range append(m.s.Run.Calls, append(m.msg.calls, m.call)...) {
				n += len(c.Arguments)
			}
			return n, nil
		})
		if err != nil || kept > 0 {
			t.Errorf("its session keeps %d bytes of arguments, %v", kept, err)
		}
		f.env.Model = longCaller{1 << 10}
		other, err := f.start(short, "go")
		if err != nil {
			t.Fatal(err)
		}
		events.wait(other.RunID)
		if n := <-got; n > 2<<10 {
			t.Errorf("the short one got %d bytes", n)
		}
		for _, part := range others {
			part.End()
		}
		events.wait(run.RunID)
		if n := <-got; n < size {
			t.Errorf("the long one got %d bytes, want %d", n, size)
		}
		text, err := readSession(t.Context(), f.Hub, long, func(m *machine) (int, error) { return m.msg.text.Cap(), nil })
		if err != nil || text > 0 {
			t.Errorf("its session keeps %d bytes of its last answer beside the history, %v", text, err)
		}
		synctest.Wait()
		if used := f.env.arguments.Used(); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}
