package doctor

import "context"

// fleet looks whether the fleet's server lets the daemon in.
func (e *exam) fleet(ctx context.Context) {
	if e.Fleet == nil {
		return
	}
	away, err := e.Fleet(ctx)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		e.ok(Fleet, "the NATS server at %s lets the daemon in", e.FleetServer)
	case away:
		e.warn(Fleet, "check that it runs, and url in [fleet] of the configuration; the daemon joins when it answers",
			"the NATS server at %s does not answer: %v", e.FleetServer, err)
	default:
		e.fail(Fleet, "correct [fleet] in the configuration: creds, nkey and ca name the daemon's key and who the server is",
			"the daemon cannot join the NATS server at %s: %v", e.FleetServer, err)
	}
}
