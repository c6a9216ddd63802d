package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"noused/internal/model"
)

// Names maps the names of tools to names that every provider takes, and back:
// letters, digits, "_" and "-", at most 64, no digit first. Most are undotted; a
// name that cannot be told apart that way gets a hash. What a name becomes
// follows from the name alone: it stays the same whatever other tools come and
// go, in every turn and in every daemon.
type Names struct {
	there, back map[string]string
}

var (
	plain   = pattern(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)
	foreign = pattern(`[^a-zA-Z0-9_-]`)
	hashed  = pattern(`^t_.*_[0-9a-f]{16}$`)
)

// unclear reports that a name, undotted, could be another's: "a__b" is "a.b", and
// "a_.b" is "a._b".
func unclear(name string) bool {
	return strings.Contains(name, "__") || strings.Contains(name, "_.") || strings.Contains(name, "._")
}

// NewNames returns the names of the tools of a request: those that it offers,
// those that a model may call all the same, and those that its messages speak of.
func NewNames(req model.Request) Names {
	n := Names{map[string]string{}, map[string]string{}}
	for _, t := range req.Tools {
		n.see(t.Name)
	}
	for _, name := range req.Deferred {
		n.see(name)
	}
	for i := range req.Messages {
		for _, c := range req.Messages[i].ToolCalls {
			n.see(c.Name)
		}
	}
	return n
}

func (n Names) see(name string) {
	if n.there[name] == "" {
		there := n.spell(name)
		n.there[name], n.back[there] = there, name
	}
}

// spell is how providers know a name. Two that have the same hash, too, are told
// apart by who comes first: nobody has found such a pair.
func (n Names) spell(name string) string {
	undotted := model.Undotted(name)
	if !unclear(name) && plain().MatchString(undotted) &&
		!(strings.HasPrefix(undotted, "t_") && hashed().MatchString(undotted)) {
		return undotted
	}
	stem := foreign().ReplaceAllString(undotted, "_")
	stem = "t_" + stem[:min(len(stem), 45)]
	for i := 0; ; i++ {
		sum := sha256.Sum256([]byte(name + strings.Repeat("\x00", i)))
		if candidate := stem + "_" + hex.EncodeToString(sum[:8]); n.back[candidate] == "" {
			return candidate
		}
	}
}

// There is the name that the provider is told.
func (n Names) There(name string) string { return n.there[name] }

// Ours is the tool that the provider means. A name that it was not told stays
// as it is: the run loop tells the model that there is no such tool.
func (n Names) Ours(name string) string {
	if ours, ok := n.back[name]; ok {
		return ours
	}
	return name
}

// callID is the id of a request's nth tool call. Ours are too long for OpenAI
// (40) and have the wrong form for Mistral (nine letters and digits).
func callID(n int) string {
	digits := strconv.Itoa(n)
	return "call" + strings.Repeat("0", max(0, 5-len(digits))) + digits
}
