package job

import (
	"fmt"
	"strings"
	"testing"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
)

// Of many ends the newest are listed, wherever they are among other messages, and it is
// told how many there are beside them.
func TestTheNewestEndsAreListed(t *testing.T) {
	q := open(t, fleettest.Start(t, "").Direct())
	told := 0
	check := func(most uint64, want ...string) {
		t.Helper()
		ends, older, err := q.Ends(t.Context(), most)
		var got []string
		for _, e := range ends {
			got = append(got, e.ID)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || int(older) != told-len(want) {
			t.Errorf("of %d the newest %d: got %v and %d older, %v; want %v", told, most, got, older, err, want)
		}
	}
	check(3)
	for i := range 9 {
		for range i * i % 7 {
			if _, err := q.js.Publish(t.Context(), q.prefix.Event("box", "ses-1"), []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		e := End{
			ID: fmt.Sprint("job-", i), Host: "box", StopReason: protocol.StopError, Output: "long",
			Error: &protocol.RunError{Message: strings.Repeat("x", 64<<10)},
		}
		if _, err := q.Finish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if told++; i == 1 {
			check(3, "job-0", "job-1")
		}
	}
	check(9, "job-0", "job-1", "job-2", "job-3", "job-4", "job-5", "job-6", "job-7", "job-8")
	check(8, "job-1", "job-2", "job-3", "job-4", "job-5", "job-6", "job-7", "job-8")
	check(3, "job-6", "job-7", "job-8")
	check(1, "job-8")
	ends, _, err := q.Ends(t.Context(), 1)
	if err != nil || len(ends) != 1 || ends[0].Host != "box" || ends[0].StopReason != protocol.StopError ||
		ends[0].Output != "" || len(ends[0].Error.Message) > maxPath {
		t.Errorf("got %+v, %v", ends, err)
	}
}

// Claims are listed but for those of jobs that are over, and as many as there is room
// for: one who may write them could fill the memory of another who lists them.
func TestClaimsThatAreListed(t *testing.T) {
	q := open(t, fleettest.Start(t, "").Direct())
	for id, c := range map[string]Claim{
		"runs": {Host: "box", RunID: "run-1"}, "over": {Host: "box", Ended: true},
		"free": {Host: "box"},
	} {
		revision, ok, err := q.Take(t.Context(), id, c)
		if err == nil && id == "free" {
			err = q.Release(t.Context(), id, revision)
		}
		if !ok || err != nil {
			t.Fatalf("%s: %t, %v", id, ok, err)
		}
	}
	if all, left, err := q.Claims(t.Context()); len(all) != 1 || all["runs"].RunID != "run-1" || left != 0 || err != nil {
		t.Errorf("got %v, %d left, %v; want the claim of the job that runs", all, left, err)
	}
	const many = maxKept/maxClaim + 100
	claim := []byte(`{"host":"` + strings.Repeat("x", maxClaim-20) + `"}`)
	for i := range many {
		if _, err := q.js.PublishAsync(fleet.EntrySubject(q.claims.Bucket(), fmt.Sprint("job-", i)), claim); err != nil {
			t.Fatal(err)
		}
	}
	<-q.js.PublishAsyncComplete()
	all, left, err := q.Claims(t.Context())
	if err != nil || left == 0 || left > 200 || len(all)+int(left) < many {
		t.Errorf("of %d claims: got %d, %d left, %v", many, len(all), left, err)
	}
}
