package bridge

import (
	"os"
	"testing"

	"noused/internal/agent/agenttest"
	"noused/internal/daemontest"
)

var noused string

func TestMain(m *testing.M) {
	if os.Getenv(beAgent) != "" {
		agenttest.Main()
		return
	}
	daemontest.Main(m, &noused)
}

// beAgent is a variable with which this program is the agent of package agenttest.
const beAgent = "NOUSED_TEST_AGENT"

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
