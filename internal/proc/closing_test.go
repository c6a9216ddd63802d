package proc

import (
	"context"
	"strings"
	"sync"
	"testing"
)

// While it is being closed a Supervisor starts nothing: this process has the mark of a child
// as long as it starts one, and the guardian would end it, too.
func TestNothingIsStartedWhileASupervisorCloses(t *testing.T) {
	for range 2 {
		f := supervise(t)
		var work sync.WaitGroup
		started := make(chan struct{}, 1<<10)
		for range 4 {
			work.Go(func() {
				for {
					p, err := f.Start(context.Background(), Command{
						Name: "sleep", Path: "/bin/sleep", Args: []string{"sleep", "100"}, Dir: "/", MaxLine: 1 << 10,
					})
					if err != nil {
						if !strings.Contains(err.Error(), "the daemon is stopping") {
							t.Error(err)
						}
						return
					}
					work.Go(func() { p.Wait() })
					select {
					case started <- struct{}{}:
					default:
					}
				}
			})
		}
		<-started
		f.Close()
		work.Wait()
	}
}
