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
// name that cannot be told apart that way gets a hash.
type Names struct {
	there, back map[string]string
}

var (
	plain   = pattern(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)
	foreign = pattern(`[^a-zA-Z0-9_-]`)
)

// NewNames returns the names of the tools of a request, those that it offers
// and those that its messages speak of.
func NewNames(req model.Request) Names {
	n := Names{map[string]string{}, map[string]string{}}
	var mapped []string
	see := func(name string) {
		if n.there[name] != "" {
			return
		}
		if plain().MatchString(name) {
			n.put(name, name) // it has the first claim
		} else {
			mapped = append(mapped, name)
		}
	}
	for _, t := range req.Tools {
		see(t.Name)
	}
	for i := range req.Messages {
		for _, c := range req.Messages[i].ToolCalls {
			see(c.Name)
		}
	}
	for _, name := range mapped {
		if n.there[name] == "" {
			n.put(name, n.free(name))
		}
	}
	return n
}

func (n Names) put(ours, there string) { n.there[ours], n.back[there] = there, ours }

// free finds a name that nobody has.
func (n Names) free(name string) string {
	if undotted := model.Undotted(name); plain().MatchString(undotted) && n.back[undotted] == "" {
		return undotted
	}
	stem := foreign().ReplaceAllString(model.Undotted(name), "_")
	stem = "t_" + stem[:min(len(stem), 48)]
	for i := 0; ; i++ {
		sum := sha256.Sum256([]byte(name + strings.Repeat("\x00", i)))
		if candidate := stem + "_" + hex.EncodeToString(sum[:5]); n.back[candidate] == "" {
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
