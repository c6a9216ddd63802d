package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
)

const frozenTranscripts = "../../internal/protocol/testdata/v1/*.txtar"

// TestFrozenTranscripts plays the frozen conversations with a real daemon. A
// change that they do not survive breaks somebody's client.
func TestFrozenTranscripts(t *testing.T) {
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		t.Fatal("the transcripts of v1 are frozen: -update does not touch them")
	}
	transcripts, err := protocoltest.ReadTranscripts(frozenTranscripts)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range transcripts {
		if len(tr.Steps) == 0 {
			continue // events that no script can make a daemon say
		}
		t.Run(tr.Name, func(t *testing.T) {
			t.Parallel()
			play(t, tr)
		})
	}
}

// TestAddedTranscripts plays conversations about what we add to the protocol.
func TestAddedTranscripts(t *testing.T) {
	transcripts, err := protocoltest.ReadTranscripts("../../internal/protocol/testdata/added/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range transcripts {
		t.Run(tr.Name, func(t *testing.T) {
			t.Parallel()
			play(t, tr)
		})
	}
}

// folders are what the placeholders for paths in transcripts stand for.
func folders(t *testing.T, dir string) protocoltest.Bindings {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := protocoltest.Bindings{}
	for _, name := range []string{"project", "other", "link", "file", "gone"} {
		b[name] = filepath.Join(dir, name)
	}
	err = errors.Join(os.Mkdir(b["project"], 0o700), os.Mkdir(b["other"], 0o700), os.Symlink("project", b["link"]),
		os.WriteFile(b["file"], nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func play(t *testing.T, tr *protocoltest.Transcript) {
	dir := t.TempDir()
	args := []string{"--tools-dir", filepath.Join(dir, "tools")}
	for _, f := range tr.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o700); err != nil {
			t.Fatal(err)
		}
		if f.Name == "config.toml" {
			args = append(args, "--config", path)
		}
	}
	d := newDaemon(t, args...)
	p := &player{
		t: t, commands: d.commands(), events: dialWire(t, d.Socket+".events"), bound: folders(t, t.TempDir()),
		replies: tr.Replies, want: tr.Events,
	}
	p.events.send(`{"v":"1","id":"s1","type":"subscribe"}`)
	if sub := p.events.recv(); sub.Type != "subscribed" || !sub.OK {
		t.Fatalf("subscribing: got %+v", sub)
	}
	for _, step := range tr.Steps {
		if step.Type != "" {
			for p.event() != step.Type {
			}
			continue
		}
		p.command(step.Line)
	}
	if len(p.replies) > 0 {
		t.Errorf("%d replies have no command", len(p.replies))
	}
	d.Stop() // the events that are left, and the end
	for p.event() != "" {
	}
	for _, step := range p.want {
		if step.Type == "" {
			t.Errorf("this event did not come: %s", step.Line)
		}
	}
}

// player is in the middle of a transcript.
type player struct {
	t                *testing.T
	commands, events *wire
	bound            protocoltest.Bindings
	replies          []string
	want             []protocoltest.Step // events
}

func (p *player) command(line string) {
	p.t.Helper()
	filled, err := p.bound.Fill(line)
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	p.commands.send(filled)
	got, err := p.commands.in.Next()
	if err != nil {
		p.t.Fatalf("no reply to %s: %v", filled, err)
	}
	if len(p.replies) == 0 {
		p.t.Fatalf("the transcript has no reply to %s", filled)
	}
	if err := p.bound.Match(p.replies[0], string(got)); err != nil {
		p.t.Fatalf("%s\ngot  %s\nwant %s\n%v", filled, got, p.replies[0], err)
	}
	p.replies = p.replies[1:]
}

// event takes the next event of a session and returns its type, "" at the end
// of all events. What the daemon reports about itself is not the transcript's.
func (p *player) event() string {
	p.t.Helper()
	for {
		line, err := p.events.in.Next()
		if err != nil {
			return ""
		}
		var env struct {
			Type    string       `json:"type"`
			Payload protocol.Ref `json:"payload"`
		}
		if err := json.Unmarshal(line, &env); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		if env.Payload.SessionID == "" {
			continue
		}
		for len(p.want) > 0 && p.want[0].Type != "" && p.want[0].Type != env.Type {
			p.want = p.want[1:]
		}
		switch {
		case len(p.want) == 0:
			p.t.Fatalf("the transcript ends before %s", line)
		case p.want[0].Type != "": // any number of them
		default:
			if err := p.bound.Match(p.want[0].Line, string(line)); err != nil {
				p.t.Fatalf("got  %s\nwant %s\n%v", line, p.want[0].Line, err)
			}
			p.want = p.want[1:]
		}
		return env.Type
	}
}
