// Package hook runs commands that have a say in runs: those of the user's configuration, and
// those of projects that the user trusts.
//
// A [hookfile.Hook] is a program and its arguments. It gets one JSON object on its input; what it
// prints is added where it hooks in, and exit status 2 objects. Time and output are bounded. A
// project's hook runs in the project's folder, in the sandbox that the built-in tools have: a
// model can write there, and so say what it runs. The user's own runs as the user's own tools
// do, in a neutral folder.
//
// Concurrency: a [Hooks] may be used by any number of goroutines. Each hook is a process of
// the daemon's supervisor that ends with the call; nothing else runs.
//
// It refuses to run what is not trusted as it is, and to let anything pass a guard that
// failed: before_tool and on_prompt deny then.
package hook

import (
	"fmt"
	"slices"

	"noused/internal/format"
	"noused/internal/hookfile"
	"noused/internal/model"
	"noused/internal/policy"
)

// fits reports a hook of a point, and of a tool if it has one.
func fits(h hookfile.Hook, on, tool string) bool {
	return h.On == on && (len(h.Tools) == 0 || slices.ContainsFunc(h.Tools, func(pattern string) bool {
		return policy.Matches(model.Undotted(pattern), model.Undotted(tool))
	}))
}

// failed is a hook that did not do its work.
func failed(h hookfile.Hook, err error) error {
	return fmt.Errorf("the hook %v of %s failed: %s", h, h.On, format.Clip(err.Error(), maxSaid))
}
