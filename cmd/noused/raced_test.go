package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests that the Makefile names, to be run with the race detector or without, are
// there: go test is content with a name that is none.
func TestTheMakefileNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	there := slices.Collect(maps.Keys(allTests(t)))
	for _, list := range []string{"RACED", "LONE"} {
		line := regexp.MustCompile(`(?m)^` + list + ` = (.+)$`).FindSubmatch(text)
		if line == nil {
			t.Fatalf("the Makefile has no %s", list)
		}
		for name := range strings.SplitSeq(string(line[1]), "|") {
			if !slices.ContainsFunc(there, regexp.MustCompile(name).MatchString) {
				t.Errorf("%s has %s, which is no test", list, name)
			}
		}
	}
}
