package runloop

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"noused/internal/protocol"
)

// Limits end a run that has used too much. 0 is without a limit. Costs are in
// billionths of a US dollar, and count calls whose prices are known.
type Limits struct {
	RunTokens int64 // read and said in one run
	RunCost   int64 // of one run
	DayCost   int64 // of all runs and summaries of one day
}

// overLimit tells which limit lets no further call of the model be made, and what to do where
// the run has ended.
func (m *machine) overLimit() *protocol.Error {
	why, next := m.limitReached()
	if why == "" {
		return nil
	}
	return &protocol.Error{Code: protocol.OverBudget, Message: why + "; " + next}
}

// limitReached tells which limit it is and what was used, "" where none is, and what to do
// once the run has ended.
func (m *machine) limitReached() (why, next string) {
	used, granted := m.treeUsage(), m.s.Run.Granted
	tokens := used.InputTokens + used.OutputTokens
	if granted.DayCost > m.today || !sameDay(m.s.Run.GrantedAt, m.now) {
		granted.DayCost = 0
	}
	const again = "the next prompt starts a run that may use as much again, " +
		"and a higher limit in config.toml lets one run do more"
	switch l := m.limits; {
	case l.RunTokens > 0 && tokens-granted.Tokens >= l.RunTokens:
		return fmt.Sprintf("the run has used %d tokens, and run_tokens in [limits] is %d", tokens, l.RunTokens), again
	case l.RunCost > 0 && used.Cost-granted.Cost >= l.RunCost:
		return fmt.Sprintf("the run has cost %s USD, and run_cost in [limits] is %s", dollars(used.Cost),
			dollars(l.RunCost)), again
	case l.DayCost > 0 && m.today-granted.DayCost >= l.DayCost:
		return fmt.Sprintf("today has cost %s USD, and day_cost in [limits] is %s", dollars(m.today), dollars(l.DayCost)),
			"go on tomorrow, or set a higher limit in config.toml and start the daemon again"
	}
	return "", ""
}

// sameDay compares days of the daemon's time zone.
func sameDay(a, b time.Time) bool {
	return a.Local().Format(time.DateOnly) == b.Local().Format(time.DateOnly)
}

// dollars is a number of billionths as people write it.
func dollars(n int64) string {
	text := fmt.Sprintf("%s.%09d", strconv.FormatInt(n/nano, 10), n%nano)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
