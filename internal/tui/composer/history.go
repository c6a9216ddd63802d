package composer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"noused/internal/regular"

	"github.com/go-json-experiment/json"
)

const (
	historyTexts = 1000     // kept
	historyText  = 64 << 10 // bytes of the longest text that is kept
	historyFile  = 4 << 20  // bytes of the file that are read
)

// history are the texts that were sent, oldest first, and a place among them.
// Every text is a line of the file, a JSON string; clients that run at once
// append to the same file.
type history struct {
	Path  string
	Texts []string
	at    int    // len(texts): not in the history, at the draft
	draft string // what was typed before
	lines int    // of the file
}

// LoadHistory reads the file. Without one, or with a damaged one, the history
// holds what could be read.
func LoadHistory(path string) (*history, error) {
	h := &history{Path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("history: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > historyFile {
		if _, err := f.Seek(-historyFile, io.SeekEnd); err != nil {
			return h, fmt.Errorf("history: %w", err)
		}
	}
	lines := bufio.NewScanner(io.LimitReader(f, historyFile))
	lines.Buffer(nil, historyFile)
	for lines.Scan() {
		var text string
		h.lines++
		if json.Unmarshal(lines.Bytes(), &text) == nil {
			h.remember(text)
		}
	}
	h.at = len(h.Texts)
	if err := lines.Err(); err != nil {
		return h, fmt.Errorf("history: %w", err)
	}
	return h, nil
}

func (h *history) remember(text string) bool {
	if text == "" || len(text) > historyText || len(h.Texts) > 0 && h.Texts[len(h.Texts)-1] == text {
		return false
	}
	h.Texts = append(h.Texts, text)
	if len(h.Texts) > historyTexts {
		h.Texts = h.Texts[len(h.Texts)-historyTexts:]
	}
	return true
}

// add keeps a text that was sent, in the file too, and goes back to its end.
func (h *history) add(text string) error {
	kept := h.remember(text)
	h.at, h.draft = len(h.Texts), ""
	if !kept || h.Path == "" {
		return nil
	}
	if err := h.save(text); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

func (h *history) save(text string) error {
	if err := os.MkdirAll(filepath.Dir(h.Path), 0o700); err != nil {
		return err
	}
	if h.lines >= 2*historyTexts { // mostly forgotten by now
		return h.rewrite()
	}
	f, err := os.OpenFile(h.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	line, err := json.Marshal(text)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	h.lines++
	return errors.Join(err, f.Close())
}

func (h *history) rewrite() error {
	var all bytes.Buffer
	for _, text := range h.Texts {
		line, err := json.Marshal(text)
		if err != nil {
			return err
		}
		all.Write(append(line, '\n'))
	}
	h.lines = len(h.Texts)
	return regular.Replace(h.Path, all.Bytes(), 0o600)
}

// older is the text before the one shown, which is kept as the draft if it is
// none of the history.
func (h *history) older(shown string) (string, bool) {
	if h.at == 0 {
		return "", false
	}
	if h.at == len(h.Texts) {
		h.draft = shown
	}
	h.at--
	return h.Texts[h.at], true
}

// newer is the text after the one shown, at last the draft.
func (h *history) newer() (string, bool) {
	if h.at >= len(h.Texts) {
		return "", false
	}
	h.at++
	if h.at == len(h.Texts) {
		return h.draft, true
	}
	return h.Texts[h.at], true
}
