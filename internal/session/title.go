package session

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a title that is made from a text: its characters, and the bytes of
// arguments that are looked through for it.
const (
	titleLength = 120
	titledBytes = 16 << 10
)

// retitled is what a fact makes of a session's title, and of whether that is its parent's
// still: a branch is called by the first text that is said in it.
func retitled(title string, inherited bool, fact Fact) (string, bool) {
	switch f := fact.(type) {
	case Created:
		return f.Title, f.ParentID != "" && f.Title != ""
	case TitleSet:
		return f.Title, false
	case Input:
		if title == "" || inherited {
			if own := titleOf(f.Text); own != "" {
				return strings.Clone(own), false
			}
		}
	}
	return title, inherited
}

// titleOf is what a session is called that begins with a text: its first line. Of
// a tool call that is written out, !TOOL {JSON}, it is the tool and what it is
// given, as in "bash ls -l".
func titleOf(text string) string {
	call, called := strings.CutPrefix(strings.TrimSpace(text), "!")
	tool, args, _ := strings.Cut(call, " ")
	if args = strings.TrimSpace(args); called && strings.HasPrefix(args, "{") && len(args) <= titledBytes {
		if values, ok := textsIn(args); ok {
			text = strings.Join(strings.Fields(tool+" "+values), " ")
		}
	}
	return FirstLine(text, titleLength)
}

// textsIn are the strings of a JSON object that are no names, in their order.
func textsIn(object string) (string, bool) {
	d := jsontext.NewDecoder(strings.NewReader(object))
	var texts []string
	for {
		token, err := d.ReadToken()
		if err != nil {
			return "", false
		}
		in, n := d.StackIndex(d.StackDepth())
		if name := in == '{' && n%2 == 1; token.Kind() == '"' && !name {
			texts = append(texts, token.String())
		}
		if d.StackDepth() == 0 { // the object's end
			return strings.Join(texts, " "), true
		}
	}
}
