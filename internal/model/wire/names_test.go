package wire_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/wire"
)

var providersTake = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)

// oddNames are those that are hard to tell apart, and every name of seven "a",
// "_" and "." at most.
func oddNames() []string {
	long := strings.Repeat("long", 20)
	names := []string{
		"torch.light", "torch__light", "9lives", "-x", "mit ümläut", "mit umlaut", "a b", "件.名", "件.前", "A.b", "a.B",
		long, long + "x", strings.Repeat("n", 64), strings.Repeat("n", 65), "m." + strings.Repeat("n", 61),
		"m." + strings.Repeat("n", 62),
		"m." + strings.Repeat("é", 100), "m." + strings.Repeat("é", 99), strings.Repeat("x", 200), strings.Repeat("x", 199) +
			"y",
		"a\x00b", "a\nb", "\xff", "\xfe",
	}
	next := []string{""}
	for range 8 {
		names = append(names, next...)
		var longer []string
		for _, name := range next {
			longer = append(longer, name+"a", name+"_", name+".")
		}
		next = longer
	}
	for _, name := range names[:40] { // and what they become, as tools of their own
		there := wire.NewNames(model.Request{Deferred: []string{name}}).There(name)
		for _, taken := range []string{there, strings.Replace(there, "__", ".", 1), strings.Replace(there, "t_", "t_.", 1)} {
			if !slices.Contains(names, taken) {
				names = append(names, taken)
			}
		}
	}
	return names
}

// Any set of names is told to a provider so that it takes each, and each comes
// back as itself; and a name is told in the same way whatever else there is.
func TestNames(t *testing.T) {
	names := oddNames()
	alone := map[string]string{}
	for _, name := range names {
		alone[name] = wire.NewNames(model.Request{Deferred: []string{name}}).There(name)
		if !providersTake.MatchString(alone[name]) {
			t.Errorf("%q becomes %q, which is refused", name, alone[name])
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		some := names[:len(names)>>min(round, 3)]
		var req model.Request
		for i, name := range some {
			switch i % 3 {
			case 0:
				req.Tools = append(req.Tools, model.ToolSpec{Name: name})
			case 1:
				req.Deferred = append(req.Deferred, name)
			default:
				req.Messages = append(req.Messages, model.Message{Role: model.Assistant, ToolCalls: []model.ToolCall{{Name: name}}})
			}
		}
		mapped, seen := wire.NewNames(req), map[string]string{}
		for _, name := range some {
			there := mapped.There(name)
			if there != alone[name] {
				t.Errorf("%q becomes %q beside other tools, %q without", name, there, alone[name])
			}
			if other, twice := seen[there]; twice {
				t.Errorf("%q and %q both become %q", name, other, there)
			}
			seen[there] = name
			if back := mapped.Ours(there); back != name {
				t.Errorf("%q becomes %q and comes back as %q", name, there, back)
			}
		}
	}
}

// What journals and transcripts have stays: these are how tools are described.
func TestNamesAreReadable(t *testing.T) {
	for name, want := range map[string]string{
		"read": "read", "a.b": "a__b", "a.b.c": "a__b__c", "git-hub.create_issue": "git-hub__create_issue",
		"a_b.c_":                "a_b__c_",
		"a.b__c":                "t_a__b__c_44b440f74f860756",
		"a.ü":                   "t_a____",
		strings.Repeat("x", 70): "t_" + strings.Repeat("x", 45) + "_",
	} {
		if got := wire.NewNames(model.Request{Deferred: []string{name}}).There(name); !strings.HasPrefix(got, want) ||
			len(got) > len(want) && !strings.HasPrefix(got, "t_") {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
	if got := wire.NewNames(model.Request{}).Ours("never__told"); got != "never__told" {
		t.Errorf("an unknown name comes back as %q", got)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a.b", "a__b")
	f.Add("a_.b", "a._b")
	f.Add("t_a_0123456789abcdef", "t.a_0123456789abcdef")
	f.Fuzz(func(t *testing.T, a, b string) {
		one, both := wire.NewNames(model.Request{Deferred: []string{b}}),
			wire.NewNames(model.Request{Deferred: []string{a, b}})
		switch {
		case !providersTake.MatchString(both.There(a)):
			t.Errorf("%q becomes %q", a, both.There(a))
		case a != b && both.There(a) == both.There(b):
			t.Errorf("%q and %q become %q", a, b, both.There(a))
		case both.Ours(both.There(a)) != a || both.Ours(both.There(b)) != b || one.There(b) != both.There(b):
			t.Errorf("%q, %q: %+v", a, b, both)
		}
	})
}

func BenchmarkNamesOf500Tools(b *testing.B) {
	req := model.Request{Deferred: make([]string, 500)}
	for i := range req.Deferred {
		req.Deferred[i] = "server." + strings.Repeat("a_tool", 1+i%5) + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	for b.Loop() {
		wire.NewNames(req)
	}
}
