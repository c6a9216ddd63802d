package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// patchTool says a great many patches of the session's state, each of a member of
// its own.
const patchTool = `#!/bin/sh
read -r call
exec awk 'BEGIN {
	for (text = "x"; length(text) < %[2]d;) text = text text
	text = substr(text, 1, %[2]d)
	for (n = 0; n < %[1]d; n++) printf "{\"version\":\"0\",\"type\":\"state_patch\",\"patch\":{\"n%%d\":\"%%s\"}}\n", n, text
	print "{\"version\":\"0\",\"type\":\"done\",\"ok\":true,\"summary\":\"patched\"}"
}'
`

// A tool that floods the session with patches costs what they are long: its
// session keeps 1 MiB of them, the daemon's memory is bounded, and the next
// daemon opens the session at once.
func TestAFloodOfStatePatches(t *testing.T) {
	for _, flood := range []struct{ patches, size int }{{20_000, 1000}, {4000, 60_000}} {
		t.Run(fmt.Sprintf("%dx%d", flood.patches, flood.size), func(t *testing.T) {
			d := newDaemon(t)
			d.Stop()
			d.Program = plainDaemon(t) // the race detector takes memory of its own
			d.write("tools/flood.json", `{"name":"flood","kind":"tool","protocol":"narratoria","capabilities":[],"timeout":"5m",
				"transport":{"type":"stdio","command":["./flood.sh"]},"operations":{"run":{}}}`, 0o600)
			d.write("tools/flood.sh", fmt.Sprintf(patchTool, flood.patches, flood.size), 0o700)
			d.Start()
			ctx, c := context.Background(), d.dial()
			ended, before, began := d.events(protocol.SubscribeParams{Types: []string{"agent_end"}}), d.footprint(), time.Now()
			no := false
			r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: "!flood.run", Wait: &no})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := ended.Next(ctx); err != nil {
				t.Fatal(err)
			}
			took, after := time.Since(began), d.footprint()
			d.Kill()
			d.Start()
			began = time.Now()
			st, err := client.Call(ctx, d.dial(), protocol.GetState,
				protocol.GetStateParams{Scope: protocol.Scope{SessionID: r.Accepted.SessionID}})
			if err != nil {
				t.Fatal(err)
			}
			opened, journal := time.Since(began), d.journalSize(r.Accepted.SessionID)
			t.Logf("%d patches of %d bytes in %s; resident %d KiB before, at most %d; state %d bytes, journal %d; opened "+
				"again in %s with %d KiB",
				flood.patches, flood.size, took, before.now, after.most, len(st.SessionState), journal, opened, d.footprint().most)
			if n := len(st.SessionState); n > 1<<20 || n < 900_000 {
				t.Errorf("the session's state has %d bytes, want as much as may be kept", n)
			}
			if journal > 2<<20 {
				t.Errorf("the journal has %d bytes: what was refused is in it", journal)
			}
			if grown := after.most - before.now; grown > maxGrowth {
				t.Errorf("the daemon grew by %d KiB, want at most %d", grown, maxGrowth)
			}
		})
	}
}

func (d *daemon) journalSize(session string) int64 {
	d.t.Helper()
	info, err := os.Stat(filepath.Join(d.Dir, "state", "sessions", session+".jsonl"))
	if err != nil {
		d.t.Fatal(err)
	}
	return info.Size()
}
