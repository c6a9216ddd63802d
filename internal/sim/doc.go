// Package sim holds the simulator: a test that runs the real session store, run
// loop, command table and event log with simulated hands, so that one seed decides
// everything: what is scheduled next, what clients send, how disks fail, when the
// daemon is killed and when power is cut. All of it is in the tests, with the build tag
// sim: "make sim SEEDS=50" runs them, "make sim SEED=7" shows one history with its trace.
// make check does not run them yet: a few seeds do not end.
//
// Concurrency: every goroutine of the daemon stops at its ports (disk, model, tools)
// until the driver lets it go on, and time is testing/synctest's. Only one thing
// happens at a time, in the order of the seed.
//
// It refuses to be a second implementation of anything: what the daemon promises is
// checked on its events, its replies and its journals alone.
package sim
