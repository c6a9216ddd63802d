package idlemem

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
)

// What a program has written, and what it is, is the same after its pages were
// given back; fewer of them are in memory then.
func TestPagesOfTheProgramComeBack(t *testing.T) {
	before := mapped(t)
	dropProgram()
	after := mapped(t)
	if after >= before {
		t.Errorf("%d KB of files are mapped, %d before", after, before)
	}
	for i := range 1000 { // text, constants and variables of the program
		if got := strconv.Quote(strings.Repeat("x", i)); len(got) != i+2 {
			t.Fatalf("got %q", got)
		}
	}
}

// mapped is how much of files this process has in memory, in KB.
func mapped(t *testing.T) int {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "RssFile:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skip("the system does not say how much of files is mapped")
	return 0
}
