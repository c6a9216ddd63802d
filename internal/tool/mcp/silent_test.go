package mcp

import (
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/tool"
)

// A call to a server that says nothing ends by the timeout of its entry, whichever of its
// waits that shortens, and costs the server one more start than the first.
func TestACallToASilentServerEndsByItsTimeout(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "deaf").Set("timeout", "700ms"))
	if !b.Has(t.Context(), model.Scope{}, "x.run") {
		t.Error("a server that was never heard may have the tool")
	}
	b.ends(b.call("", 0), tool.Timeout, "x", "700ms")
	b.Close(t.Context())
	if n := b.traced("start"); n < 1 || n > 2 {
		t.Errorf("the server was started %d times for one call, want once or twice", n)
	}
	b.gone()
}

// A model call waits for such a server once, not again each time that it is started.
func TestASilentServerIsWaitedForOnce(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "deaf").Set("timeout", "300ms"))
	if missing := b.Ready(t.Context(), model.Scope{}); len(missing) != 0 { // it has failed within the time
		t.Fatalf("%q are missing", missing)
	}
	if missing := b.Ready(t.Context(), model.Scope{}); len(missing) != 1 {
		t.Errorf("%q are missing; want x, which is not waited for again", missing)
	}
	b.gone()
}

// So does a call to one that was heard before and says nothing now.
func TestACallToAServerThatHasGoneSilentEndsByItsTimeout(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "").Set("timeout", "700ms"))
	b.succeeds("", "did it")
	b.gone()
	server(t, "rogue").Env("HANDSHAKE", "deaf").Set("timeout", "700ms").Write(t, b.dir)
	before := b.traced("start")
	b.open()
	if names := b.names(); len(names) != 1 || names[0] != "x.run" {
		t.Fatalf("got %q, want the tool of before", names)
	}
	b.ends(b.call("", 0), tool.Timeout, "x", "700ms")
	b.Close(t.Context())
	if n := b.traced("start") - before; n < 1 || n > 2 {
		t.Errorf("the server was started %d times for one call, want once or twice", n)
	}
	b.gone()
}

// A server that never answers which prompts it has keeps its tools, however short its
// timeout is beside the time that prompts have.
func TestAServerThatIsMuteAboutPromptsKeepsItsTools(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "mute").Set("timeout", "6s"), func(h *host) {
		h.waits.ping = 24 * time.Hour
	})
	b.succeeds("", "did it")
	b.starts(1)
	if s := b.Servers(model.Scope{}); len(s) != 1 || len(s[0].Prompts) != 0 || s[0].Tools != 1 {
		t.Errorf("got %+v, want one tool and no prompts", s)
	}
	b.gone()
}
