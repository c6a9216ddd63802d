package doctor

import (
	"context"
	"fmt"
)

// Agent is a hosted agent that the configuration names.
type Agent struct {
	Name string
	// Try starts it and has it say what it is. It ends soon.
	Try func(context.Context) (said string, err error)
	// SignIn is the line that signs in; "" where that is not known, or was done.
	SignIn string
}

// agents starts each agent that the configuration names, and ends it again.
func (e *exam) agents(ctx context.Context) {
	for _, a := range e.Agents {
		said, err := a.Try(ctx)
		if said != "" {
			said = " as " + said
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			fix := "correct [agent." + a.Name + "] in the configuration, or start its program by hand"
			if a.SignIn != "" {
				fix = fmt.Sprintf("sign in with %s, or %s", a.SignIn, fix)
			}
			e.fail(Hosted, fix, "%v", err)
		case a.SignIn != "":
			e.warn(Hosted, a.SignIn, "%s answers%s, and is not signed in", a.Name, said)
		default:
			e.ok(Hosted, "%s answers%s", a.Name, said)
		}
	}
}
