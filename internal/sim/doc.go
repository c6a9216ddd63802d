// Package sim holds the simulator: a test that runs the real session store, run
// loop, tool registry, command table and event log with simulated hands, so that one seed decides
// everything: what is scheduled next, what clients send, how disks fail, when the
// daemon is killed and when power is cut. All of it is in the tests, with the build tag
// sim: "make sim SEEDS=50" runs them, "make sim SEED=7" shows one history with its trace,
// make check runs 200, make sim-night a million. A history that fails is shown with as few
// clients and steps as it fails with. What the simulator is worth is tried with mutants,
// small changes that it has to find: make sim-mutants.
//
// Concurrency: every goroutine of the daemon stops at its ports (disk, model, tools)
// until the driver lets it go on, and time is testing/synctest's. Only one thing
// happens at a time, in the order of the seed.
//
// Sessions are the daemon's own, or hosted: then the real internal/agent speaks to a process
// whose every word waits for the driver, which is deaf to a cancel, ends, and takes its
// session up, tells it again, with or without the last text, or has forgotten it.
//
// In half of the worlds models call agent: in the foreground, several at once, in the background,
// with a child that there is, and in children. Some children have a worktree, another model, a named
// agent or a hosted one, in some worlds a tree has a limit of tokens, and in some a day has one of what it
// costs, with midnight in the middle. Clients prompt, steer, abort and
// delete children as they do other sessions.
//
// What sessions change is in folders of the simulator's, which are recorded, rewound and put
// back as runloop's port Changes has it: a rewind is a step at a time, and killed in between.
//
// Oracles, all of them always on: the events keep wire-v1 §4 within a life of the daemon
// and from one to the next; the journals have what was announced, and after a power cut
// what was replied, a run's end and a call's start; a text has one fate, a key one text; no
// agent is sent a text that it has taken, or has leave that nobody gave in this life; no
// call is made twice; a rewind is on the disk before it changes a file, and leaves what was
// there before its message; a call of agent ends after its child's run, and so does the run that has
// made it; what a child in the background has come to is told once; no task is given to two children,
// no child is without its parent, none is deleted while a power cut would have its parent make it again, each is
// of the kind that its call wants, and the bounds of the tree hold; what a daemon has in memory is
// what the next one reads; readers miss no number; the answers about a queue, a key or an approval
// fit one order of what happened (porcupine); and when faults end, within a minute every run does,
// and every command has its reply.
//
// The disk loses at a power cut what was not synced: contents and sizes behind the last
// sync, names, removals, renamings and folders, each by itself, and of the contents a part
// before one that is there, too. It fails writes after some of their bytes, syncs (and
// drops what they were for, as Linux does), and names that are made.
//
// It refuses to be a second implementation of anything: what the daemon promises is
// checked on its events, its replies and its journals alone.
package sim
