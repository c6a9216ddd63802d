package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Whatever is killed, daemon, agent or client, or starts anew, and whenever: each accepted text is delivered
// once, and reaches the agent once; each run ends once. Two sessions share the agent.
// NOUSED_TEST_KILLS says how many rounds.
func TestHostedRunsAreKilledAtAnyMoment(t *testing.T) {
	for _, can := range []string{"load", "queue,load", "handoff,load,resume"} {
		t.Run(can, func(t *testing.T) { killAtAnyMoment(t, can) })
	}
}

func killAtAnyMoment(t *testing.T, can string) {
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("NOUSED_TEST_KILLS")); err == nil {
		rounds = n
	}
	rng := rand.New(rand.NewPCG(1, uint64(rounds)))
	h := newHost(t, can)
	h.checker = nil // it does not see all
	sessions := []string{h.session, h.newSession("scripted")}
	var texts []string
	send := func(wait bool) {
		text, kind := fmt.Sprintf("text-%d.", len(texts)), protocol.KindFollowUp
		if can != "load" && rng.IntN(2) == 0 { // a steer cuts the turn of one that takes no prompt while it works
			kind = protocol.KindSteer
		}
		texts = append(texts, text)
		c := h.dial()
		_, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: h.session}, Wait: &wait, StreamingBehavior: kind,
			Text: text + "\n!think hm\n!call c1 execute\n!begin c1\n!show c1 out\n!done c1\n!say end",
		})
		var wire *protocol.Error
		if err != nil && (!wait || !errors.As(err, &wire) || wire.Code == protocol.CommandRejected) {
			t.Fatal(err)
		}
		_ = c.Close() // the client is gone
	}
	for round := range rounds {
		for range 1 + rng.IntN(3) {
			h.session = sessions[rng.IntN(2)]
			send(false)
		}
		for range rng.IntN(40) { // events, and then it is killed
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			_, _, err := h.events.Next(ctx)
			cancel()
			if err != nil {
				break
			}
		}
		if starts := h.log("start"); rng.IntN(3) == 0 && len(starts) > 0 {
			pid, _ := strconv.Atoi(strings.TrimPrefix(starts[len(starts)-1], "start "))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		} else if rng.IntN(2) == 0 {
			h.restart()
		} else {
			h.Kill()
			h.Start()
		}
		h.follow()
		for _, h.session = range sessions {
			if round%2 == 1 || round == rounds-1 { // a run that crashes too often is ended
				send(true)
			}
		}
	}
	h.Stop()
	h.deliveredOnce(sessions, texts)
}

// deliveredOnce compares the journals and the agent's own file with what was accepted.
func (h *hosting) deliveredOnce(sessions, texts []string) {
	h.t.Helper()
	var journal []byte
	for _, session := range sessions {
		text, err := os.ReadFile(filepath.Join(h.Dir, "state", "sessions", session+".jsonl"))
		if err != nil {
			h.t.Fatal(err)
		}
		journal = append(journal, text...)
	}
	delivered, ended := map[string]int{}, map[string]int{}
	for line := range bytes.Lines(journal) {
		var r struct {
			Type string `json:"type"`
			Data struct {
				RunID   string `json:"run_id"`
				InputID string `json:"input_id"`
				Message struct {
					Role string `json:"role"`
					Text string `json:"text"`
				} `json:"message"`
			} `json:"data"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			h.t.Fatal(err)
		}
		text, _, _ := strings.Cut(r.Data.Message.Text, "\n")
		switch {
		case r.Type == "message" && r.Data.Message.Role == "user":
			delivered[text]++
		case r.Type == "run_started":
			ended[r.Data.RunID] += 0
		case r.Type == "run_ended":
			ended[r.Data.RunID]++
		}
	}
	h.log() // it has no complaint
	var had strings.Builder
	files, _ := filepath.Glob(filepath.Join(h.agentDir(), "s-*"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			h.t.Fatal(err)
		}
		had.Write(text)
	}
	for _, text := range texts {
		if n, told := delivered[text], strings.Count(had.String(), text+"\n!think"); n != 1 || told != 1 {
			h.t.Errorf("%s: delivered %d times, and the agent has it %d times, want both once", text, n, told)
		}
	}
	for run, n := range ended {
		if n != 1 {
			h.t.Errorf("%s has ended %d times", run, n)
		}
	}
}
