package bridge

import (
	"testing"

	"noused/internal/tui/tuitest"
)

// dir has noused, as it was built for the tests of this package.
var dir, noused string

func TestMain(m *testing.M) { tuitest.Main(m, &dir, &noused) }

func startDaemon(t testing.TB, config string) *tuitest.Daemon {
	t.Helper()
	return tuitest.StartDaemon(t, noused, config)
}
