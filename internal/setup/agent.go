package setup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// agentKey is the key of config.toml that names the agent of sessions that name none.
const agentKey = "default_agent"

// SaveAgent has config.toml of that folder choose the agent of new sessions, as SaveModel
// does a model; "" is the daemon's own loop.
func SaveAgent(configDir, name string) error {
	return change(configDir, func(text []byte) ([]byte, error) { return ChooseAgent(text, name) })
}

// ChooseAgent returns the text of a config.toml with another default_agent; "" makes a
// comment of the one that is there.
func ChooseAgent(text []byte, name string) ([]byte, error) {
	was, lines, err := parse(text)
	if err != nil {
		return nil, err
	}
	if was[agentKey] == nil && name == "" {
		return text, nil
	}
	top := slices.IndexFunc(lines, anyHeader().MatchString)
	if top < 0 {
		top = len(lines)
	}
	at := slices.IndexFunc(lines[:top], func(line string) bool {
		m := keyLine().FindStringSubmatch(line)
		return m != nil && m[2] == agentKey
	})
	switch {
	case at >= 0 && name == "":
		lines[at] = "# " + lines[at]
	case at >= 0:
		m := keyLine().FindStringSubmatch(lines[at])
		lines[at] = m[1] + m[2] + m[3] + strconv.Quote(name) + m[5]
	default:
		lines = slices.Insert(lines, top, agentKey+" = "+strconv.Quote(name))
		if top < len(lines)-1 {
			lines = slices.Insert(lines, top+1, "")
		}
	}
	out := []byte(strings.Join(lines, "\n") + "\n")
	var is map[string]any
	if err := toml.Unmarshal(out, &is); err == nil && equalBut(was, is, []string{agentKey}) {
		if got, _ := is[agentKey].(string); got == name {
			return out, nil
		}
	}
	if name == "" {
		return nil, fmt.Errorf("it cannot be changed without touching something else: remove %s yourself", agentKey)
	}
	return nil, fmt.Errorf("it cannot be changed without touching something else: write %s = %q yourself, above "+
		"the first section", agentKey, name)
}
