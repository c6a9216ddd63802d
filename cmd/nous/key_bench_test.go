package main

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// From a key to what it has changed on the screen, beside a program that writes
// each character as soon as it has read it in a terminal of the same kind. Between
// two keys is the rest that a person's hands take.
func BenchmarkKeyToScreen(b *testing.B) {
	d := daemontest.Start(b, program(b, "noused"), "")
	raw := tuitest.Start(b, exec.Command("sh", "-c", "stty raw -echo; echo ready; exec cat"), 120, 40, false)
	raw.Wait("ready")
	cmd := exec.Command(program(b, "nous"))
	cmd.Dir, cmd.Env = d.Dir, d.Env("COLORTERM=truecolor")
	nous := tuitest.Start(b, cmd, 120, 40, false)
	nous.Wait("connected", "idle")
	word := ""
	typed := func(s *tuitest.Terminal) time.Duration {
		time.Sleep(40 * time.Millisecond) // people type at a pace
		began := time.Now()
		s.Type(word[len(word)-1:])
		s.Wait(word)
		return time.Since(began)
	}
	var least, took []time.Duration
	for i := 0; b.Loop(); i++ {
		if len(word) == 60 {
			raw.Type("\r\x1b[K")
			nous.Press("ctrl+u")
			nous.WaitGone(word)
			raw.WaitGone(word)
			word = ""
		}
		word += string(rune('a' + i%26))
		least = append(least, typed(raw))
		took = append(took, typed(nous))
	}
	timesRaw(b, took, least)
}

// The same of a page up in a conversation of 5,000 messages.
func BenchmarkPageToScreen(b *testing.B) {
	d := daemontest.Start(b, program(b, "noused"), "")
	c, err := client.Dial(b.Context(), d.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for i := range 2500 {
		if _, err := client.Call(b.Context(), c, protocol.Prompt,
			protocol.PromptParams{Text: fmt.Sprintf("message-%d\nand *more*", i)}); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.Command(program(b, "nous"))
	cmd.Dir, cmd.Env = d.Dir, d.Env("COLORTERM=truecolor")
	nous := tuitest.Start(b, cmd, 120, 40, false)
	nous.Wait("message-2499", "idle")
	raw := tuitest.Start(b, exec.Command("sh", "-c", "stty raw -echo; echo ready; exec cat"), 120, 40, false)
	raw.Wait("ready")
	var least, took []time.Duration
	for i := 0; b.Loop(); i++ {
		time.Sleep(40 * time.Millisecond) // people type at a pace
		mark := fmt.Sprint("x", i, ".")
		began := time.Now()
		raw.Type("\r" + mark)
		raw.Wait(mark)
		least = append(least, time.Since(began))
		before := nous.Screen()
		began = time.Now()
		nous.Press("pgup")
		nous.WaitFor("page", func(screen string) bool { return screen != before })
		took = append(took, time.Since(began))
	}
	timesRaw(b, took, least)
}

// timesRaw reports medians, and how many times the least it is.
func timesRaw(b *testing.B, took, least []time.Duration) {
	slices.Sort(took)
	slices.Sort(least)
	t, l := took[len(took)/2], least[len(least)/2]
	b.ReportMetric(float64(t.Microseconds())/1000, "ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
	b.ReportMetric(float64(l.Microseconds())/1000, "ms-raw")
	b.ReportMetric(float64(t)/float64(l), "×raw")
}
