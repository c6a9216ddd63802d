package board

import (
	"fmt"
	"io"
	"os"
	"time"

	"noused/internal/protocol"
)

// Print prints the board line by line: to pipes, and for screen readers.
func Print(w io.Writer, list []protocol.SessionInfo, here string) error {
	b := New(Look{Home: os.Getenv("HOME"), Here: here})
	b.Load("", list, false)
	b.SetNote(Lacking(list))
	return printLines(w, b)
}

// PrintHosts prints the board of several hosts, whose sessions are given by their names.
func PrintHosts(w io.Writer, of map[string][]protocol.SessionInfo) error {
	b := New(Look{})
	for host, list := range of {
		b.Load(host, list, false)
	}
	return printLines(w, b)
}

func printLines(w io.Writer, b *Board) error {
	for _, line := range b.Lines(time.Now()) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Lacking says what a daemon that lists sessions does not say of them.
func Lacking(list []protocol.SessionInfo) string {
	if len(list) == 0 || list[0].Workdir != "" {
		return ""
	}
	return "this older core says neither folders, nor what was read, nor how runs ended"
}
