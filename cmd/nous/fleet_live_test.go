package main

import (
	"testing"

	"noused/internal/fleet/fleettest"
)

// The screen shows a daemon of the fleet, and comes back when the server was away.
func TestScreenOverTheFleet(t *testing.T) {
	t.Parallel()
	s := fleettest.Start(t, "")
	box := joinFleet(t, s, "box")
	screen := startScreen(t, box, look{args: []string{"--via", s.URL(), "--on", "box"}})
	screen.Wait("● box", "idle")
	screen.say("said over the fleet")
	screen.Wait("said over the fleet", "idle")
	s.Down()
	screen.Wait("reconnecting")
	s.Up()
	screen.Wait("● box", "idle")
	screen.say("said again")
	screen.Wait("said again", "idle")
}
