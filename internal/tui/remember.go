package tui

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"noused/internal/regular"
)

// remembered is what the user has changed in the screen, for the next one. What
// the config says comes first.
type remembered struct {
	Theme string `json:"theme,omitzero"`
	Mouse *bool  `json:"mouse,omitzero"`
}

const maxRemembered = 4 << 10 // bytes of the file

// loadRemembered reads the file. Without one nothing is remembered.
func loadRemembered(path string) (r remembered, err error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxRemembered))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return remembered{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// save replaces the file.
func (r remembered) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return regular.Replace(path, text, 0o600)
}

// configure takes in what the user has written, and what is remembered.
func (m *model) configure() {
	m.remembers = filepath.Join(stateDir(m.opts.Getenv, "nous"), "screen.json")
	var err, err2 error
	m.config, err = loadConfig(configPath(m.opts.Getenv))
	m.remembered, err2 = loadRemembered(m.remembers)
	if err != nil {
		m.notices = append(m.notices, err.Error()+"; nous goes on as if nothing were configured")
	}
	if err2 != nil {
		m.notices = append(m.notices, err2.Error())
	}
	m.keys = newKeymap(m.config.keys)
	m.input.area.KeyMap.InsertNewline.SetKeys(m.keys.keys["newline"]...)
	on := selects(m.opts.Getenv)
	for _, said := range []*bool{m.remembered.Mouse, m.config.mouse} {
		if said != nil {
			on = *said
		}
	}
	m.setMouse(on)
	m.setTheme(cmp.Or(m.config.theme, m.remembered.Theme))
}

// setTheme chooses one of themes.
func (m *model) setTheme(name string) {
	m.chosen = name
	m.dress()
}

// rememberLook keeps what the user has changed for the next screen.
func (m *model) rememberLook(change func(*remembered)) {
	change(&m.remembered)
	if err := m.remembered.save(m.remembers); err != nil {
		m.talk.Notice("error", "not remembered: "+err.Error())
	}
}
