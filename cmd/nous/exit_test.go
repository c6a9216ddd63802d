package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/scripts.md has the table that nous help exit-status prints.
func TestTheTableOfExitStatuses(t *testing.T) {
	text, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, row := range exitTable {
		fmt.Fprintf(&rows, "| %d | %s |\n", row.status, row.means)
	}
	if !strings.Contains(string(text), rows.String()) {
		t.Errorf("docs/scripts.md has not these rows:\n%s", rows.String())
	}
	help := strings.Join(strings.Fields(exitHelp()), " ")
	for _, row := range exitTable {
		if want := fmt.Sprintf("%d %s", row.status, row.means); !strings.Contains(help, want) {
			t.Errorf("the help has not: %s", want)
		}
	}
}
