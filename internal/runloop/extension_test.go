package runloop

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
)

// saidIn is what a journal says was said in a session: role and text.
func (f *fixture) saidIn(id string) (said []string) {
	f.t.Helper()
	s, err := f.store.Peek(context.Background(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	chain, _ := s.Chain("")
	for _, e := range chain {
		said = append(said, string(e.Role)+": "+e.Body().Message.Text)
	}
	return said
}

// What a person runs beside the model joins the conversation, and is on the disk
// when the command is answered; while a run is active it is refused, and one
// that is there when a run begins comes after that.
func TestANoteKeepsWhatAnOperationSaid(t *testing.T) {
	entered, leave, hold := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	events := newRecorder()
	f := newFixture(t, t.TempDir(), offline.Model{}, func(_ context.Context, inv model.Invocation,
		_ func(model.ToolUpdate),
	) model.ToolResult {
		switch string(inv.Arguments) {
		case `"slow"`:
			entered <- struct{}{}
			<-leave
		case `"hold"`:
			entered <- struct{}{}
			<-hold
		}
		return model.ToolResult{OK: true, Text: "out of " + string(inv.Arguments)}
	}, events)
	ctx, id := context.Background(), f.session()
	noted := func(args string) protocol.ExtensionCommandParams {
		return protocol.ExtensionCommandParams{
			Scope: protocol.Scope{SessionID: id}, Name: "t.x", Payload: []byte(args),
			Note: "I ran it:",
		}
	}
	r, err := answered(f.extensionCommand(ctx, noted(`"quick"`)))
	if err != nil || r.MessageID == "" || r.Result != `out of "quick"` {
		t.Fatalf("got %+v, %v", r, err)
	}
	if got, want := strings.Join(f.saidIn(id), "|"), "user: I ran it:\n\nout of \"quick\""; got != want {
		t.Errorf("the journal says %q, want %q", got, want)
	}
	slow, err := f.extensionCommand(ctx, noted(`"slow"`))
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan error, 1)
	go func() {
		_, err := slow.Later(ctx)
		kept <- err
	}()
	<-entered
	run, err := f.start(id, "!t.x \"hold\"")
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	close(leave)
	_, err = answered(f.extensionCommand(ctx, noted(`"quick"`)))
	var refused *protocol.Error
	if !errors.As(err, &refused) || refused.Code != protocol.CommandRejected ||
		!strings.Contains(refused.Message, run.RunID) {
		t.Errorf("got %v while a run is active, want a refusal that names it", err)
	}
	close(hold)
	if err := <-kept; err != nil {
		t.Error(err)
	}
	said := f.saidIn(id)
	if n := len(said); n < 5 || !strings.HasPrefix(said[n-1], "user: I ran it:\n\nout of \"slow\"") ||
		!strings.HasPrefix(said[n-2], "assistant: ") {
		t.Errorf("the journal says %q, want the second result behind the run", said)
	}
}

// What an operation says while it runs is told at once to who named it an output_id, without
// a run, and nothing of it once the command is answered; nobody else's screen changes.
func TestWhatAnOperationSaysIsToldWhileItRuns(t *testing.T) {
	heard, answeredOnce := make(chan protocol.Status, 4), make(chan struct{})
	events := newRecorder()
	events.onEvent = func(ev protocol.Event) {
		if s, ok := ev.(protocol.Status); ok && s.Code == protocol.StatusOperationOutput {
			heard <- s
		}
	}
	f := newFixture(t, t.TempDir(), offline.Model{}, func(_ context.Context, _ model.Invocation,
		progress func(model.ToolUpdate),
	) model.ToolResult {
		progress(model.ToolUpdate{Delta: "half"})
		<-answeredOnce
		progress(model.ToolUpdate{Patch: []byte(`{"a":1}`)})
		progress(model.ToolUpdate{Delta: "whole", Patch: []byte(`{"a":2}`)})
		return model.ToolResult{OK: true, Text: "half\nwhole"}
	}, events)
	ctx, id := context.Background(), f.session()
	params := protocol.ExtensionCommandParams{
		Scope: protocol.Scope{SessionID: id}, Name: "t.x", Payload: []byte("{}"), Note: "I ran it:", OutputID: "mine",
	}
	slow, err := f.extensionCommand(ctx, params)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := slow.Later(ctx)
		ended <- err
	}()
	want := protocol.Status{
		Ref: protocol.Ref{SessionID: id}, Code: protocol.StatusOperationOutput, OutputID: "mine", Message: "half",
	}
	if got := <-heard; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v while it runs, want %+v", got, want)
	}
	close(answeredOnce)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want.Message = "whole"
	if got := <-heard; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	params.OutputID = ""
	if _, err := answered(f.extensionCommand(ctx, params)); err != nil || len(heard) > 0 {
		t.Errorf("without output_id: %v, and %d told, want none", err, len(heard))
	}
	if events.err != nil {
		t.Error(events.err)
	}
}
