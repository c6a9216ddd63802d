package runloop

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Bounds of a search.
const (
	maxFound       = 5
	maxQuery       = 1000    // bytes
	maxReadText    = 1 << 10 // bytes of a description that are looked at
	maxReadParams  = 8 << 10 // bytes of a schema
	prefixLetters  = 3       // that two words begin with to be alike
	insideLetters  = 4       // of a word that is found inside another
	worthOfTheBest = 4       // what fits less than a fourth as well is not shown
)

// searchTools answers a call of the tool that finds others. found are those that a
// model is to be offered from then on, in order.
func (e *env) searchTools(ctx context.Context, inv model.Invocation, s toolset) (res model.ToolResult, found []string) {
	began := e.Now()
	res, found = s.search(e.tools(ctx, s.from, stateWait), inv.Arguments)
	ev := model.AuditEvent{
		Event: "module:invoke", Component: "tool", Module: "tools", Status: "ok", Duration: e.Now().Sub(began),
		SessionID: inv.SessionID, RequestID: inv.ID, Data: []byte(`{"op":"search"}`), Error: res.Error,
	}
	if res.Error != nil {
		ev.Status = "error"
	}
	e.Audit(ev)
	return res, found
}

// search finds the MCP tools that fit a query among those that the session may
// call.
func (s toolset) search(listed []model.ToolInfo, arguments []byte) (model.ToolResult, []string) {
	var args struct {
		Query string `json:"query"`
	}
	if err := json.Unmarshal(arguments, &args, json.RejectUnknownMembers(true)); err != nil {
		return model.Failed(model.BadRequest, `want {"query":"a few words"}`), nil
	}
	wanted := telling(words(args.Query))
	switch {
	case len(args.Query) > maxQuery:
		return model.Failed(model.BadRequest, fmt.Sprintf("query: %d bytes, want at most %d", len(args.Query), maxQuery)), nil
	case len(wanted) == 0:
		return model.Failed(model.BadRequest, "query: want a few words that say what the tool does"), nil
	}
	theirs := slices.DeleteFunc(s.callable(listed), func(t model.ToolInfo) bool { return t.Protocol != mcp })
	hits := rank(args.Query, wanted, theirs)
	if len(hits) == 0 {
		return model.ToolResult{OK: true, Text: fmt.Sprintf("None of %d tools has these words. Try others.", len(theirs))},
			nil
	}
	text, shown := show(hits, share(s.window))
	return model.ToolResult{OK: true, Text: text}, s.offered(shown, theirs)
}

// show reports tools with as many of their definitions as fit, which are those
// that can be offered.
func show(hits []model.ToolInfo, room int64) (text string, shown []model.ToolInfo) {
	var b strings.Builder
	var large []model.ToolInfo
	for _, t := range hits {
		if n := definition(t.ToolSpec); n <= room {
			room -= n
			shown = append(shown, t)
		} else {
			large = append(large, t)
		}
	}
	if len(shown) > 0 {
		b.WriteString("These tools fit best. They can be called from now on.\n")
	}
	for _, t := range shown {
		fmt.Fprintf(&b, "\n%s\n%s\narguments: %s\n", t.Name, strings.TrimSpace(t.Description),
			cmp.Or(string(t.Params), `{"type":"object"}`))
	}
	for _, t := range large {
		fmt.Fprintf(&b, "\n%s\nThis fits too, but the definition takes about %d tokens, too many to show. It can be "+
			"called, and says what is wrong with its arguments.\n", t.Name, definition(t.ToolSpec))
	}
	return b.String(), shown
}

// offered are the names of what is offered once hits have been found: they come
// last, and what was found long ago makes room for them.
func (s toolset) offered(hits, theirs []model.ToolInfo) []string {
	size := map[string]int64{}
	for _, t := range theirs {
		size[t.Name] = definition(t.ToolSpec)
	}
	names := slices.Clone(s.deferred.Offered)
	isHit := func(name string) bool {
		return slices.ContainsFunc(hits, func(t model.ToolInfo) bool { return t.Name == name })
	}
	for _, t := range hits {
		if !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	total := int64(0)
	for _, name := range names {
		total += size[name]
	}
	for i := 0; i < len(names) && (total > share(s.window) || len(names) > maxOffered); {
		if isHit(names[i]) {
			i++
			continue
		}
		total -= size[names[i]]
		names = slices.Delete(names, i, i+1)
	}
	return names
}

// rank returns at most five of the tools, those that fit best first. The same query
// over the same tools always gives the same.
func rank(query string, wanted []string, tools []model.ToolInfo) []model.ToolInfo {
	fits := make([][]int, len(tools)) // by tool and word
	having := make([]int, len(wanted))
	for i, t := range tools {
		f := read(t.ToolSpec)
		fits[i] = make([]int, len(wanted))
		for j, word := range wanted {
			if fits[i][j] = f.fits(word); fits[i][j] > 0 {
				having[j]++
			}
		}
	}
	type hit struct{ tool, score int }
	var hits []hit
	for i := range tools {
		score := 0
		for j, n := range fits[i] {
			if n > 0 {
				score += n * bits.Len(uint(len(tools)/having[j])) // rare words say more
			}
		}
		if named(query, tools[i]) {
			score += 1 << 20
		}
		if score > 0 {
			hits = append(hits, hit{i, score})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(tools[a.tool].Name, tools[b.tool].Name))
	})
	var out []model.ToolInfo
	for i, h := range hits {
		if i == maxFound || h.score*worthOfTheBest < hits[0].score {
			break
		}
		out = append(out, tools[h.tool])
	}
	return out
}

// named reports that a query is a tool's name, with that of its server or without.
func named(query string, t model.ToolInfo) bool {
	query = strings.TrimSpace(query)
	return model.Means(query, t.Name) || query == strings.TrimPrefix(t.Name, t.Module+".")
}

// readTool is a tool as a search reads it.
type readTool struct{ name, params, description []string }

func read(t model.ToolSpec) readTool {
	description := t.Description[:min(len(t.Description), maxReadText)]
	return readTool{words(t.Name), words(strings.Join(params(t.Params), " ")), words(description)}
}

// fits says how well a word fits.
func (t readTool) fits(word string) int {
	return 2*alike(word, t.name) + alike(word, t.params) + alike(word, t.description)
}

// alike is how much the most similar of some words is like one.
func alike(word string, words []string) (best int) {
	for _, w := range words {
		switch {
		case w == word:
			return 4
		case best < 3 && min(len(w), len(word)) >= prefixLetters &&
			(strings.HasPrefix(w, word) || strings.HasPrefix(word, w)):
			best = 3
		case best < 1 && len(word) >= insideLetters && strings.Contains(w, word):
			best = 1
		}
	}
	return best
}

// words are those of a text, in small letters: "createIssue" and "create_issue"
// have two.
func words(text string) []string {
	var out []string
	begin, before := -1, rune(0)
	end := func(at int) {
		if begin >= 0 {
			out = append(out, strings.ToLower(text[begin:at]))
		}
		begin = -1
	}
	for i, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			end(i)
		case begin < 0:
			begin = i
		case unicode.IsUpper(r) && unicode.IsLower(before):
			end(i)
			begin = i
		}
		before = r
	}
	end(len(text))
	return out
}

// fillers are in most descriptions, and say nothing.
const fillers = " a an and as at by for from i in into is it me my of on or that the this to with "

// telling are the words of a query but those that say nothing, if there are others.
func telling(query []string) []string {
	said := slices.DeleteFunc(slices.Clone(query), func(word string) bool {
		return strings.Contains(fillers, " "+word+" ")
	})
	if len(said) == 0 {
		return query
	}
	return said
}

// params are the names of a schema's properties, as far as its beginning has them.
func params(schema []byte) (names []string) {
	dec := jsontext.NewDecoder(bytes.NewReader(schema[:min(len(schema), maxReadParams)]))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return nil
	}
	for dec.PeekKind() == '"' {
		member, err := dec.ReadToken()
		if err != nil {
			return names
		}
		if member.String() != "properties" || dec.PeekKind() != '{' {
			if dec.SkipValue() != nil {
				return names
			}
			continue
		}
		_, _ = dec.ReadToken()
		for dec.PeekKind() == '"' {
			name, err := dec.ReadToken()
			if err != nil {
				return names
			}
			names = append(names, name.String())
			if dec.SkipValue() != nil {
				return names
			}
		}
		return names
	}
	return names
}
