package agent

import (
	"context"
	"testing"
	"testing/synctest"

	"noused/internal/budget"
)

// What agents say and nobody has taken in has a bound for all of them together: one that says more
// is not read on until somebody takes in what it has said. A little of each is always read.
func TestWordsThatWaitCountForAllAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const part = 32 << 10
		words := budget.New(4 * part)
		first, second := newInbox(words), newInbox(words)
		say := event{kind: said, line: part - event{}.size()}
		for range 2 + 4 { // what is free, and all that there is
			first.put(t.Context(), say, 0)
		}
		second.put(t.Context(), say, 0)
		second.put(t.Context(), say, 0)
		read := make(chan struct{})
		go func() {
			second.put(t.Context(), say, 0)
			close(read)
		}()
		synctest.Wait()
		select {
		case <-read:
			t.Fatal("an agent is read on, with no room for what it says")
		default:
		}
		first.close()
		if _, err := second.next(context.Background(), nil, 0); err != nil {
			t.Fatal(err)
		}
		<-read
		second.close()
		if words.Used() != 0 {
			t.Errorf("%d bytes are still taken", words.Used())
		}
	})
}
