package wire

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first needed: a
// start does not wait for it.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
