package job

import (
	"testing"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// A client chooses the last token of the subject that it submits on. One that stands for
// all subjects must not end the jobs of others.
func TestNoIDStandsForAllJobs(t *testing.T) {
	url := fleettest.Start(t, "").Direct()
	q := open(t, url)
	submit(t, q, "a")
	for _, id := range []string{"*", ">"} {
		if _, err := q.js.Publish(t.Context(), fleet.DefaultPrefix.JobQueue(id), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	submit(t, q, "b")
	var left []string
	for after := uint64(0); ; {
		m, ok, err := q.Next(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		after = m.Seq
		if _, err := Parse(m.ID, m.Text); err == nil {
			left = append(left, m.ID)
			continue
		}
		for range 2 { // another daemon has refused it meanwhile
			if _, err := q.Refuse(t.Context(), m, Failed(m.ID, "box", "invalid_payload", "no job")); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
	}
	if len(left) != 2 || left[0] != "a" || left[1] != "b" {
		t.Errorf("the jobs %q are left, want a and b", left)
	}
	if _, waits, err := q.Get(t.Context(), "a"); !waits || err != nil {
		t.Errorf("a waits: %t, %v", waits, err)
	}
	if e, over, err := q.End(t.Context(), "b"); over || err != nil {
		t.Errorf("got the end %+v, %v", e, err)
	}
}
