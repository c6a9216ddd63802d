// Package check reads a tool against the specification of its protocol, clause
// by clause, and says what it does wrong: for the people who write tools.
//
// What a program says is read by pure functions that know no process
// (narration, exchange, the check functions); running one is apart from them.
// Reading is stricter than the daemon's own, which forgives what it can.
//
// Concurrency properties: [Run] may be called from any goroutine; it runs one
// process at a time, and every process and goroutine it started has ended when
// it returns.
//
// It refuses to call an operation nobody asked for, as a call may have effects;
// to send arguments that the operation's own schema forbids, but for the one
// request that has to be refused; and to run a program with less isolation than
// its descriptor asks for.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/proc"
	"noused/internal/tool"
)

// Limits of the daemon that a tool has to keep (tools.md §2 to §4).
const (
	startTime  = 10 * time.Second // for the first answer of a new process
	healthTime = 2 * time.Second  // for health, and for a hook's acknowledgement
	ackTime    = 5 * time.Second  // for the answer to shutdown
	exitTime   = 2 * time.Second  // to exit after the last answer
)

// unknownName is an operation and a method that no tool has.
const unknownName = "noused_check_unknown"

// Options say what may be called. The zero value calls no operation.
type Options struct {
	// Operation is called, each time with Args. Args is a JSON object; nil makes
	// one up from the operation's schema.
	Operation string
	Args      jsontext.Value
	// All calls every operation, with arguments that are made up.
	All bool
}

// Status is the result of a clause.
type Status string

// OK: kept as far as could be seen. Fail: broken. Skip: not seen.
const (
	OK   Status = "ok"
	Fail Status = "FAIL"
	Skip Status = "skip"
)

// Finding is one clause and its result.
type Finding struct {
	Status    Status
	Clause    string // the specification and its section
	Operation string // the operation called, "" where none was
	What      string // what the clause asks for
	Seen      string // of a failure what was seen, of a skip the reason
	Fix       string // of a failure what to do about it
}

// Run starts the descriptor's program, as often as it has to, with the
// environment, working directory and limits of the descriptor, and returns a
// finding for each clause of its protocol. It blocks for as long as the program
// takes, within the descriptor's timeout for each call; the end of ctx stops
// the program. An error means that nothing could be checked: the program cannot
// be started or reached, or the options do not fit it.
func Run(ctx context.Context, d *tool.Descriptor, s *proc.Supervisor, o Options) ([]Finding, error) {
	if d.Sandbox != tool.SandboxNone {
		var err error
		if s, err = d.Confine(s); err != nil {
			return nil, err
		}
	}
	r := &runner{desc: d, supervisor: s, options: o}
	var findings []Finding
	var err error
	switch d.Protocol {
	case tool.Narratoria:
		findings, err = r.narratoria(ctx)
	case tool.Gevals:
		findings, err = r.gevals(ctx)
	case tool.MCP:
		findings, err = r.mcp(ctx)
	default:
		findings, err = r.module(ctx)
	}
	if ctx.Err() != nil {
		return findings, tool.Interrupted(ctx)
	}
	return findings, err
}

type runner struct {
	desc       *tool.Descriptor
	supervisor *proc.Supervisor
	options    Options
}

// target is an operation to be called.
type target struct {
	name   string
	schema jsontext.Value // may be nil
	args   jsontext.Value // an object that satisfies schema; nil: none was found
	reason string         // why args is nil
}

// uncalled tells how to have operations called.
const uncalled = "no operation was called: --operation NAME calls one, --all every one"

// targets are the operations that the options ask to call. sample, if there is
// one, makes up the arguments in the schema's stead.
func (r *runner) targets(ops []tool.Operation, sample jsontext.Value) ([]target, error) {
	if r.options.Operation == "" && !r.options.All {
		return nil, nil
	}
	var all []target
	for _, op := range ops {
		if r.options.Operation != "" && op.Name != r.options.Operation {
			continue
		}
		given := r.options.Args
		if given == nil {
			given = sample
		}
		t := target{name: op.Name, schema: op.Params}
		args, err := arguments(op.Params, given)
		switch {
		case err == nil:
			t.args = args
		case r.options.Args != nil:
			return nil, fmt.Errorf("the arguments do not fit operation %s: %w", op.Name, err)
		default:
			t.reason = fmt.Sprintf("no arguments could be made up (%v): give --operation %s --args JSON", err, op.Name)
		}
		all = append(all, t)
	}
	if len(all) == 0 && r.options.Operation != "" {
		names := make([]string, 0, len(ops))
		for _, op := range ops {
			names = append(names, op.Name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("there is no operation %q; there are: %s", r.options.Operation, strings.Join(names, ", "))
	}
	return all, nil
}
