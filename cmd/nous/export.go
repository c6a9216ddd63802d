package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/conversation"
	"noused/internal/cmdline"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

func (a *app) exportCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "export [SESSION]",
		Short: "Write a session's conversation as a document",
		Long: `Write a session's conversation, from its root to its leaf, to standard output.

  md    Markdown. A text with dangerous links or active HTML is put into a code
        block.
  html  One web page that needs no other file; images are in it. The Markdown
        of assistants is rendered, without HTML of theirs. It also has the
        session's tree and its other branches, and can be searched.
  json  What the daemon has, indented. --json prints it on one line.

Characters that could control a terminal are removed from md and html, and
escaped in json.`,
		Example: `  nous export > talk.md
  nous export --format html ses-… > talk.html`,
		Args:              cmdline.Wants(0, 1, "SESSION, the id of a session, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			write := exporters[format]
			if write == nil {
				return cmdline.Errorf("--format %s: want md, json or html", format)
			}
			if a.json && cmd.Flags().Changed("format") && format != "json" {
				return cmdline.Errorf("--json and --format %s exclude each other", format)
			}
			scope, err := a.scopeOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			doc, err := a.document(cmd.Context(), scope.SessionID, format)
			if err != nil {
				return err
			}
			if a.json {
				write = writeJSONLine
			}
			return write(a.out, doc)
		},
	}
	cmd.Flags().StringVar(&format, "format", "md", "the document's `format`: md, json or html")
	completeWords(cmd, "format", "md", "json", "html")
	return cmd
}

var exporters = map[string]func(io.Writer, *document) error{"md": writeMarkdown, "json": writeJSON, "html": writeHTML}

// document is a session as it is exported; its JSON form is that of the json
// format.
type document struct {
	SessionID string               `json:"session_id"`
	Title     string               `json:"title"`
	LeafID    string               `json:"leaf_id"`
	Usage     protocol.Usage       `json:"usage"`
	Assets    []protocol.AssetInfo `json:"assets"`
	Messages  []jsontext.Value     `json:"messages"`

	branches branches // of the html format
	far      bool     // files that it names are another machine's
}

func (a *app) document(ctx context.Context, session, format string) (*document, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	messages, err := client.AllMessages(protocol.GetMessagesParams{
		Scope: protocol.Scope{SessionID: session}, Whole: true,
	}, a.messagesFrom(ctx, c))
	if err != nil {
		return nil, err
	}
	scope := protocol.Scope{SessionID: messages.SessionID}
	state, err := call(ctx, a, c, protocol.GetState, protocol.GetStateParams{Scope: scope})
	if err != nil {
		return nil, err
	}
	doc := &document{
		SessionID: messages.SessionID, Title: state.Title, LeafID: messages.LeafID,
		Usage: state.Usage, Assets: state.Assets, Messages: messages.Messages, far: a.far != nil,
	}
	if format == "html" {
		doc.branches, err = a.branchesOf(ctx, c, messages)
	}
	return doc, err
}

func writeJSON(w io.Writer, doc *document) error {
	return encode(w, doc, jsontext.WithIndent("  "))
}

// writeJSONLine is what --json prints: the same document on one line.
func writeJSONLine(w io.Writer, doc *document) error {
	return encode(w, doc, jsontext.Multiline(false))
}

func encode(w io.Writer, doc *document, form json.Options) error {
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
	Tree             []treeRow // in the page only, as are Branches
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

func newPage(doc *document) (*page, error) {
	p := &page{Title: oneLine(doc.Title, 200), SessionID: printable(doc.SessionID), Usage: describeUsage(&doc.Usage)}
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
			t.Number, t.Kind = 1, printable(wordFor(m.TurnKind))
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
		p.Notes = append(p.Notes, describeUsage(m.Usage))
	}
	for _, image := range m.Attachments {
		p.Images = append(p.Images, picture{
			asset: asset{printable(image.Path), printable(describeImage(image))}, File: image.Path, Type: image.MediaType,
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

func describeUsage(u *protocol.Usage) string {
	text := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
	if u.CachedTokens > 0 {
		text += fmt.Sprintf(", %d cached", u.CachedTokens)
	}
	return text
}

// writeMarkdown quotes all texts, so that a heading or an open fence in one of
// them ends with it.
func writeMarkdown(w io.Writer, doc *document) error {
	p, err := newPage(doc)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n\n- Session: %s\n- Usage: %s\n", plain(p.Title), code(p.SessionID), p.Usage)
	for _, a := range p.Assets {
		fmt.Fprintf(&out, "- Asset: %s (%s)\n", code(a.Path), plain(a.About))
	}
	for _, t := range p.Turns {
		if t.Number > 0 {
			fmt.Fprintf(&out, "\n## Turn %d: %s\n", t.Number, plain(t.Kind))
		}
		for _, part := range t.Parts {
			markdownPart(&out, part)
		}
	}
	_, err = w.Write(out.Bytes())
	return err
}

func markdownPart(out *bytes.Buffer, p part) {
	head := plain(p.Who)
	if p.Tool != "" {
		head += " " + code(p.Tool)
	}
	notes := p.Notes
	if !p.At.IsZero() {
		notes = append([]string{p.At.Format(time.DateTime + " MST")}, notes...)
	}
	for _, note := range notes {
		head += " · " + plain(note)
	}
	fmt.Fprintf(out, "\n### %s\n", head)
	if p.Thought != "" {
		fmt.Fprintf(out, "\nThinking:\n\n%s\n", quotedText(p.Thought))
	}
	switch {
	case p.Text == "":
	case p.Role == "tool":
		fmt.Fprintf(out, "\n%s\n", fenced("", p.Text))
	default:
		fmt.Fprintf(out, "\n%s\n", quotedText(p.Text))
	}
	for _, image := range p.Images {
		fmt.Fprintf(out, "\n- Image: %s (%s)\n", code(image.Path), plain(image.About))
	}
	for _, c := range p.Calls {
		fmt.Fprintf(out, "\nCalls %s:\n\n%s\n", code(c.Name), fenced("json", c.Arguments))
	}
	if p.Outputs != "" {
		fmt.Fprintf(out, "\nOutputs:\n\n%s\n", fenced("json", p.Outputs))
	}
}

// quotedText is a text in a quote: as it is, which is Markdown, or as code where
// that would be dangerous to look at.
func quotedText(text string) string {
	if loaded(text) {
		text = fenced("", text)
	}
	return indentLines(text, "> ")
}

func indentLines(text, by string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		out.WriteString(strings.TrimRight(by+line, " \n") + "\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// fenced is text as a code block, whatever backticks it has.
func fenced(language, text string) string {
	fence := strings.Repeat("`", max(3, ticks(text)+1))
	return fence + language + "\n" + strings.TrimRight(text, "\n") + "\n" + fence
}

// code is text as a code span on one line.
func code(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	fence := strings.Repeat("`", ticks(text)+1)
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// ticks is the length of the longest run of backticks.
func ticks(text string) int {
	longest, run := 0, 0
	for _, c := range []byte(text) {
		if run++; c != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

var escapeMarkdown = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`, "&", `\&`, "#", `\#`, "|",
	`\|`, "~", `\~`, "\n", " ",
)

// plain is text on one line that means nothing in Markdown.
func plain(text string) string { return escapeMarkdown.Replace(text) }
