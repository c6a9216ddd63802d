package worker

import (
	"testing"

	"noused/internal/tool/tooltest"
)

func TestMain(m *testing.M) { tooltest.Main(m, nil) }
