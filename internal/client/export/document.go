// Package export writes a session as a document: Markdown, JSON, one web page, or a
// trajectory (ATIF). It also prints a conversation as text.
//
// Its functions may be called from any goroutine; Read and Messages block until the daemon has
// answered. The package refuses to let a text of the session out of its place in the document, and
// to send what it writes anywhere.
package export

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/conversation"
	"noused/internal/client/plain"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/regular"
)

// Document is a session as it is exported; its JSON form is that of the json
// format.
type Document struct {
	SessionID string               `json:"session_id"`
	Title     string               `json:"title"`
	LeafID    string               `json:"leaf_id"`
	Usage     protocol.Usage       `json:"usage"`
	Assets    []protocol.AssetInfo `json:"assets"`
	Messages  []jsontext.Value     `json:"messages"`

	Branches Branches `json:"-"` // of the html format
	Far      bool     `json:"-"` // files that it names are another machine's
}

// Read reads a session as a format has it. far says that the daemon is on another machine.
func Read(ctx context.Context, c client.Sender, session, format string, far bool) (*Document, error) {
	messages, err := client.AllMessages(protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: session}, Whole: true},
		client.Messages(ctx, c))
	if err != nil {
		return nil, err
	}
	scope := protocol.Scope{SessionID: messages.SessionID}
	state, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Scope: scope})
	if err != nil {
		return nil, err
	}
	doc := &Document{
		SessionID: messages.SessionID, Title: state.Title, LeafID: messages.LeafID,
		Usage: state.Usage, Assets: state.Assets, Messages: messages.Messages, Far: far,
	}
	if format == "html" {
		doc.Branches, err = readBranches(ctx, c, messages)
	}
	return doc, err
}

func JSON(w io.Writer, doc *Document) error {
	return encode(w, doc, jsontext.WithIndent("  "))
}

// JSONLine is what --json prints: the same document on one line.
func JSONLine(w io.Writer, doc *Document) error {
	return encode(w, doc, jsontext.Multiline(false))
}

func encode(w io.Writer, doc any, form json.Options) error {
	text, err := json.Marshal(doc, form, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = w.Write(append(plaintext.JSON(text), '\n'))
	return err
}

// page is a document for people. Its texts are valid UTF-8 without what could
// drive a terminal.
type page struct {
	Title, SessionID string
	Usage            string
	Assets           []asset
	Turns            []turn
	Tree             []plain.TreeRow // in the page only, as are Branches
	Branches         []branch
	Left             int // branches that are not in it
}

type asset struct{ Path, About string }

// picture is an image of a message; File is where it is, Source the image itself.
type picture struct {
	asset
	File, Type string
	Source     template.URL // in the page only, "" where it cannot be read
}

// turn has number 0 where it is what stands before the first text somebody gave.
type turn struct {
	Number int
	Kind   string
	Parts  []part
}

// part is one entry of the conversation.
type part struct {
	ID      string
	Role    string // "user", "assistant", "tool" or "compaction"
	Who     string
	Failed  bool
	Notes   []string // model, failure, usage
	At      time.Time
	Tool    string
	Text    string
	Rich    template.HTML // the text as Markdown says, in the page only; or ""
	Images  []picture
	Thought string
	Calls   []toolCall
	Outputs string // a JSON object, or ""
}

type toolCall struct{ Name, Arguments string }

func newPage(doc *Document) (*page, error) {
	p := &page{Title: plain.OneLine(doc.Title, 200), SessionID: printable(doc.SessionID), Usage: plain.Usage(&doc.Usage)}
	p.Title = cmp.Or(p.Title, "Session "+p.SessionID)
	for _, a := range doc.Assets {
		p.Assets = append(p.Assets, asset{printable(a.Path), printable(a.Kind + ", " + a.MediaType + ", of " + a.Tool)})
	}
	var err error
	p.Turns, err = turnsOf(doc.Messages)
	return p, err
}

func turnsOf(entries []jsontext.Value) ([]turn, error) {
	var turns []turn
	last := protocol.Message{}
	for _, entry := range entries {
		var m protocol.Message
		if err := json.Unmarshal(entry, &m, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, fmt.Errorf("decode message: %w", err)
		}
		next, err := newPart(m, entry)
		if err != nil {
			return nil, err
		}
		// With mode "all" a turn opens with several texts.
		opens := m.Role == "user" && (last.Role != "user" || last.RunID != m.RunID)
		if opens || len(turns) == 0 {
			turns = append(turns, turn{})
		}
		t := &turns[len(turns)-1]
		if opens {
			t.Number, t.Kind = 1, printable(plain.KindWord(m.TurnKind))
			if len(turns) > 1 {
				t.Number += turns[len(turns)-2].Number
			}
		}
		t.Parts = append(t.Parts, next)
		last = m
	}
	return turns, nil
}

func newPart(m protocol.Message, entry jsontext.Value) (part, error) {
	p := part{
		ID: printable(m.ID), Role: m.Role, Who: m.Role, At: m.CreatedAt.UTC(), Text: printable(m.Text),
		Thought: printable(m.Thinking),
	}
	if m.Type == "compaction" {
		var c protocol.CompactionEntry
		if err := json.Unmarshal(entry, &c, jsontext.AllowInvalidUTF8(true)); err != nil {
			return p, fmt.Errorf("decode compaction: %w", err)
		}
		p.Role, p.Who, p.Text = "compaction", conversation.Summarised(c.TokensBefore, c.TokensAfter), printable(c.Summary)
		return p, nil
	}
	if m.Role == "tool" {
		p.Tool = printable(m.ToolName)
		if m.OK != nil && !*m.OK {
			p.Failed, p.Notes = true, append(p.Notes, "failed")
		}
	}
	if m.Model != "" {
		p.Notes = append(p.Notes, printable(m.Model))
	}
	if m.StopReason == protocol.StopAborted || m.StopReason == protocol.StopError || m.StopReason == protocol.StopLength {
		p.Notes = append(p.Notes, string(m.StopReason))
	}
	if m.Usage != nil {
		p.Notes = append(p.Notes, plain.Usage(m.Usage))
	}
	for _, image := range m.Attachments {
		p.Images = append(p.Images, picture{
			asset: asset{printable(image.Path), printable(plain.Image(image))}, File: image.Path, Type: image.MediaType,
		})
	}
	for _, c := range m.ToolCalls {
		p.Calls = append(p.Calls, toolCall{printable(c.Name), printable(indented(c.Arguments))})
	}
	if len(m.Outputs) > 0 {
		text, err := json.Marshal(m.Outputs, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return p, fmt.Errorf("encode outputs: %w", err)
		}
		p.Outputs = printable(indented(text))
	}
	return p, nil
}

// printable is text fit for a file that somebody may also look at in a
// terminal.
func printable(text string) string { return plaintext.Text(text) }

// indented is a JSON value over several lines, or what is none as it is.
func indented(value jsontext.Value) string {
	value = slices.Clone(value)
	_ = value.Indent(jsontext.WithIndent("  "))
	return string(value)
}

// inline is the image as a URL that needs no file, "" where the daemon's copy is
// not to be had.
func (p picture) inline() template.URL {
	switch p.Type {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return ""
	}
	data, err := regular.ReadOwn(p.File, maxInline)
	if err != nil {
		return ""
	}
	return template.URL("data:" + p.Type + ";base64," + base64.StdEncoding.EncodeToString(data))
}

// addBranches adds what is beside the conversation, and the tree where it branches.
func (p *page) addBranches(b Branches) error {
	for _, side := range b.Side {
		turns, err := turnsOf(side.Entries)
		if err != nil {
			return err
		}
		about := ""
		for i := range turns {
			turns[i].Number = 0 // that of the conversation
			for _, part := range turns[i].Parts {
				about = cmp.Or(about, plain.OneLine(part.Text, plain.LineWidth))
			}
		}
		p.Branches = append(p.Branches, branch{printable(side.From), about, turns})
	}
	p.Left = b.Left
	if len(b.Side) == 0 {
		return nil
	}
	p.Tree = plain.TreeRows(b.Tree)
	for i, row := range p.Tree {
		p.Tree[i].ID, p.Tree[i].Role, p.Tree[i].Snippet = printable(row.ID), printable(row.Role),
			plain.OneLine(row.Snippet, plain.LineWidth)
	}
	return nil
}

// Writers write a document in each of the formats, by the name that people call it.
var Writers = map[string]func(io.Writer, *Document) error{"md": Markdown, "json": JSON, "html": HTML, "atif": ATIF}
