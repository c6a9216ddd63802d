package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/plaintext"
	"noused/internal/protocol"
)

var updateExports = flag.Bool("update", false, "write the documents of testdata/export anew")

func entryOf(t *testing.T, v any) jsontext.Value {
	t.Helper()
	text, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hostile is a conversation in which everybody tries to get out of the text.
func hostile(t *testing.T) *Document {
	at := time.Date(2026, 2, 12, 1, 2, 3, 0, time.FixedZone("", 3600))
	yes, no := true, false
	usage := &protocol.Usage{InputTokens: 12, OutputTokens: 34, CachedTokens: 5}
	message := func(id, run, role, text string, more func(*protocol.Message)) jsontext.Value {
		m := protocol.Message{Type: "message", ID: id, Role: role, Text: text, RunID: run, TurnKind: "prompt", CreatedAt: at}
		if more != nil {
			more(&m)
		}
		at = at.Add(time.Second)
		return entryOf(t, m)
	}
	return &Document{
		SessionID: "ses-1", LeafID: "m8", Title: "A *title* <script>alert(1)</script> with `ticks`", Usage: *usage,
		Assets: []protocol.AssetInfo{{
			AssetID: "a1", Kind: "image", MediaType: "image/png", Path: "/tmp/`a` b.png",
			Tool: "draw.<sun>", Supported: true,
		}},
		Messages: []jsontext.Value{
			entryOf(t, protocol.CompactionEntry{
				Type: "compaction", ID: "c1", Summary: "They spoke.\n\n# Not a heading", FirstKeptEntryID: "m1",
				CreatedAt: at.Add(-time.Hour),
			}),
			message("m1", "run-1", "user",
				"</p></article></script><script>alert(\"user\")</script>\n## Turn 9: prompt\n```\nnever closed",
				func(m *protocol.Message) {
					m.Attachments = []protocol.Attachment{{
						MediaType: "image/png", Name: "*a* ]<b>\x1b[2J.png", Size: 123456,
						Path: "/nowhere/`a`<b>.png",
					}}
				}),
			message("m2", "run-1", "assistant",
				"\x1b[31mred\x1b[0m, \x1b]0;title\x07a bell, \u202eright to left, bad \xff\xfe bytes", func(m *protocol.Message) {
					m.Thinking, m.Model, m.Usage, m.StopReason = "A *thought*\n</details>", "script_2", usage, "tool_calls"
					m.ToolCalls = []protocol.ToolCall{
						{ID: "call-1", Name: "files.`read`", Arguments: jsontext.Value(`{"path":"a</pre>","fence":"` + "````" + `"}`)},
						{ID: "call-2", Name: "ls", Arguments: jsontext.Value(`{}`)},
					}
				}),
			message("m3", "run-1", "tool", "one\n`````\nfive ticks </pre><b>bold</b>\x1b[2J\n", func(m *protocol.Message) {
				m.ToolCallID, m.ToolName, m.OK, m.Outputs = "call-1", "files.`read`", &yes,
					map[string]string{"b": "</pre>", "a": "```"}
			}),
			message("m4", "run-1", "tool", "no such `file`", func(m *protocol.Message) {
				m.ToolCallID, m.ToolName, m.OK = "call-2", "ls", &no
			}),
			message("m5", "run-1", "user", "first of two", func(m *protocol.Message) { m.TurnKind = "follow_up" }),
			message("m6", "run-1", "user", "second of two", func(m *protocol.Message) { m.TurnKind = "follow_up" }),
			message("m7", "run-1", "assistant", "", func(m *protocol.Message) { m.StopReason = "aborted" }),
			message("m8", "run-2", "user", "last", nil),
		},
		Branches: Branches{
			Tree: protocol.Tree{LeafID: "m8", Nodes: []protocol.Node{
				{ID: "m1", Role: "user", Snippet: "</ul><script>alert(\"tree\")</script>\x1b[2J"},
				{ID: "m8", ParentID: "m1", Role: "user", Snippet: "last"},
				{ID: "\"><b>m9", ParentID: "m1", Role: "user", Snippet: "aside"},
			}},
			Side: []SideBranch{{From: "\" onclick=\"x", Entries: []jsontext.Value{
				message("\"><b>m9", "run-3", "user", "aside </details><script>alert(\"branch\")</script>", nil),
				message("m10", "run-3", "tool", strings.Repeat("</details><b>long</b>\n", 10), func(m *protocol.Message) {
					m.ToolName = "ls"
				}),
			}}},
			Left: 2,
		},
	}
}

func TestExportedDocuments(t *testing.T) {
	for name, doc := range map[string]*Document{
		"hostile": hostile(t),
		"empty":   {SessionID: "ses-2", Assets: []protocol.AssetInfo{}, Messages: []jsontext.Value{}},
	} {
		for format, write := range Writers {
			if format == "atif" { // its own test holds it against its schema
				continue
			}
			var got bytes.Buffer
			if err := write(&got, doc); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "export", name+"."+format)
			if *updateExports {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		}
	}
}

// The golden files say how a document looks; this says what may never be in one.
func TestExportsLetNothingOut(t *testing.T) {
	doc := hostile(t)
	var page, markdown bytes.Buffer
	if err := Writers["html"](&page, doc); err != nil {
		t.Fatal(err)
	}
	if err := Writers["md"](&markdown, doc); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("page.js")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(script)
	hash := "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	// One script is ours; a browser runs none that is another.
	shown, ours, ok := strings.Cut(page.String(), "<script>")
	code, rest, _ := strings.Cut(ours, "</script>")
	if shown += rest; !ok || code != string(script) {
		t.Errorf("got the script %q, want the page's own", code)
	}
	if want := "script-src '" + strings.ReplaceAll(hash, "+", "&#43;") + "';"; !strings.Contains(shown, want) {
		t.Errorf("the policy does not have %s", want)
	}
	for _, tag := range []string{"<script", "</script", "<b>", "src=", "href=\"javascript", "href=\"data", "url("} {
		if strings.Contains(shown, tag) {
			t.Errorf("the page has %s", tag)
		}
	}
	for name, text := range map[string]string{"page": page.String(), "markdown": markdown.String()} {
		if got := plaintext.Text(text); got != text {
			t.Errorf("%s: control characters or bad UTF-8 are left: %s", name, cmp.Diff(got, text))
		}
	}
	var turns []string
	for line := range strings.Lines(markdown.String()) {
		if strings.HasPrefix(line, "## ") {
			turns = append(turns, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff([]string{"## Turn 1: prompt", "## Turn 2: follow-up", "## Turn 3: prompt"}, turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}
