//go:build sim

package sim

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// Answers are held against the order of what happened: one that is true at no moment
// between the command and its reply is found, and one that is true at some moment is none.
func TestAnswersFitOneOrder(t *testing.T) {
	queued := porcupine.Operation{Input: deed{what: "queued", id: "in-1"}, Call: 10, Return: 11}
	delivered := porcupine.Operation{Input: deed{what: "delivered", id: "in-1"}, Call: 20, Return: 21}
	decided := porcupine.Operation{Input: deed{what: "decided", id: "apr-1", key: "deny"}, Call: 30, Return: 31}
	for _, c := range []struct {
		name      string
		d         deed
		sent, got int64
		ok, true  bool
	}{
		{"not pending, when it was delivered meanwhile", deed{what: "take back", id: "in-1"}, 12, 22, false, true},
		{"not pending, while it waits", deed{what: "take back", id: "in-1"}, 12, 18, false, false},
		{"taken back, and delivered", deed{what: "take back", id: "in-1"}, 12, 22, true, false},
		{"accepted, and never heard of", deed{what: "accept", id: "in-2", key: "k"}, 12, 22, true, false},
		{"accepted", deed{what: "accept", id: "in-1", key: "k"}, 9, 12, true, true},
		{"resolved already, before anybody has", deed{what: "answer", id: "apr-1", key: "once"}, 12, 22, false, false},
		{"another answer was taken", deed{what: "answer", id: "apr-1", key: "once"}, 12, 40, true, false},
		{"this answer was taken", deed{what: "answer", id: "apr-1", key: "deny"}, 12, 40, true, true},
	} {
		answer := porcupine.Operation{ClientId: 1, Input: c.d, Call: c.sent, Output: c.ok, Return: c.got}
		wrong := linearizable(map[string][]porcupine.Operation{"s": {queued, delivered, decided, answer}})
		if (wrong == "") != c.true {
			t.Errorf("%s: got %q", c.name, wrong)
		}
	}
}
