package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/oauth/oauthtest"
)

// What scripts/conformance has the official suite start: one process lists the
// tools, logs in, calls them, and accepts their forms.
func TestConformanceAdapterPlaysAScenario(t *testing.T) {
	s := sdk.NewServer(&sdk.Implementation{Name: "s", Version: "1"}, nil)
	type numbers struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "add"}, func(context.Context, *sdk.CallToolRequest, numbers) (*sdk.CallToolResult, any,
		error,
	) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "added"}}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "ask"}, func(ctx context.Context, r *sdk.CallToolRequest,
		_ struct{},
	) (*sdk.CallToolResult, any, error) {
		form := map[string]any{
			"type":       "object",
			"properties": map[string]any{"name": map[string]any{"type": "string", "default": "Ada"}},
		}
		a, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Who?", RequestedSchema: form})
		if err != nil {
			return nil, nil, err
		}
		name, _ := a.Content["name"].(string)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: a.Action + " " + name}}}, nil, nil
	})
	protected := oauthtest.Start(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	var log strings.Builder
	if err := runConformance(t.Context(), protected.Resource, &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	for _, want := range []string{"logging in:", "add: added\n", "ask: accept Ada\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it says %q, want %q", &log, want)
		}
	}
}
