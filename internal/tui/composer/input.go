package composer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

const (
	// MaxText leaves room for the rest of a command's line, where every
	// character of the text may have to be escaped.
	MaxText = protocol.DefaultMaxLine / 8
	// A paste beyond either of these is shown as one word.
	foldedBytes = 1000
	foldedLines = 8
	// One beyond this is not opened where the input is, which would be slow.
	openedBytes = 64 << 10
)

// input is what the user is writing. A long paste stands in it as one word,
// "[paste 1: 312 lines]", and is sent whole.
type input struct {
	area   textarea.Model
	pastes map[string]string
	last   int // number of the last paste
}

func newInput() *input {
	area := textarea.New()
	area.ShowLineNumbers = false
	area.EndOfBufferCharacter = ' '
	area.CharLimit = 0
	area.DynamicHeight = true
	area.MinHeight = 1
	area.MaxHeight = 1
	area.MaxContentHeight = 1 << 20
	area.SetPromptFunc(2, func(p textarea.PromptInfo) string {
		if p.LineNumber == 0 {
			return "> "
		}
		return "  "
	})
	area.SetVirtualCursor(false)
	keys := &area.KeyMap
	keys.InsertNewline = key.NewBinding(key.WithKeys("alt+enter", "shift+enter", "ctrl+j"))
	// Keys that mean something else here, and pasting, which the terminal does.
	keys.CharacterBackward.SetKeys("left", "ctrl+b")
	keys.LinePrevious.SetKeys("up", "ctrl+p")
	keys.LineNext.SetKeys("down", "ctrl+n")
	for _, off := range []*key.Binding{
		&keys.Paste, &keys.PageUp, &keys.PageDown, &keys.TransposeCharacterBackward,
		&keys.UppercaseWordForward, &keys.LowercaseWordForward, &keys.CapitalizeWordForward,
	} {
		off.SetEnabled(false)
	}
	area.Focus()
	return &input{area: area, pastes: map[string]string{}}
}

// Look dresses the input.
func (in *input) Look(t theme.Theme) {
	styles := in.area.Styles()
	for _, s := range []*textarea.StyleState{&styles.Focused, &styles.Blurred} {
		*s = textarea.StyleState{Base: t.Text, Text: t.Text, Prompt: t.Accent, Placeholder: t.Dim}
	}
	styles.Cursor.Blink = false
	styles.Cursor.Color = nil
	in.area.SetStyles(styles)
}

// Resize gives the input its width and the rows it may grow to.
func (in *input) Resize(width, rows int) {
	in.area.MaxHeight = max(rows, 1)
	in.area.SetWidth(max(width, 4))
}

// Update lets the input have a key.
func (in *input) Update(msg tea.Msg) tea.Cmd {
	if press, ok := msg.(tea.KeyPressMsg); ok && press.Text != "" && in.area.Length() >= MaxText/utf8.UTFMax {
		return nil
	}
	if press, ok := msg.(tea.KeyPressMsg); ok && press.String() == "backspace" {
		if word := in.pasteBefore(); word != "" { // it is one, half of it would be nothing
			in.replaceWord(word, "")
			return nil
		}
	}
	area, cmd := in.area.Update(msg)
	in.area = area
	return cmd
}

// pasteBefore is the folded paste that the cursor stands behind.
func (in *input) pasteBefore() string {
	for word := range in.pastes {
		if strings.HasSuffix(in.beforeCursor(), word) {
			return word
		}
	}
	return ""
}

// open puts the text of a folded paste in its place: of the one before the
// cursor, or the only one.
func (in *input) open() error {
	word := in.pasteBefore()
	if all := pasteWord().FindAllString(in.area.Value(), 2); word == "" && len(all) == 1 && in.pastes[all[0]] != "" {
		word = all[0]
	}
	text, ok := in.pastes[word]
	switch {
	case !ok:
		return errors.New("no folded paste is before the cursor")
	case len(text) > openedBytes || odd(text):
		return errors.New("the paste is too long to be shown here, or holds what cannot be: the editor shows it")
	}
	value := in.area.Value()
	in.area.SetValue(strings.Replace(value, word, text, 1))
	delete(in.pastes, word)
	return nil
}

// odd tells whether a text holds what may not reach the terminal as it is.
func odd(text string) bool { return cell.Sanitize(text) != text }

// Paste puts a text where the cursor is. It sends nothing, whatever it holds,
// and refuses what no command could carry.
func (in *input) Paste(text string) error {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	text = strings.ToValidUTF8(text, "\ufffd")
	if have := len(in.Text()); have+len(text) > MaxText {
		return fmt.Errorf("the paste of %d bytes is too long: a message has at most %d bytes, and %d are written already",
			len(text), MaxText, have)
	}
	in.insert(text)
	return nil
}

// insert puts a text where the cursor is, folded if it is long or holds what
// may not reach the terminal as it is.
func (in *input) insert(text string) {
	lines := strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
	if len(text) <= foldedBytes && lines <= foldedLines && !odd(text) {
		in.area.InsertString(text)
		return
	}
	in.last++
	word := "[paste " + strconv.Itoa(in.last) + ": " + format.Count(lines, "line") + "]"
	in.pastes[word] = text
	in.area.InsertString(word)
}

var pasteWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[paste [0-9]+: [0-9]+ lines?\]`) })

// Text is what would be sent: pastes whole.
func (in *input) Text() string {
	return pasteWord().ReplaceAllStringFunc(in.area.Value(), func(word string) string {
		if text, ok := in.pastes[word]; ok {
			return text
		}
		return word
	})
}

func (in *input) Empty() bool { return in.area.Length() == 0 && in.area.LineCount() <= 1 }

func (in *input) Clear() {
	in.area.Reset()
	in.pastes = map[string]string{}
}

// Set replaces everything; the cursor is at the end.
func (in *input) Set(text string) {
	in.Clear()
	in.insert(text)
}

// Before puts texts before what is written: those that came back.
func (in *input) Before(texts ...string) {
	if len(texts) == 0 {
		return
	}
	back := strings.Join(texts, "\n\n")
	switch {
	case strings.HasPrefix(back, "/"):
		back = "/" + back // it is a text, not a command
	case strings.HasPrefix(back, "!"):
		back = " " + back
	}
	in.Prepend(back)
}

// Prepend puts what was written before what is written.
func (in *input) Prepend(back string) {
	written := in.area.Value()
	pastes := in.pastes
	in.area.Reset()
	in.pastes = pastes
	in.insert(back)
	if written != "" {
		in.area.InsertString("\n\n" + written)
	}
}

// FirstRow and lastRow tell whether the cursor is where Up and Down leave the
// text.
func (in *input) FirstRow() bool { return in.area.Line() == 0 && in.area.LineInfo().RowOffset == 0 }

func (in *input) LastRow() bool {
	info := in.area.LineInfo()
	return in.area.Line() == in.area.LineCount()-1 && info.RowOffset >= info.Height-1
}

// Word is the text between the last white space before the cursor and the
// cursor.
func (in *input) Word() string {
	before := in.beforeCursor()
	return before[strings.LastIndexAny(before, " \t\n")+1:]
}

// beforeCursor is what stands before the cursor on its line.
func (in *input) beforeCursor() string {
	lines := strings.Split(in.area.Value(), "\n")
	row := min(in.area.Line(), len(lines)-1)
	runes := []rune(lines[row])
	return string(runes[:min(in.area.Column(), len(runes))])
}

// replaceWord puts text in the place of word, which stands before the cursor.
func (in *input) replaceWord(word, text string) {
	for range utf8.RuneCountInString(word) {
		in.area, _ = in.area.Update(tea.KeyPressMsg{Code: tea.KeyBackspace})
	}
	in.area.InsertString(text)
}

// Newlines sets the keys that begin a line.
func (in *input) Newlines(keys ...string) { in.area.KeyMap.InsertNewline.SetKeys(keys...) }

// View is what is written, as it is drawn.
func (in *input) View() string { return in.area.View() }

// Cursor is where the cursor belongs in the view; nil: nowhere.
func (in *input) Cursor() *tea.Cursor { return in.area.Cursor() }
