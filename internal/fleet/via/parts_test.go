package via

import (
	"fmt"
	"strings"
	"testing"
)

// An event is taken apart only into parts that its text has, and that do not take more
// memory than it gives reason to.
func TestPartsAreBounded(t *testing.T) {
	line := func(id string, n int, parts string) []byte {
		return fmt.Appendf(nil,
			`{"v":"1","type":"message_update","seq":%d,"from_seq":1,"ts":"2026-01-01T00:00:00Z","parts":[%s],"payload":{"session_id":"s","run_id":"r","message_id":%q,"delta":"hello"}}`, n, parts, id)
	}
	for name, c := range map[string]struct {
		id    string
		n     int
		parts string
		want  int
	}{
		"two":                    {"m", 2, "2,3", 2},
		"less than the text":     {"m", 2, "2,2", 1},
		"more than the text":     {"m", 2, "2,4", 1},
		"a negative one":         {"m", 3, "2,-2,5", 1},
		"many that say too much": {strings.Repeat("m", 30_000), 40_000, "5" + strings.Repeat(",0", 39_999), 1},
		"as many, and small":     {"m", 5_000, "5" + strings.Repeat(",0", 4_999), 5_000},
	} {
		e, why := readEvent(line(c.id, c.n, c.parts), uint64(c.n))
		if why != "" {
			t.Fatalf("%s: %s", name, why)
		}
		if got := len(e.parts()); got != c.want {
			t.Errorf("%s: %d events, want %d", name, got, c.want)
		}
	}
}
