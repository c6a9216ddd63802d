//go:build race

package runloop

const raceEnabled = true
