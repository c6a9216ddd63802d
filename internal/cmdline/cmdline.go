// Package cmdline says what is wrong with a command line, in the same plain words
// for every program of the project: what was given, what is wanted, an example. It also turns
// Ctrl-C into contexts.
//
// Concurrency: the functions belong to the goroutine that runs a command.
//
// It refuses to know any command.
package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"noused/internal/format"
)

// Error is a wrong command line: what is wrong with it, and what is wanted.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

// Errorf makes one.
func Errorf(format string, args ...any) error {
	return &Error{fmt.Sprintf(format, args...)}
}

// Hint is what is told after an [Error] of a command, in two lines.
func Hint(cmd *cobra.Command) string {
	return fmt.Sprintf("for example: %s\n%s --help says more", Example(cmd), cmd.CommandPath())
}

// Example is a right command line.
func Example(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return cmd.CommandPath()
}

// Wants checks the number of arguments. What says in words what they are; any
// number is fine where most is negative.
func Wants(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Errorf("%s wants %s", Name(cmd), what)
		case most == 0 && len(args) > 0 && cmd.HasSubCommands():
			return Unknown(cmd, args[0])
		case most == 0 && len(args) > 0:
			return Errorf("%s takes no arguments, and got %q", Name(cmd), args[0])
		case most > 0 && len(args) > most:
			return Errorf("%s takes %s, and got %q besides: it wants %s", Name(cmd), format.Count(most, "argument"), args[most],
				what)
		}
		return nil
	}
}

// Version gives a program the flag --version, which prints a line and does nothing
// else. Cobra's own flag takes a template, and in a program that executes templates
// the linker cannot leave out any exported method: 2 MB more are loaded.
func Version(root *cobra.Command, line func() string) {
	wanted := root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	wants, run := root.Args, root.RunE
	root.Args = func(cmd *cobra.Command, args []string) error {
		if *wanted {
			return nil
		}
		return wants(cmd, args)
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*wanted {
			return run(cmd, args)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), line())
		return err
	}
}

// Name is a command as it is called after the program.
func Name(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// Unknown is the error for a name that no command below parent has.
func Unknown(parent *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q", name)
	if parent.HasParent() {
		text = fmt.Sprintf("%s has no command %q", Name(parent), name)
	}
	return Errorf("%s%s", text, DidYouMean(name, commandNames(parent)))
}

// commandNames are the commands below parent that its help lists, and help itself, which cobra never suggests.
func commandNames(parent *cobra.Command) []string {
	names := []string{}
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	return names
}

// DidYouMean is what is added to an error about a name that none of some names is: ", did you
// mean x?", or nothing where none is near.
func DidYouMean(name string, names []string) string {
	parent := &cobra.Command{}
	for _, n := range names {
		parent.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	for distance := 1; distance <= 2; distance++ { // the nearest
		parent.SuggestionsMinimumDistance = distance
		if near := parent.SuggestionsFor(name); len(near) > 0 {
			return ", did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	return ""
}

// FlagError puts what the flags' parser finds into words of our own.
func FlagError(cmd *cobra.Command, err error) error {
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
		return Errorf("%s has no flag %s; it has %s", Name(cmd), flag, flagsOf(cmd))
	case errors.As(err, &missing):
		return Errorf("--%s wants a value: %s", missing.GetFlag().Name, valueOf(missing.GetFlag()))
	case errors.As(err, &invalid) && errors.Is(err, strconv.ErrRange):
		return Errorf("--%s %s: the number is out of range", invalid.GetFlag().Name, invalid.GetValue())
	case errors.As(err, &invalid):
		return Errorf("--%s %s: want %s", invalid.GetFlag().Name, invalid.GetValue(), valueOf(invalid.GetFlag()))
	case errors.As(err, &syntax):
		return Errorf("%s is no flag: want --NAME or --NAME=VALUE", syntax.GetSpecifiedFlag())
	default:
		return Errorf("%v", err)
	}
}

// valueOf says what a flag's value is.
func valueOf(flag *pflag.Flag) string {
	if own, ok := flag.Value.(interface{ Values() string }); ok {
		return own.Values()
	}
	name, _ := pflag.UnquoteUsage(flag)
	switch flag.Value.Type() {
	case "bool":
		return "true or false"
	case "int", "int64":
		return "a whole number"
	case "duration":
		return "a time like 90s or 10m"
	case "float64":
		return "a number"
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

// CheckEncoding refuses what could not be said on the wire. A path need not be
// UTF-8.
func CheckEncoding(cmd *cobra.Command, args []string) (err error) {
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return Errorf("the argument %q is not valid UTF-8", arg)
		}
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if value := flag.Value.String(); flag.Name != "socket" && !utf8.ValidString(value) {
			err = Errorf("--%s %q: not valid UTF-8", flag.Name, value)
		}
	})
	return err
}

// Help is the help command, which knows what is no command.
func Help(examples string) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: examples,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range about.Commands() {
					words = append(words, c.Name()+"\t"+c.Short)
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return Unknown(about, append(rest, args...)[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// Completion adds cobra's own command for shells, with our words for what is
// wrong.
func Completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args = Wants(0, 0, "")
		cmd.Example = "  " + root.Name() + " completion bash"
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = Wants(0, 0, "")
		}
	}
}
