package registry

import (
	"fmt"
	"strings"

	jsonx "github.com/go-json-experiment/json"

	"noused/internal/model"
	"noused/internal/tool"
)

// Bounds of a list that a model keeps.
const (
	maxTodo     = 100
	maxTodoText = 500 // bytes of an item
)

// todoItem is one line of the list, as session_state.plan has it (children.md §3).
type todoItem struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// todo keeps the list that a model has written down: it replaces session_state.plan.
func todo(arguments []byte, progress func(model.ToolUpdate)) (string, error) {
	var a struct {
		Items []todoItem `json:"items"`
	}
	if err := jsonx.Unmarshal(arguments, &a, jsonx.RejectUnknownMembers(true)); err != nil || a.Items == nil {
		return "", tool.Faultf(tool.BadRequest, `want {"items":[{"content":"…","status":"pending"}]}`)
	}
	if len(a.Items) > maxTodo {
		return "", tool.Faultf(tool.BadRequest, "items: %d, want at most %d", len(a.Items), maxTodo)
	}
	count := map[string]int{}
	for i, item := range a.Items {
		switch item.Status {
		case "pending", "in_progress", "completed":
			count[item.Status]++
		default:
			return "", tool.Faultf(tool.BadRequest, "items[%d].status: want pending, in_progress or completed", i)
		}
		if strings.TrimSpace(item.Content) == "" || len(item.Content) > maxTodoText {
			return "", tool.Faultf(tool.BadRequest, "items[%d].content: want 1 to %d bytes", i, maxTodoText)
		}
	}
	patch, err := jsonx.Marshal(map[string]any{"plan": a.Items})
	if err != nil {
		return "", fmt.Errorf("todo: %w", err)
	}
	event := append(append([]byte(`{"patch":`), patch...), `,"type":"state_patch"}`...)
	progress(model.ToolUpdate{Update: event, Patch: patch})
	return fmt.Sprintf("The list has %d items: %d completed, %d in progress, %d pending.", len(a.Items),
		count["completed"], count["in_progress"], count["pending"]), nil
}
