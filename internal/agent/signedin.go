package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Credential is a file that an agent has once somebody has signed in. It is in the folder
// that a variable names, or else in one of the user's.
type Credential struct{ Variable, Folder, File string }

// SignedIn reports whether an agent with that environment is signed in, as far as can be told
// from its configuration and from which files there are. None is opened.
func (s Spec) SignedIn(environ []string) (yes, known bool) {
	for name := range s.Env {
		if valueOf(environ, name) != "" && (strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_TOKEN")) {
			return true, true
		}
	}
	for _, c := range s.Credentials {
		folder := valueOf(environ, c.Variable)
		if folder == "" {
			folder = filepath.Join(valueOf(environ, "HOME"), c.Folder)
		}
		if info, err := os.Stat(filepath.Join(folder, c.File)); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			return true, true
		}
	}
	return false, s.OnlyThere && valueOf(environ, "HOME") != ""
}

// valueOf is a variable of an environment, of which the last one counts.
func valueOf(environ []string, name string) string {
	for _, variable := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
