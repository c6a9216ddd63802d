package runloop

import (
	"context"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// silentExtension are tools with an extension that said nothing.
type silentExtension struct{ tools }

func (s silentExtension) List(ctx context.Context, from model.Scope) []model.ToolInfo {
	return append(s.tools.List(ctx, from), model.ToolInfo{
		ToolSpec: model.ToolSpec{Name: "deaf", Params: []byte(`{"type":"object"}`)}, Module: "deaf", Protocol: "gevals",
		Problem: "initialize: no result within 10s", Silent: true,
	})
}

// A model call goes without an extension that says nothing, and reports it once.
func TestASilentExtensionIsToldOfOnce(t *testing.T) {
	events := newRecorder()
	var warned []protocol.Warning
	events.onEvent = func(ev protocol.Event) {
		if w, ok := ev.(protocol.Warning); ok {
			warned = append(warned, w)
		}
	}
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), offline.Model{}, nil, events, func(o *Options) {
		o.Tools = silentExtension{echoTool}
	})
	id := f.session()
	f.say(id, "hello")
	f.say(id, "once more")
	f.stop()
	events.done(t)
	if len(warned) != 1 || warned[0].Code != "tools_not_ready" ||
		!strings.Contains(warned[0].Message, "the tools of deaf: initialize: no result within 10s") {
		t.Errorf("got %+v, want one warning that names the extension", warned)
	}
}
