//go:build ignore

// Counts words: a Narratoria tool (version "0") in Go, one process per call.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// The call comes in as one JSON object on stdin. Fields we do not know are left
// alone; the arguments have been checked, and their defaults filled in.
type call struct {
	RequestID string `json:"requestId"`
	Input     struct {
		File string `json:"file"`
		Top  int    `json:"top"`
	} `json:"input"`
}

// emit prints one event, one line.
func emit(kind string, fields map[string]any) {
	fields["version"], fields["type"] = "0", kind
	_ = json.NewEncoder(os.Stdout).Encode(fields)
}

func main() {
	var c call
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		fmt.Fprintln(os.Stderr, "no call on stdin:", err)
		os.Exit(2)
	}
	text, err := os.ReadFile(c.Input.File)
	if err != nil { // a failure of the operation: say so, and exit with status 0
		emit("error", map[string]any{"errorCode": "cannot_read", "errorMessage": err.Error()})
		emit("done", map[string]any{"ok": false, "summary": "nothing was counted"})
		return
	}
	emit("log", map[string]any{"level": "debug", "message": fmt.Sprintf("%d bytes", len(text))})

	counts := map[string]int{}
	words := strings.Fields(strings.ToLower(string(text)))
	for _, word := range words {
		counts[word]++
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	frequent = frequent[:min(c.Input.Top, len(frequent))]
	emit("done", map[string]any{"ok": true, "requestId": c.RequestID, "summary": fmt.Sprintf(
		"%d lines, %d words; most frequent: %s", strings.Count(string(text), "\n"), len(words),
		strings.Join(frequent, ", "))})
}
