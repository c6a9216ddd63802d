package tui

import (
	"cmp"
	"path/filepath"

	"github.com/charmbracelet/colorprofile"

	"noused/internal/tui/keymap"
	"noused/internal/tui/settings"
	"noused/internal/tui/terminal"
	"noused/internal/tui/theme"
	"noused/internal/tui/transcript"
)

func (a *appearance) transcriptLook() transcript.Look {
	return transcript.Look{Width: a.width, Dark: a.isDark(), Color: a.isColored()}
}

func (a *appearance) isDark() bool { return a.dark && a.chosen != "light" || a.chosen == "dark" }

func (a *appearance) isColored() bool { return a.color && a.chosen != "none" }

// dress gives everything its styles and sizes.
func (m *model) dress() {
	m.theme = theme.New(m.isDark(), m.isColored())
	m.input.Look(m.theme)
	m.input.Resize(m.width, m.height*2/5)
	m.talk.SetLook(m.transcriptLook())
	m.approval.SetTheme(m.theme)
	if m.over != nil {
		m.over.box.SetLook(m.pickLook())
	}
}

// configure takes in what the user has written, and what is remembered.
func (m *model) configure() {
	m.remembers = filepath.Join(stateDir(m.opts.Getenv, "nous"), "screen.json")
	var err, err2 error
	m.config, err = settings.Load(settings.Path(m.opts.Getenv))
	m.remembered, err2 = settings.LoadRemembered(m.remembers)
	if err != nil {
		m.notices = append(m.notices, err.Error()+"; nous goes on as if nothing were configured")
	}
	if err2 != nil {
		m.notices = append(m.notices, err2.Error())
	}
	m.keys = keymap.New(m.config.Keys)
	m.input.Newlines(m.keys.Keys["newline"]...)
	on := terminal.Selects(m.opts.Getenv)
	for _, said := range []*bool{m.remembered.Mouse, m.config.Mouse} {
		if said != nil {
			on = *said
		}
	}
	m.setMouse(on)
	m.setTheme(cmp.Or(m.config.Theme, m.remembered.Theme))
}

// setTheme chooses one of themes.
func (m *model) setTheme(name string) {
	m.chosen = name
	m.dress()
}

// rememberLook keeps what the user has changed for the next screen.
func (m *model) rememberLook(change func(*settings.Remembered)) {
	change(&m.remembered)
	if err := m.remembered.Save(m.remembers); err != nil {
		m.talk.Notice("error", "not remembered: "+err.Error())
	}
}

// setBackground has everything drawn for a dark or a light terminal.
func (m *model) setBackground(dark bool) {
	if m.dark != dark {
		m.dark = dark
		m.dress()
	}
}

// setProfile has everything drawn without colours where the terminal has none.
func (m *model) setProfile(p colorprofile.Profile) {
	if m.color && p <= colorprofile.ASCII {
		m.color = false
		m.dress()
	}
}
