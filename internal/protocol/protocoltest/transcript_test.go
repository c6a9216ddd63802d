package protocoltest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name, want, got string
		ok              bool
	}{
		{"the same", `{"a":[1,"x",null,true]}`, `{"a":[1,"x",null,true]}`, true},
		{"more fields than wanted", `{"a":1}`, `{"a":1,"b":2}`, true},
		{"a field is missing", `{"a":1}`, `{"b":1}`, false},
		{"another value", `{"a":1}`, `{"a":2}`, false},
		{"another type", `{"a":"1"}`, `{"a":1}`, false},
		{"more elements than wanted", `{"a":[1]}`, `{"a":[1,2]}`, false},
		{"not an object", `{"a":{}}`, `{"a":[]}`, false},
		{"no JSON", `{}`, `{`, false},
		{"the same id twice", `{"a":"<run>","b":"<run>"}`, `{"a":"r1","b":"r1"}`, true},
		{"two ids where one is wanted", `{"a":"<run>","b":"<run>"}`, `{"a":"r1","b":"r2"}`, false},
		{"bound before", `{"a":"<old>"}`, `{"a":"o1"}`, true},
		{"bound before to something else", `{"a":"<old>"}`, `{"a":"o2"}`, false},
		{"an empty id", `{"a":"<run>"}`, `{"a":""}`, false},
		{"a number for an id", `{"a":"<run>"}`, `{"a":1}`, false},
		{"a time", `{"a":"<ts>"}`, `{"a":"2026-02-12T00:00:00.123456Z"}`, true},
		{"a time that is not UTC", `{"a":"<ts>"}`, `{"a":"2026-02-12T00:00:00+01:00"}`, false},
		{"no time", `{"a":"<ts>"}`, `{"a":"now"}`, false},
		{"a number", `{"a":"<int>"}`, `{"a":3}`, true},
		{"a fraction", `{"a":"<int>"}`, `{"a":3.5}`, false},
		{"any text", `{"a":"<text>"}`, `{"a":""}`, true},
		{"no text", `{"a":"<text>"}`, `{"a":1}`, false},
		{"a beginning", `{"a":"no_active_run: <text>"}`, `{"a":"no_active_run: x"}`, true},
		{"another beginning", `{"a":"no_active_run: <text>"}`, `{"a":"run_in_progress: x"}`, false},
		{"anything", `{"a":"<any>"}`, `{"a":[{}]}`, true},
	} {
		err := Bindings{"old": "o1"}.Match(c.want, c.got)
		if (err == nil) != c.ok {
			t.Errorf("%s: matching %s with %s: got error %v, want match %t", c.name, c.got, c.want, err, c.ok)
		}
	}
}

func TestFill(t *testing.T) {
	b := Bindings{"run": "run-7"}
	got, err := b.Fill(`{"id":"c1","payload":{"run_id":"<run>"}}`)
	if want := `{"id":"c1","payload":{"run_id":"run-7"}}`; got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if got, err := b.Fill(`{"run_id":"<other>"}`); err == nil {
		t.Errorf("got %s for a placeholder that is not bound, want an error", got)
	}
	if got, err := b.Fill(`{"cut <run>`); got != `{"cut <run>` || err != nil {
		t.Errorf("got %s, %v, want the broken line as it is", got, err)
	}
}

func TestSteps(t *testing.T) {
	got := steps([]byte("# first\n{\"id\":\"c1\"}\n\n# wait agent_end\n{\"id\":\"c2\"}\n"), "# wait ")
	want := []Step{{Line: `{"id":"c1"}`}, {Type: "agent_end"}, {Line: `{"id":"c2"}`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}
