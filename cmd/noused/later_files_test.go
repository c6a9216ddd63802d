package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// A file that somebody saves beside the daemon's own folders after the tools have
// started can be read by them, as a screenshot in the home folder.
func TestToolsReadWhatCameAfterTheyWereStarted(t *testing.T) {
	d := newDaemon(t)
	d.Stop()
	workdir := filepath.Join(d.Dir, "project")
	if err := os.Mkdir(workdir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.Args = append(d.Args, "--workdir", workdir)
	d.Start()
	c := d.dial()
	for _, name := range []string{"first", "second"} {
		d.write(name, "what "+name+" says\n", 0o600)
		for _, call := range []struct{ tool, args string }{
			{"read", `{"path":"../` + name + `"}`}, {"bash", `{"command":"cat ../` + name + `"}`},
		} {
			r, err := client.Call(context.Background(), c, protocol.ExtensionCommand,
				protocol.ExtensionCommandParams{Name: call.tool, Payload: []byte(call.args)})
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK || !strings.Contains(r.Result, "what "+name+" says") {
				t.Errorf("%s %s: got %+v", call.tool, call.args, r)
			}
		}
	}
}
