package main

import (
	"bytes"
	"cmp"
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
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/regular"
)

// Bounds of what a page has beside the conversation.
const (
	maxBranches    = 50
	maxBranchBytes = 64 << 20 // of all branches' messages, as JSON
)

// branches are a session's tree, and what is on it beside the conversation.
type branches struct {
	tree protocol.Tree
	side []sideBranch
	left int // branches that are too many
}

// sideBranch is what goes on from an entry another way; From is "" at the root.
type sideBranch struct {
	From    string
	Entries []jsontext.Value
}

// branch is a sideBranch in a page.
type branch struct {
	From  string
	About string
	Turns []turn
}

// branchesOf reads a session's tree and the branches that do not end at the
// session's leaf. Some have no tree.
func (a *app) branchesOf(ctx context.Context, c *client.Client, main protocol.Messages) (b branches, err error) {
	scope := protocol.Scope{SessionID: main.SessionID}
	b.tree, err = call(ctx, a, c, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
	if errors.Is(err, client.ErrUnsupported) {
		return branches{}, nil
	}
	if err != nil {
		return b, err
	}
	seen := map[string]bool{}
	if _, _, err := unseen(main.Messages, seen); err != nil {
		return b, err
	}
	size := 0
	for _, leaf := range tipsOf(b.tree) {
		switch {
		case seen[leaf]:
			continue
		case len(b.side) == maxBranches || size > maxBranchBytes:
			b.left++
			continue
		}
		r, err := client.AllMessages(protocol.GetMessagesParams{Scope: scope, LeafID: leaf, Whole: true},
			a.messagesFrom(ctx, c))
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
		b.side = append(b.side, sideBranch{from, entries})
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

// tipsOf lists the entries that nothing follows.
func tipsOf(tree protocol.Tree) (tips []string) {
	parents := make(map[string]bool, len(tree.Nodes))
	for _, n := range tree.Nodes {
		parents[n.ParentID] = true
	}
	for _, n := range tree.Nodes {
		if !parents[n.ID] {
			tips = append(tips, n.ID)
		}
	}
	return tips
}

// maxInline is the longest image that goes into a page, in bytes; the daemon
// keeps none that is longer.
const maxInline = 5 << 20

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

var (
	//go:embed export.html
	pageText string
	// pageScript is the page's one script. Without it the page has no search.
	//go:embed export.js
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
	return fold{name, text, format.Count(lines, "line"), oneLine(text, lineWidth), lines <= shortResult &&
		len(text) <= 1000}
}

// scriptHash is what a browser must find the script to be before it runs it.
func scriptHash() string {
	sum := sha256.Sum256([]byte(pageScript))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func writeHTML(w io.Writer, doc *document) error {
	p, err := newPage(doc)
	if err != nil {
		return err
	}
	if err := p.addBranches(doc.branches); err != nil {
		return err
	}
	enrich(p.Turns, doc.far)
	for _, b := range p.Branches {
		enrich(b.Turns, doc.far)
	}
	var out bytes.Buffer
	if err := pageTemplate().Execute(&out, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// addBranches adds what is beside the conversation, and the tree where it branches.
func (p *page) addBranches(b branches) error {
	for _, side := range b.side {
		turns, err := turnsOf(side.Entries)
		if err != nil {
			return err
		}
		about := ""
		for i := range turns {
			turns[i].Number = 0 // that of the conversation
			for _, part := range turns[i].Parts {
				about = cmp.Or(about, oneLine(part.Text, lineWidth))
			}
		}
		p.Branches = append(p.Branches, branch{printable(side.From), about, turns})
	}
	p.Left = b.left
	if len(b.side) == 0 {
		return nil
	}
	p.Tree = treeRows(b.tree)
	for i, row := range p.Tree {
		p.Tree[i].ID, p.Tree[i].Role, p.Tree[i].Snippet = printable(row.ID), printable(row.Role),
			oneLine(row.Snippet, lineWidth)
	}
	return nil
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
