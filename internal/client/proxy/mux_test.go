package proxy

import (
	"bytes"
	"strings"
	"testing"
)

// A daemon that is killed in the middle of a line has said whole lines, and, where the line was
// longer than the proxy holds, one that nobody takes for whole.
func TestProxyOfADaemonThatIsKilledInTheMiddle(t *testing.T) {
	for _, size := range []int{10, piece - 1, piece, piece + 1, 10 * piece} {
		var out bytes.Buffer
		j := &mux{out: &out}
		if err := j.copy(strings.NewReader("{\"a\":1}\n"+strings.Repeat("x", size)), nil); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(out.String(), "\n")
		if lines[0] != "{\"a\":1}\n" || lines[len(lines)-1] != "" || len(lines) > 3 {
			t.Errorf("%d bytes: got %d lines, which begin with %.20q", size, len(lines), lines[0])
		}
		if len(lines) == 3 && !strings.HasSuffix(lines[1], "x\x00\n") {
			t.Errorf("%d bytes: got a line of %d bytes that looks whole", size, len(lines[1]))
		}
		if size < piece && len(lines) == 3 {
			t.Errorf("%d bytes: a part of a line was written", size)
		}
	}
}
