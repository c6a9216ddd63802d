package mcp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/model"
)

// serveTexts is a server of the SDK's with prompts and resources.
func serveTexts() int {
	s := sdk.NewServer(&sdk.Implementation{Name: "texts", Version: "1"}, nil)
	args := []*sdk.PromptArgument{{Name: "file", Required: true, Description: "what to read"}, {Name: "tone"}}
	s.AddPrompt(&sdk.Prompt{Name: "review", Description: "Reads a file.", Arguments: args},
		func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
				{Role: "user", Content: &sdk.TextContent{Text: fmt.Sprintf("Review %s, %s.", r.Params.Arguments["file"],
					r.Params.Arguments["tone"])}},
				{Role: "assistant", Content: &sdk.TextContent{Text: "Gladly."}},
				{Role: "user", Content: &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
					URI:  "memo://rules",
					Text: "be ``` kind",
				}}},
				{Role: "user", Content: &sdk.ImageContent{MIMEType: "image/png", Data: []byte("png")}},
			}}, nil
		})
	s.AddPrompt(&sdk.Prompt{Name: "fails"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return nil, fmt.Errorf("not on a Sunday")
	})
	for _, name := range []string{"two words", "a=b", ""} { // cannot be typed
		s.AddPrompt(&sdk.Prompt{Name: name}, nil)
	}
	resource := func(uri string, c sdk.ResourceContents) {
		s.AddResource(&sdk.Resource{Name: uri, URI: uri},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				c.URI = uri
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&c}}, nil
			})
	}
	resource("memo://a", sdk.ResourceContents{Text: "alpha\n"})
	resource("memo://pic", sdk.ResourceContents{MIMEType: "image/png", Blob: []byte("png")})
	resource("memo://bin", sdk.ResourceContents{MIMEType: "application/zip", Blob: []byte("PK")})
	resource("memo://long", sdk.ResourceContents{Text: strings.Repeat("x", 300<<10)})
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// Prompts are told with the tools; what is typed of them, and of resources, becomes a
// text, or an error that says what is wrong. Other texts stay as they are.
func TestTextsAreExpanded(t *testing.T) {
	b := mount(t, server(t, "texts"))
	if missing := b.Ready(t.Context(), model.Scope{}); missing != nil {
		t.Fatalf("%q are missing", missing)
	}
	servers := b.Servers(model.Scope{})
	if len(servers) != 1 || len(servers[0].Prompts) != 2 || servers[0].Prompts[1].Name != "review" ||
		len(servers[0].Prompts[1].Arguments) != 2 || !servers[0].Prompts[1].Arguments[0].Required {
		t.Fatalf("got %+v, want two prompts", servers)
	}
	review := func(file, tone string) string {
		return "Review " + file + ", " + tone + ".\n\nAssistant: Gladly.\n\nx:memo://rules\n````\nbe ``` kind\n````"
	}
	for text, want := range map[string]string{
		"/x.review main.go":                        review("main.go", ""),
		"/x.review file=a tone=\"very kind\"":      review("a", "very kind"),
		"/x.review tone=kind\n the file of   mine": review("the file of   mine", "kind"),
		"look at @x:memo://a and @x:memo://a":      "look at @x:memo://a and @x:memo://a\n\nx:memo://a\n```\nalpha\n```",
		"@x:memo://pic":                            "@x:memo://pic",
		"hello":                                    "hello", "/y.review a": "/y.review a", "/etc/x.y": "/etc/x.y",
		"mail a@x:b, @y:z": "mail a@x:b, @y:z", "@x:": "@x:",

		"/x.review":              "/x.review: file=… is missing",
		"/x.review file=a b c=d": review("a", "b c=d"),
		"/x.fails":               "not on a Sunday",
		"/x.fails now":           `it takes nothing more: "now"`,
		"/x.other":               "x has no such prompt, only fails, review",
		"@x:memo://none":         "@x:memo://none: ",
		"@x:memo://bin":          "neither text nor an image",
		"@x:memo://long":         "longer than 256 KiB",
	} {
		e, err := b.Expand(t.Context(), model.Scope{Workdir: b.workdir}, text)
		if err == nil && e.Text != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v; want %q", text, e.Text, err, want)
		}
		if images := strings.Contains(text, "pic") || strings.HasPrefix(want, "Review"); (len(e.Images) == 1) != images {
			t.Errorf("%q: got %d images", text, len(e.Images))
		}
	}
	b.gone()
	b = mount(t, server(t, "echo")) // a server without either
	if _, err := b.Expand(t.Context(), model.Scope{}, "/x.review a"); err == nil {
		t.Error("a server without prompts has one")
	}
	b.gone()
	b = mount(t, server(t, "texts")) // which nobody has heard yet
	if e, err := b.Expand(t.Context(), model.Scope{Workdir: b.workdir}, "/x.review main.go"); err != nil ||
		e.Text != review("main.go", "") {
		t.Errorf("of a server that was never heard: got %q, %v", e.Text, err)
	}
	b.gone()
}
