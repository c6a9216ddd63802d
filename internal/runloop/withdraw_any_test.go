package runloop

import (
	"context"
	"errors"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
)

// A text is taken back by its id alone, whichever session it waits in.
func TestWithdrawByIDAlone(t *testing.T) {
	calling, goOn := make(chan struct{}), make(chan struct{})
	slow := func(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
		calling <- struct{}{}
		<-goOn
		return echoTool(ctx, inv, progress)
	}
	f := newFixture(t, t.TempDir(), offline.Model{}, slow, newRecorder())
	id := f.session()
	run, err := f.start(id, "!t.x")
	if err != nil {
		t.Fatal(err)
	}
	<-calling
	queued, err := answered(f.queue(context.Background(), protocol.KindFollowUp,
		protocol.SteerParams{Scope: protocol.Scope{SessionID: id}, Text: "and then"}))
	if err != nil {
		t.Fatal(err)
	}
	f.events.accepted(queued.InputID, queued.RunID)
	if active := f.session(); active == id {
		t.Fatal("the other session is not the active one")
	}
	got, err := f.withdraw(context.Background(), protocol.WithdrawParams{InputID: queued.InputID})
	if err != nil || got.SessionID != id || got.Text != "and then" {
		t.Errorf("got %+v, %v, want the text of session %s", got, err, id)
	}
	var wire *protocol.Error
	if _, err := f.withdraw(context.Background(), protocol.WithdrawParams{InputID: queued.InputID}); !errors.As(err,
		&wire) || wire.Reason() != protocol.NotPending {
		t.Errorf("once more: got %v, want not_pending", err)
	}
	close(goOn)
	f.events.wait(run.RunID)
	f.stop()
	f.events.done(t)
}
