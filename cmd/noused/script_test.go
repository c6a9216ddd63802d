package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script/*.txtar: what somebody sees who starts the
// daemon from a shell.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NOUSED_MODEL", "offline")
			// Short, so that sockets below it can be bound.
			dir, err := os.MkdirTemp("", "n")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(dir) })
			env.Setenv("D", dir)
			for _, name := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"} {
				env.Setenv(name, dir)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready": ready,
		},
	})
}

// ready waits until the daemon that is started in the background says that it
// is, in the fifo that its stderr goes to, and keeps what it said before that:
// "ready FIFO FILE". The rest of the log is read and thrown away.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ready FIFO FILE")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	drained := make(chan struct{})
	ts.Defer(func() { <-drained }) // by then the daemon has ended
	var log []byte
	in := bufio.NewReader(f)
	for !bytes.Contains(log, []byte(`"msg":"ready"`)) {
		line, err := in.ReadBytes('\n')
		log = append(log, line...)
		if err != nil {
			close(drained)
			ts.Fatalf("not ready: %v\n%s", err, log)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), log, 0o600))
	go func() { // ends with the daemon
		defer close(drained)
		_, _ = io.Copy(io.Discard, in)
		_ = f.Close()
	}()
}
