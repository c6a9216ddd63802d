package registry

import (
	"os"
	"testing"

	"noused/internal/proc"
	"noused/internal/tool/tooltest"
)

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		tooltest.Daemon: func() int {
			status, ok := proc.Helper(os.Args)
			if !ok {
				return 2
			}
			return status
		},
		"server": serveMCP,
	})
}
