package main

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
)

// account says what is wrong with the journal of a session in which nothing goes on:
// a run that did not begin or end once, or an accepted text that is neither
// delivered once nor withdrawn nor handed back.
func account(journal []byte, accepted map[string]bool) error {
	began, ended, delivered := map[string]int{}, map[string]int{}, map[string]int{}
	runOf, back, freed := map[string]string{}, map[string]bool{}, map[string]bool{}
	for line := range bytes.Lines(journal) {
		var rec struct {
			Type string `json:"type"`
			Data struct {
				RunID      string `json:"run_id"`
				InputID    string `json:"input_id"`
				StopReason string `json:"stop_reason"`
			} `json:"data"`
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			return fmt.Errorf("a line of its journal: %w", err)
		}
		switch d := rec.Data; rec.Type {
		case "input":
			runOf[d.InputID] = d.RunID
		case "run_started":
			began[d.RunID]++
		case "run_ended":
			ended[d.RunID]++
			freed[d.RunID] = freed[d.RunID] || d.StopReason != "completed"
		case "abort_requested":
			freed[d.RunID] = true
		case "input_withdrawn":
			back[d.InputID] = true
		case "message":
			if d.InputID != "" {
				delivered[d.InputID]++
			}
		}
	}
	for run, n := range began {
		if n != 1 || ended[run] != 1 {
			return fmt.Errorf("the run %s began %d times and ended %d times", run, n, ended[run])
		}
	}
	for run := range ended {
		if began[run] != 1 {
			return fmt.Errorf("the run %s ended and never began", run)
		}
	}
	for input := range accepted {
		if _, there := runOf[input]; !there {
			return fmt.Errorf("the text %s was accepted and is not in its journal", input)
		}
	}
	for input, run := range runOf {
		if n := delivered[input]; n > 1 || n == 0 && !back[input] && !freed[run] {
			return fmt.Errorf("the text %s was delivered %d times, and not handed back", input, n)
		}
	}
	return nil
}
