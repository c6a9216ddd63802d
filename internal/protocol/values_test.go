package protocol

import (
	"strings"
	"testing"
)

// Texts are counted past, whatever is in them; what is behind the bound is not counted.
func TestValues(t *testing.T) {
	for text, want := range map[string][2]int{
		``:                                {0, 0},
		`7`:                               {0, 0},
		`{"a":[1,2,{"b":[]}],"c":3}`:      {7, 4},
		`["{[,","\"{[,","\\",{}]`:         {5, 2},
		`[` + strings.Repeat(`{},`, 1000): {11, 2},
		`"` + strings.Repeat(`[`, 1000):   {0, 0},
	} {
		if n, depth := Values([]byte(text), 10); n != want[0] || depth != want[1] {
			t.Errorf("%.40s: %d values, %d deep, want %d", text, n, depth, want)
		}
	}
}

func BenchmarkValues(b *testing.B) {
	b.SetBytes(int64(len(benchLine)))
	for b.Loop() {
		if n, _ := Values(benchLine, MaxValues); n == 0 {
			b.Fatal("no values")
		}
	}
}
