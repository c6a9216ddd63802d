package jobs

import (
	"testing"
	"time"

	"noused/internal/fleet"
	"noused/internal/fleet/job"
)

// It is said of a job what it waits for, or where it is.
func TestHowAJobStands(t *testing.T) {
	t.Parallel()
	gpu, linux := map[string]string{"gpu": "a100"}, map[string]string{"os": "linux"}
	hosts := map[string]fleet.Presence{
		"box":   {Labels: gpu, Slots: 1},
		"tower": {Labels: linux, Slots: 2},
		"desk":  {Labels: map[string]string{"os": "plan9"}},
	}
	for name, c := range map[string]struct {
		text   string
		hosts  map[string]fleet.Presence
		claims map[string]job.Claim
		state  string
		why    string
	}{
		"nobody there": {`{"id":"j","prompt":"x"}`, nil, nil, "queued", "no host is there"},
		"no host has":  {`{"id":"j","prompt":"x","labels":{"gpu":"h100"}}`, hosts, nil, "queued", "no host has gpu=h100"},
		"one is missing": {
			`{"id":"j","prompt":"x","labels":{"gpu":"h100","os":"linux"}}`, hosts, nil, "queued",
			"no host has gpu=h100",
		},
		"not together": {
			`{"id":"j","prompt":"x","labels":{"gpu":"a100","os":"linux"}}`, hosts, nil, "queued",
			"no host has all of gpu=a100 os=linux",
		},
		"takes none": {
			`{"id":"j","prompt":"x","labels":{"os":"plan9"}}`, hosts, nil, "queued",
			"the hosts with os=plan9 take no jobs: they have slots = 0",
		},
		"none takes any": {
			`{"id":"j","prompt":"x"}`,
			map[string]fleet.Presence{"desk": {}},
			nil, "queued",
			"no host takes jobs: all have slots = 0",
		},
		"busy": {
			`{"id":"j","prompt":"x","labels":{"gpu":"a100"}}`, hosts,
			map[string]job.Claim{"k": {Host: "box"}},
			"queued", "no slot is free",
		},
		"soon": {
			`{"id":"j","prompt":"x"}`, hosts,
			map[string]job.Claim{"k": {Host: "box"}, "l": {Host: "tower"}},
			"queued", "it is about to begin",
		},
		"no job": {
			`{"id":"k","prompt":"x"}`, hosts, nil, "queued",
			`it will be refused: id: it is "k", but the subject says "j"`,
		},
		"starting": {`{"id":"j","prompt":"x"}`, hosts, map[string]job.Claim{"j": {Host: "box"}}, "starting", ""},
		"running": {
			`{"id":"j","prompt":"x"}`, hosts,
			map[string]job.Claim{"j": {Host: "box", RunID: "run-1"}},
			"running", "",
		},
		"cancelling": {
			`{"id":"j","prompt":"x"}`, hosts,
			map[string]job.Claim{"j": {Host: "box", RunID: "run-1", Cancel: true}},
			"cancelling", "",
		},
		"away": {
			`{"id":"j","prompt":"x"}`, hosts,
			map[string]job.Claim{"j": {Host: "gone", RunID: "run-1"}},
			"running", "its host is away; after 10m0s without it another host takes the job",
		},
	} {
		got := NewView(c.claims, c.hosts, 10*time.Minute).Standing(job.Queued{ID: "j", Text: []byte(c.text)})
		if got.ID != "j" || got.State != c.state || got.Why != c.why {
			t.Errorf("%s: got %+v, want %s and %q", name, got, c.state, c.why)
		}
	}
}
