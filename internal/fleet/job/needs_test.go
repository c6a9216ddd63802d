package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// What docs/fleet-operator.md says that a client needs is enough to submit, wait and list, and
// with the last three to cancel.
func TestWhatAClientNeeds(t *testing.T) {
	submits := []string{
		"noused.jobs.queue.*", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>",
		"$JS.API.CONSUMER.CREATE.noused_EVENTS.>", "$JS.API.CONSUMER.CREATE.KV_noused_CLAIMS.>",
		"$JS.API.CONSUMER.CREATE.KV_noused_HOSTS.>",
		"$JS.API.CONSUMER.MSG.NEXT.*.*",
	}
	cancels := append(submits, "noused.jobs.done.*", "$KV.noused_CLAIMS.*", "$JS.API.STREAM.PURGE.noused_JOBS")
	user := func(name string, may []string) string {
		return fmt.Sprintf("{ user: %s, password: x, permissions { publish: [%q], subscribe: \"_INBOX.>\" } }\n", name,
			strings.Join(may, `", "`))
	}
	config := "authorization { users: [ { user: box, password: x }\n" + user("submits", submits) +
		user("cancels", cancels) + "] }\n"
	config = strings.ReplaceAll(config, `\"`, `"`)
	s := fleettest.Start(t, config)
	as := func(name string) *Queue {
		nc := fleettest.Dial(t, s.Direct(), nats.UserInfo(name, "x"),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				t.Errorf("%s does what it may not, and the server's log says so: %v", name, err)
			}))
		q, err := Open(t.Context(), fleettest.JetStream(t, nc), fleet.DefaultPrefix, DefaultTimeout)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return q
	}
	as("box")
	q := as("submits")
	submit(t, q, "one")
	if all, _, err := q.Claims(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("claims: %v, %v", all, err)
	}
	waits, waiting := make(chan error, 1), as("submits")
	go func() { // ends with the job
		_, err := waiting.Wait(t.Context(), "one")
		waits <- err
	}()
	if did, _, err := as("cancels").Cancel(t.Context(), "one", time.Second); did != Removed || err != nil {
		t.Errorf("cancel: got %s, %v", did, err)
	}
	if err := <-waits; err != nil {
		t.Errorf("wait from the beginning: %v", err)
	}
	if e, err := q.Wait(t.Context(), "one"); err != nil || e.ID != "one" {
		t.Errorf("wait: got %+v, %v", e, err)
	}
	if ends, _, err := q.Ends(t.Context(), 10); err != nil || len(ends) != 1 {
		t.Errorf("ends: %v, %v", ends, err)
	}
}
