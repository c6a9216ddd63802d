package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"noused/internal/buildinfo"
	"noused/internal/manpage"
)

// manPagesCommand is the hidden command that writes the manual: the pages of the
// commands, and that of the configuration file.
func manPagesCommand() *cobra.Command {
	return manpage.Command(manpage.Build{
		Program: "noused", Date: buildinfo.Date(), Version: buildinfo.Version(),
		SeeAlso: []string{"nous(1)", "noused.toml(5)", "nous.toml(5)", "noused-tools(7)", "noused-protocol(7)"},
	}, func(b manpage.Build) map[string]*manpage.Page {
		return map[string]*manpage.Page{"noused.toml.5": configPage(b)}
	})
}

// configPage is noused.toml(5): every key that the daemon reads.
func configPage(b manpage.Build) *manpage.Page {
	p := manpage.New(manpage.Title{
		Name: "noused.toml", Section: 5, Summary: "configuration of the agent daemon", Date: b.Date, Source: "noused " +
			b.Version,
	})
	p.Section("SYNOPSIS")
	p.Line(manpage.Italic("~/.config/noused/config.toml"))
	for _, name := range []string{"models.toml", "rules.toml"} {
		p.Macro(".br")
		p.Line(manpage.Italic("~/.config/noused/" + name))
	}
	p.Section("DESCRIPTION")
	p.Text(
		`The daemon reads config.toml when it starts, in $XDG_CONFIG_HOME/noused or ~/.config/noused, or where --config says. It is
TOML. No key is required, and a key that is not on this page is an error. What a flag or a variable of the environment says
counts more: --drain-timeout, then NOUSED_DRAIN_TIMEOUT, then drain_timeout in the file.

A size is a number of bytes, or a text such as 4096KiB, 4MiB or 1GiB; a time is a text such as 500ms, 10s or 1m30s. A path may
begin with ~/, and is otherwise relative to the folder of the file. A key named here as section.key stands in [section].`)
	p.Section("KEYS OF CONFIG.TOML")
	flags := pflag.NewFlagSet("noused", pflag.ContinueOnError)
	registerFlags(flags)
	configKeys(p, fileKeys, func(key fileKey) string { return key.says(flags) })
	p.Section("PROVIDERS")
	p.Text("A section [providers.NAME] describes a provider of models by that name.")
	configKeys(p, providerKeys, func(key fileKey) string { return key.text })
	p.Section("AGENTS")
	p.Text("A section [agent.NAME] describes an agent that sessions can have. nous agents lists those that need none.")
	configKeys(p, agentKeys, func(key fileKey) string { return key.text })
	p.Section("HOOKS")
	p.Text(
		`[[hook]] is a command that has a say in runs. It gets a JSON object on its input; what it prints is added, and exit
status 2 objects. timeout is 30s by default. A project's are in .noused/config.toml, and run once nous trust has shown them.`)
	p.Code(`[[hook]]
on      = "after_tool"           # before_tool, after_tool, on_prompt, on_stop or on_event
tools   = ["edit", "write"]      # of before_tool and after_tool; default all
command = ["gofmt", "-l", "."]`)
	p.Section("RULES")
	p.Text(
		`[[policy.rule]], in config.toml or in rules.toml beside it, is a rule on calls of tools, as in this example. Of the rules that
fit a call the strictest counts: deny, then ask, then allow. An answer "always" to a question appends a rule to rules.toml.`)
	p.Code(`[[policy.rule]]
tool      = "bash"
decision  = "allow"                     # allow, ask or deny
command   = ["ping", ["-c", "-4"]]      # of bash: words from the first; a list is alternatives
path      = ["docs/**"]                 # of the file tools, instead of command
workdir   = "/home/me/proj"             # only in sessions of that folder
match     = ["ping -c 1 example.org"]   # must fit, checked when the rules are read
not_match = ["ping -f example.org"]     # must not`)
	p.Section("KEYS OF MODELS.TOML")
	p.Text(
		`A section ["PROVIDER/NAME"] of models.toml says what a model can do and costs. It counts more than the built-in catalogue.`)
	configKeys(p, factKeys, func(key fileKey) string { return key.text })
	p.Section("EXAMPLES")
	p.Code(`[model]
provider = "anthropic"
name     = "claude-sonnet-4-5"

[limits]
run_cost = 2.5`)
	p.SeeAlso("noused(1)", "noused-tools(7)", "nous.toml(5)")
	return p
}

func configKeys(p *manpage.Page, keys []fileKey, says func(fileKey) string) {
	for _, key := range keys {
		p.Key(key.name, key.value, says(key))
	}
}

// says is the manual's text about a key: its own text, or what the flag of that
// name says.
func (k fileKey) says(flags *pflag.FlagSet) string {
	if k.text != "" {
		return k.text
	}
	if flag := flags.Lookup(strings.ReplaceAll(k.name, "_", "-")); flag != nil {
		_, usage := pflag.UnquoteUsage(flag)
		return strings.ToUpper(usage[:1]) + usage[1:] + "."
	}
	return ""
}
