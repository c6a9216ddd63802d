// Package modeltest is what tests of models share.
//
// Concurrency: each function runs in its caller's goroutine.
//
// It refuses to be used outside tests.
package modeltest

import (
	"iter"
	"testing"

	"noused/internal/model"
)

// Collect returns the message that a stream makes, as a session keeps it. It
// blocks until the stream ends; an error of the stream fails the test.
func Collect(t *testing.T, stream iter.Seq2[model.Delta, error]) model.Message {
	t.Helper()
	m := model.Message{Role: model.Assistant}
	for d, err := range stream {
		if err != nil {
			t.Fatalf("the stream: %v", err)
		}
		m.Text += d.Text
		m.Thinking += d.Thinking
		if d.ToolCall != nil {
			m.ToolCalls = append(m.ToolCalls, *d.ToolCall)
		}
		if d.Stop != "" {
			m.Maker, m.Blocks = d.Maker, d.Blocks
		}
	}
	if _, fits := m.Pieces(); !fits && len(m.Blocks) > 0 {
		t.Fatalf("the blocks %+v do not fit the message %+v", m.Blocks, m)
	}
	return m
}
