package agent

import (
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Values are those of the option, and of its groups, which have none themselves.
func TestTheValuesOfAnOption(t *testing.T) {
	all := readOptions(jsontext.Value(`[7, {"id":"m","currentValue":"a","options":[{"value":"a"}, 7,
		{"name":"g","options":[{"value":"b"}, {"options":[{"value":"no"}]}, {"value":"c","options":[]}]}, {"value":"d"}]}]`))
	if len(all) != 1 {
		t.Fatalf("got %+v, want one option", all)
	}
	got := ""
	for _, v := range all[0].Values {
		got += v.Value
	}
	if got != "abcd" {
		t.Errorf("got the values %s, want abcd", got)
	}
}

// Options that are nested as deep as a line may be take no more than a few times their length.
func TestNestedOptionsTakeTheirLengthOnce(t *testing.T) {
	const deep = 90
	raw := jsontext.Value(`[{"id":"m","currentValue":"a","options":` + strings.Repeat(`[{"options":`, deep) +
		`[{"value":"a","name":"` + strings.Repeat("x", 1<<20) + `"}]` + strings.Repeat(`}]`, deep) + `}]`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	readOptions(raw)
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > 16<<20 {
		t.Errorf("options of %d bytes took %d bytes", len(raw), made)
	}
}
