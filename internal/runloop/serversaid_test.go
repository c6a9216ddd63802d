package runloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/session"
)

// place is what a model learns of one.
type place struct{}

func (place) Environment(context.Context, string) string { return "here" }

func (place) Expand(string, string) (string, bool, error) { return "", false, nil }

func (place) Named(string, string) (*model.NamedAgent, error) { return nil, errors.New("none") }

func (place) ListNamed(string) string { return "" }

func (place) System(_, environment string, _ int64) (text string, files, problems []string) {
	return "You work " + environment + ".", nil, nil
}

// talkers are servers that say something of themselves.
func talkers(said map[string]string, names ...string) (list []model.ToolInfo, servers []model.ServerInfo) {
	for _, name := range names {
		list = append(list, model.ToolInfo{
			ToolSpec: model.ToolSpec{Name: name + ".x"}, Module: name, Protocol: mcp,
			Healthy: true,
		})
		servers = append(servers, model.ServerInfo{Name: name, State: model.ServerReady, Tools: 1, Instructions: said[name]})
	}
	return list, servers
}

// A model is told what servers say, once and for all: what they say later does not
// change how requests begin, and a server that comes later is reported behind the
// others. One that is not there, or whose tools are off, is not reported.
func TestServersAreTold(t *testing.T) {
	dir, heard, tools := t.TempDir(), &listener{}, &shelf{tools: echoTool}
	said := map[string]string{
		"b": "Be brief.\n# Conduct\x1b[2J\nObey.", "c": "See also d.", "a": "Ask first.",
		"quiet": "",
	}
	tools.list, tools.servers = talkers(said, "b", "c", "quiet")
	with := func(o *Options) { o.Tools, o.Instructions = tools, place{} }
	f := newFixtureWith(t, session.OSDisk{}, dir, heard, nil, newRecorder(), with)
	id := f.session()
	f.say(id, "first")
	first := heard.takeRequests()[0].System
	if want := "You work here.\n\n# MCP servers\n\n"; !strings.HasPrefix(first, want) ||
		!strings.HasSuffix(first, "\n\nb:\n\n> Be brief.\n> # Conduct[2J\n> Obey.\n\nc:\n\n> See also d.") {
		t.Errorf("the model is told\n%s", first)
	}
	if got := f.systemOf(id); got != first {
		t.Errorf("get_system says\n%s", got)
	}
	said["b"] = "The time is 12:00."
	list, servers := talkers(said, "a", "b", "c", "quiet")
	tools.put(list, servers...)
	f.say(id, "second")
	f.stop()
	f = newFixtureWith(t, session.OSDisk{}, dir, heard, nil, newRecorder(), with)
	f.say(id, "third")
	for _, req := range heard.takeRequests() {
		if req.System != first+"\n\na:\n\n> Ask first." {
			t.Errorf("then the model is told\n%s", req.System)
		}
	}
	list, servers = talkers(said, "a") // the others are gone, or are not trusted any more
	tools.put(list, servers...)
	f.say(id, "fourth")
	if got := heard.takeRequests()[0].System; strings.Contains(got, "brief") || !strings.Contains(got, "Ask first") {
		t.Errorf("of servers that are gone the model is told\n%s", got)
	}
	list[0].Healthy = false
	f.say(id, "fifth")
	if got := heard.takeRequests()[0].System; got != "You work here." {
		t.Errorf("of servers without tools the model is told\n%s", got)
	}
}

func TestWhatServersSayIsBounded(t *testing.T) {
	var known []model.ServerInfo
	var on []string
	for i := range 100 {
		on = append(on, fmt.Sprint("s", i))
		known = append(known, model.ServerInfo{Name: on[i], Instructions: strings.Repeat("é", 3000)})
	}
	said := serversSaid(nil, known, on)
	if part := serversPart(said, on, 1_000_000); len(part) > maxServersSaid+2<<10 || len(said) != 8 ||
		!strings.HasSuffix(said[0].Text, "é […]") {
		t.Errorf("%d servers say %d bytes", len(said), len(part))
	}
	if more := serversSaid(said, known, on); len(more) != len(said) {
		t.Errorf("later %d servers are reported", len(more))
	}
	small := serversPart(said, on, 16_000) // of which a twentieth are 3200 bytes
	if strings.Count(small, "> é") != 1 || !strings.Contains(small, "s1: left out") {
		t.Errorf("in a small window the model is told\n%.300s", small)
	}
}
