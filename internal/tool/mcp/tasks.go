package mcp

import (
	"errors"
	"fmt"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"noused/internal/format"
	"noused/internal/tool"
)

// Tasks (MCP 2025-11-25, an extension since) are not spoken here, nor by the SDK, which
// loses what a tool says about them. A tool that can only be called as one is left out.

// errTask is why such a tool is left out.
var errTask = errors.New("it can only be called as a task (taskSupport: required), and tasks are not spoken here")

// maxLeftOut is how many of a server's tools that are left out are reported, and maxWhy how
// long the reason may be, in bytes.
const maxLeftOut, maxWhy = 20, 300

// readTasks notes which of the tools in an answer to tools/list can only be called as tasks.
func (l *link) readTasks(answer jsontext.Value) {
	var list struct {
		Tools []struct {
			Name      string         `json:"name"`
			Execution jsontext.Value `json:"execution"`
		} `json:"tools"`
	}
	if jsonx.Unmarshal(answer, &list, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) != nil {
		return // the SDK says what is wrong with it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range list.Tools {
		var execution struct {
			TaskSupport string `json:"taskSupport"`
		}
		// of another form: it is no task
		_ = jsonx.Unmarshal(t.Execution, &execution, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
		switch {
		case execution.TaskSupport != "required":
			delete(l.tasks, t.Name)
		case len(t.Name) <= maxToolName && len(l.tasks) < maxListed:
			if l.tasks == nil {
				l.tasks = map[string]bool{}
			}
			l.tasks[t.Name] = true
		}
	}
}

func (l *link) needsTask(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tasks[name]
}

// leaveOut tells the people who look at a server of a tool that cannot be used.
func leaveOut(m *tool.Manifest, name string, why error) {
	switch {
	case len(m.LeftOut) < maxLeftOut:
		m.LeftOut = append(m.LeftOut, format.Clip(fmt.Sprintf("%s: %v", format.Clip(name, maxToolName), why), maxWhy))
	case len(m.LeftOut) == maxLeftOut:
		m.LeftOut = append(m.LeftOut, "and others, which the daemon's log names")
	}
}

// lists reports, once, that this is the answer to a question for the server's tools.
func (b *inbox) lists(id jsonrpc.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !id.IsValid() || id != b.listing {
		return false
	}
	b.listing = jsonrpc.ID{}
	return true
}
