package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a wrong command line: what is wrong with it, and what is wanted.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// exampleOf is a right command line.
func exampleOf(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return cmd.CommandPath()
}

// wants checks the number of arguments. What says in words what they are; any
// number is fine where most is negative.
func wants(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s wants %s", nameOf(cmd), what)
		case most == 0 && len(args) > 0 && cmd.HasSubCommands():
			return unknownCommand(cmd, args[0])
		case most == 0 && len(args) > 0:
			return usagef("%s takes no arguments, and got %q", nameOf(cmd), args[0])
		case most > 0 && len(args) > most:
			return usagef("%s takes %s, and got %q besides: it wants %s", nameOf(cmd), plural(most, "argument"), args[most], what)
		}
		return nil
	}
}

// nameOf is a command as it is called after nous.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

func unknownCommand(parent *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q", name)
	if parent.HasParent() {
		text = fmt.Sprintf("%s has no command %q", nameOf(parent), name)
	}
	parent.SuggestionsMinimumDistance = 2
	if near := parent.SuggestionsFor(name); len(near) > 0 {
		text += ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s", text)
}

// flagError puts what the flags' parser finds into words of our own.
func flagError(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		syntax  *pflag.InvalidSyntaxError
	)
	switch {
	case errors.As(err, &unknown):
		flag := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			flag = "-" + unknown.GetSpecifiedName()
		}
		return usagef("%s has no flag %s; it has %s", nameOf(cmd), flag, flagsOf(cmd))
	case errors.As(err, &missing):
		return usagef("--%s wants a value: %s", missing.GetFlag().Name, valueOf(missing.GetFlag()))
	case errors.As(err, &invalid) && errors.Is(err, strconv.ErrRange):
		return usagef("--%s %s: the number is out of range", invalid.GetFlag().Name, invalid.GetValue())
	case errors.As(err, &invalid):
		return usagef("--%s %s: want %s", invalid.GetFlag().Name, invalid.GetValue(), valueOf(invalid.GetFlag()))
	case errors.As(err, &syntax):
		return usagef("%s is no flag: want --NAME or --NAME=VALUE", syntax.GetSpecifiedFlag())
	default:
		return usagef("%v", err)
	}
}

// valueOf says what a flag's value is.
func valueOf(flag *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(flag)
	switch flag.Value.Type() {
	case "bool":
		return "true or false"
	case "int", "int64":
		return "a whole number"
	case "uint64":
		return "a whole number that is not negative"
	case "stringSlice":
		return name + ", separated by commas"
	default:
		return strings.NewReplacer("|", " or ").Replace(name)
	}
}

func flagsOf(cmd *cobra.Command) string {
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, "--"+flag.Name)
		}
	})
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// checkEncoding refuses what could not be said on the wire. A path need not be
// UTF-8.
func checkEncoding(cmd *cobra.Command, args []string) (err error) {
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return usagef("the argument %q is not valid UTF-8", arg)
		}
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if value := flag.Value.String(); flag.Name != "socket" && !utf8.ValidString(value) {
			err = usagef("--%s %q: not valid UTF-8", flag.Name, value)
		}
	})
	return err
}

// helpCommand is nous help, which knows what is no command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Tell about a command",
		Example: `  nous help prompt
  nous help exit-status`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range about.Commands() {
					words = append(words, c.Name()+"\t"+c.Short)
				}
			}
			return completions(words, nil)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(about, append(rest, args...)[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// completionCommand is cobra's own, with our words for what is wrong.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args = wants(0, 0, "")
		cmd.Example = "  nous completion bash"
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = wants(0, 0, "")
		}
	}
}
