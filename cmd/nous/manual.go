package main

import (
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/manpage"
	"noused/internal/tui/settings"
)

// manPagesCommand is the hidden command that writes the manual: the pages of the
// commands, and that of nous's configuration.
func manPagesCommand(root *cobra.Command) *cobra.Command {
	cmd := manpage.Command(manpage.Build{
		Program: "nous", Date: buildinfo.Date(), Version: buildinfo.Version(),
		SeeAlso: []string{"noused(1)", "nous.toml(5)", "noused.toml(5)", "noused-tools(7)", "noused-protocol(7)"},
	}, func(b manpage.Build) map[string]*manpage.Page {
		return map[string]*manpage.Page{"nous.toml.5": configPage(b)}
	})
	cmd.PreRun = func(*cobra.Command, []string) { // not the one of the caller
		root.PersistentFlags().Lookup("socket").DefValue = "$XDG_RUNTIME_DIR/noused/noused.sock"
	}
	return cmd
}

// configPage is nous.toml(5): every key that nous reads.
func configPage(b manpage.Build) *manpage.Page {
	p := manpage.New(manpage.Title{
		Name: "nous.toml", Section: 5, Summary: "configuration of the client of the agent daemon", Date: b.Date,
		Source: "noused " + b.Version,
	})
	p.Section("SYNOPSIS")
	p.Line(manpage.Italic("~/.config/nous/config.toml"))
	p.Section("DESCRIPTION")
	p.Text(
		`nous reads config.toml when it starts, in $XDG_CONFIG_HOME/nous or ~/.config/nous. It is TOML, of at most 64 KiB, in a file of your
own that is no link. No key is required. If anything in it is wrong, nous names the file, the line and the key, and goes on as if
there were no such file.

A time is a text such as 500ms, 10s or 1m30s. A key named here as section.key stands in [section].`)
	p.Section("KEYS")
	for _, key := range settings.Keys() {
		p.Key(key.Name, key.Value, key.Text)
	}
	p.Section("ACTIONS")
	p.Text(
		`A key is named as in this list, with ctrl+, alt+, shift+ and super+ before it. These are the actions, the keys that they have by
themselves, and what they do.`)
	for _, a := range settings.Actions() {
		p.Key(a.Name, strings.Join(a.Keys, ", "), a.Text)
	}
	p.Section("EXAMPLES")
	p.Code(`theme = "light"

[notify]
after = "1m"

[keys]
unfold-all = "alt+u"
tree       = []`)
	p.SeeAlso("nous(1)", "noused.toml(5)")
	return p
}
