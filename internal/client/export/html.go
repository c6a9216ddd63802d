package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/format"
	"noused/internal/protocol"
)

// Bounds of what a page has beside the conversation.
const (
	maxBranches    = 50
	maxBranchBytes = 64 << 20 // of all branches' messages, as JSON
)

// Branches are a session's tree, and what is on it beside the conversation.
type Branches struct {
	Tree protocol.Tree
	Side []SideBranch
	Left int // branches that are too many
}

// SideBranch is what goes on from an entry another way; From is "" at the root.
type SideBranch struct {
	From    string
	Entries []jsontext.Value
}

// branch is a sideBranch in a page.
type branch struct {
	From  string
	About string
	Turns []turn
}

// readBranches reads a session's tree and the branches that do not end at the
// session's leaf. Some have no tree.
func readBranches(ctx context.Context, c client.Sender, main protocol.Messages) (b Branches, err error) {
	scope := protocol.Scope{SessionID: main.SessionID}
	b.Tree, err = client.Call(ctx, c, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
	if errors.Is(err, client.ErrUnsupported) {
		return Branches{}, nil
	}
	if err != nil {
		return b, err
	}
	seen := map[string]bool{}
	if _, _, err := unseen(main.Messages, seen); err != nil {
		return b, err
	}
	size := 0
	for _, leaf := range plain.Tips(b.Tree) {
		switch {
		case seen[leaf]:
			continue
		case len(b.Side) == maxBranches || size > maxBranchBytes:
			b.Left++
			continue
		}
		r, err := client.AllMessages(protocol.GetMessagesParams{Scope: scope, LeafID: leaf, Whole: true},
			client.Messages(ctx, c))
		if err != nil {
			return b, err
		}
		from, entries, err := unseen(r.Messages, seen)
		if err != nil {
			return b, err
		}
		for _, e := range entries {
			size += len(e)
		}
		b.Side = append(b.Side, SideBranch{from, entries})
	}
	return b, nil
}

// unseen marks entries as seen, and returns those that were not, and the one
// that they go on from.
func unseen(entries []jsontext.Value, seen map[string]bool) (from string, news []jsontext.Value, err error) {
	for _, entry := range entries {
		var e struct {
			ID       string `json:"id"`
			ParentID string `json:"parent_id"`
		}
		if err := json.Unmarshal(entry, &e, jsontext.AllowInvalidUTF8(true)); err != nil {
			return "", nil, fmt.Errorf("decode entry: %w", err)
		}
		if seen[e.ID] {
			continue
		}
		if seen[e.ID] = true; len(news) == 0 {
			from = e.ParentID
		}
		news = append(news, entry)
	}
	return from, news, nil
}

// maxInline is the longest image that goes into a page, in bytes; the daemon
// keeps none that is longer.
const maxInline = 5 << 20

var (
	//go:embed page.html
	pageText string
	// pageScript is the page's one script. Without it the page has no search.
	//go:embed page.js
	pageScript string
)

var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"script":     func() template.JS { return template.JS(pageScript) },
		"scriptHash": scriptHash,
		"fold":       foldOf,
	}).Parse(pageText))
})

// fold is a text that is folded away unless it is short.
type fold struct {
	Name, Text, Lines, First string
	Short                    bool
}

func foldOf(name, text string) fold {
	lines := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
	short := lines <= plain.ShortResult && len(text) <= 1000
	return fold{name, text, format.Count(lines, "line"), plain.OneLine(text, plain.LineWidth), short}
}

// scriptHash is what a browser must find the script to be before it runs it.
func scriptHash() string {
	sum := sha256.Sum256([]byte(pageScript))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// HTML writes one web page.
func HTML(w io.Writer, doc *Document) error {
	p, err := newPage(doc)
	if err != nil {
		return err
	}
	if err := p.addBranches(doc.Branches); err != nil {
		return err
	}
	enrich(p.Turns, doc.Far)
	for _, b := range p.Branches {
		enrich(b.Turns, doc.Far)
	}
	var out bytes.Buffer
	if err := pageTemplate().Execute(&out, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// enrich adds what only a page shows: Markdown as it is meant, and images.
func enrich(turns []turn, far bool) {
	for _, t := range turns {
		for n, part := range t.Parts {
			if part.Role == "assistant" || part.Role == "compaction" {
				t.Parts[n].Rich = richText(part.Text)
			}
			for i := range part.Images {
				if far {
					continue
				}
				part.Images[i].Source = part.Images[i].inline()
			}
		}
	}
}
