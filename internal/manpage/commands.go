package manpage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"noused/internal/cmdline"
)

// Build is what all pages of one program say of it.
type Build struct {
	Program string   // its name
	Date    string   // of the commit, like 2026-11-22; "": not known
	Version string   // of the program
	SeeAlso []string // pages like noused.toml(5), for the program's own page
}

// Command is the hidden command man-pages, which writes the pages of a program's
// commands into a folder, and those of more, by their file's names.
func Command(build Build, more func(Build) map[string]*Page) *cobra.Command {
	return &cobra.Command{
		Use:     "man-pages FOLDER",
		Example: "  " + build.Program + " man-pages ~/.local/share/man/man1",
		Short:   "Write the manual's pages into a folder",
		Hidden:  true,
		Args:    cmdline.Wants(1, 1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pages, err := Commands(cmd.Root(), build)
			if err != nil {
				return err
			}
			if more != nil {
				for name, page := range more(build) {
					pages[name] = page
				}
			}
			for name, page := range pages {
				if err := os.WriteFile(filepath.Join(args[0], name), page.Bytes(), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// Commands makes the pages of a program and of all its commands that are not
// hidden, by their file's names, such as nous-mcp-add.1. What is not described is
// an error, which names it.
func Commands(root *cobra.Command, build Build) (map[string]*Page, error) {
	root.InitDefaultHelpFlag()
	pages := map[string]*Page{}
	var problems []error
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		page, err := command(cmd, build)
		pages[pageName(cmd)+".1"] = page
		problems = append(problems, err)
		for _, sub := range shown(cmd) {
			walk(sub)
		}
	}
	walk(root)
	return pages, errors.Join(problems...)
}

func shown(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
		return c.Hidden || c.Deprecated != ""
	})
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func command(cmd *cobra.Command, build Build) (*Page, error) {
	cmd.InitDefaultHelpFlag()
	p := New(Title{
		Name: pageName(cmd), Section: 1, Summary: cmd.Short,
		Date: build.Date, Source: strings.TrimSpace("noused " + build.Version),
	})
	p.synopsis(cmd)
	p.Section("DESCRIPTION")
	description := cmd.Long
	if description == "" {
		description = cmd.Short + "."
	}
	p.Text(description)
	p.commands(cmd)
	problem := p.flags("OPTIONS", cmd, cmd.NonInheritedFlags())
	problem = errors.Join(problem, p.flags("OPTIONS OF ALL COMMANDS", cmd, cmd.InheritedFlags()))
	if cmd.Example != "" {
		p.Section("EXAMPLES")
		p.Code(outdent(strings.Trim(cmd.Example, "\n")))
	}
	p.seeAlso(cmd, build)
	if strings.TrimSpace(cmd.Short) == "" {
		problem = errors.Join(problem, fmt.Errorf("%s: the command has no description", cmd.CommandPath()))
	}
	return p, problem
}

func (p *Page) synopsis(cmd *cobra.Command) {
	if !cmd.Runnable() && !cmd.HasAvailableSubCommands() {
		return // it is a topic
	}
	p.Section("SYNOPSIS")
	if cmd.Runnable() {
		words := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
		p.Line(Bold(cmd.CommandPath()) + Escape(strings.ReplaceAll(words, "[flags]", "[OPTION…]")))
	}
	if cmd.HasAvailableSubCommands() {
		p.Macro(".br")
		p.Line(Bold(cmd.CommandPath()) + Escape(" COMMAND [ARGUMENT…] [OPTION…]"))
	}
}

// commands lists those below, by their groups.
func (p *Page) commands(cmd *cobra.Command) {
	subs := shown(cmd)
	if len(subs) == 0 {
		return
	}
	p.Section("COMMANDS")
	for _, group := range cmd.Groups() {
		p.Subsection(strings.TrimSuffix(group.Title, ":"))
		p.group(subs, group.ID)
	}
	if cmd.Groups() != nil {
		p.Subsection("Others")
	}
	p.group(subs, "")
}

func (p *Page) group(subs []*cobra.Command, id string) {
	for _, sub := range subs {
		if sub.GroupID == id {
			p.Item(Bold(pageName(sub))+"(1)", Escape(sub.Short))
		}
	}
}

func (p *Page) flags(title string, cmd *cobra.Command, flags *pflag.FlagSet) (problem error) {
	if flags.HasAvailableFlags() {
		p.Section(title)
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(flag)
		if strings.TrimSpace(usage) == "" {
			problem = errors.Join(problem, fmt.Errorf("%s: --%s has no description", cmd.CommandPath(), flag.Name))
		}
		p.Item(flagTag(flag, value), Escape(strings.Join(strings.Fields(usage), " ")+otherwise(flag)))
	})
	return problem
}

func flagTag(flag *pflag.Flag, value string) string {
	tag := Bold("--" + flag.Name)
	if flag.Shorthand != "" {
		tag = Bold("-"+flag.Shorthand) + ", " + tag
	}
	switch {
	case value == "":
		return tag
	case flag.NoOptDefVal != "" && flag.Value.Type() != "bool":
		return tag + "[=" + Italic(value) + "]"
	default:
		return tag + " " + Italic(value)
	}
}

// otherwise is what a flag is by default, where that is something.
func otherwise(flag *pflag.Flag) string {
	if slices.Contains([]string{"", "false", "0", "0s", "[]", "<nil>"}, flag.DefValue) {
		return ""
	}
	return " (default " + flag.DefValue + ")"
}

func (p *Page) seeAlso(cmd *cobra.Command, build Build) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, pageName(cmd.Parent())+"(1)")
		if root := cmd.Root(); root != cmd.Parent() {
			pages = append(pages, pageName(root)+"(1)")
		}
	} else {
		pages = build.SeeAlso
	}
	if len(pages) > 0 {
		p.SeeAlso(pages...)
	}
}
