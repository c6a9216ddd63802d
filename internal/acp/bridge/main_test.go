package bridge

import (
	"testing"

	"noused/internal/daemontest"
)

var noused string

func TestMain(m *testing.M) { daemontest.Main(m, &noused) }

func startDaemon(t testing.TB, config string) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, noused, config)
}

// slowDaemon is a daemon with a tool that waits for a line in the fifo go, says it
// and ends.
func slowDaemon(t testing.TB, config string) *daemontest.Daemon {
	t.Helper()
	d := daemontest.New(t, noused, config)
	d.Tool("slow", "read x <go; echo '{\"version\":\"0\",\"type\":\"done\",\"ok\":true,\"summary\":\"'$x'\"}'")
	d.Fifo("go")
	d.Start()
	return d
}
