package terminal

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The terminal sends Ctrl+C to nous and to the editor: it is the editor's, also where that
// has ended by it before nous hears of it.
func TestTheEditorsSignalsAreNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lent
		ends := 0
		keeps := func(sig syscall.Signal, want bool) {
			t.Helper()
			if got := l.Keeps(sig); got != want {
				t.Errorf("%v: kept from nous %t, want %t", sig, got, want)
			}
		}
		keeps(syscall.SIGINT, false)
		l.to(func() { ends++ })
		keeps(syscall.SIGINT, true)
		keeps(syscall.SIGQUIT, true)
		keeps(syscall.SIGTERM, false)
		l.to(nil)
		keeps(syscall.SIGINT, true)
		keeps(syscall.SIGTERM, false)
		time.Sleep(lateSignal)
		keeps(syscall.SIGINT, false)
		if ends != 1 {
			t.Errorf("the editor was ended %d times, want once", ends)
		}
	})
}
