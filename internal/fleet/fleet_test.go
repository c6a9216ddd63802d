package fleet

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"box", true},
		{"Box-7_x", true},
		{"", false},
		{"a.b", false},
		{"*", false},
		{">", false},
		{"a b", false},
		{"a\n", false},
		{"jobs", false},
		{"bücher", false},
		{strings.Repeat("a", 63), true},
		{strings.Repeat("a", 64), false},
	} {
		if err := CheckName(c.name); (err == nil) != c.ok {
			t.Errorf("CheckName(%q): got %v, want ok %t", c.name, err, c.ok)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, c := range []struct {
		url, why string
	}{
		{"nats://box:4222", ""},
		{"tls://box", ""},
		{"wss://box/nats", ""},
		{"box:4222", "want nats://"},
		{"http://box", "want nats://"},
		{"nats://", "has no host"},
		{"nats://alice:secret@box", "not into the URL"},
		{"nats://a b", "is no URL"},
	} {
		err := CheckURL(c.url)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, want %q", c.url, err, c.why)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password: %v", c.url, err)
		}
	}
}

// Whatever becomes a part of a subject can be taken out of it again, and no other
// subject is read as one.
func FuzzSubjects(f *testing.F) {
	f.Add("box", "ses-1")
	f.Add("jobs", "a.b")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, host, session string) {
		if CheckName(host) != nil {
			return
		}
		p := DefaultPrefix
		gotHost, gotSession, ok := p.OfEvent(p.Event(host, session))
		want := session
		if CheckID(session) != nil || session == NoSession {
			want = ""
		}
		if !ok || gotHost != host || gotSession != want {
			t.Errorf("%q: got %q %q %t", p.Event(host, session), gotHost, gotSession, ok)
		}
	})
}

func TestMessageIDs(t *testing.T) {
	epoch, seq, ok := OfMessageID(MessageID("ep-1:2", 42))
	if epoch != "ep-1:2" || seq != 42 || !ok {
		t.Errorf("got %q %d %t", epoch, seq, ok)
	}
	for _, bad := range []string{"", "ep", ":1", "ep:", "ep:x", "ep:1x", "ep:-1"} {
		if _, _, ok := OfMessageID(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestLabels(t *testing.T) {
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[strings.Repeat("k", i+1)] = "v"
	}
	for _, c := range []struct {
		labels map[string]string
		ok     bool
	}{
		{nil, true},
		{map[string]string{"gpu": "a100", "os": ""}, true},
		{map[string]string{"a.b": "x"}, false},
		{map[string]string{"a": "x\ny"}, false},
		{map[string]string{"a": strings.Repeat("x", 129)}, false},
		{many, false},
	} {
		if err := CheckLabels(c.labels); (err == nil) != c.ok {
			t.Errorf("%v: got %v, want ok %t", c.labels, err, c.ok)
		}
	}
}
