package manpage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"noused/internal/manpage"
	"noused/internal/manpage/manpagetest"
)

// greeter is a program with a group, a command below a command and one that is
// hidden.
func greeter() *cobra.Command {
	root := &cobra.Command{
		Use: "greeter", Short: "Greet people", Long: "greeter greets.",
		Run: func(*cobra.Command, []string) {},
	}
	root.PersistentFlags().Bool("loud", false, "shout")
	root.AddGroup(&cobra.Group{ID: "say", Title: "Saying:"})
	say := &cobra.Command{Use: "say", Short: "Say things", GroupID: "say"}
	hello := &cobra.Command{
		Use: "hello NAME", Short: "Say hello", Run: func(*cobra.Command, []string) {},
		Long: "Say hello.\n\n    .TH is  no request here\n    'neither' is \\fBthis\n\nIt's `right` ~ ^ \"so\" - " +
			"and\n.PP is text, too.",
		Example: "  greeter say hello --to '~/me'",
	}
	hello.Flags().StringP("to", "t", "you", "the `name`\nto greet")
	hello.Flags().String("how", "", "a `way`")
	hello.Flags().Lookup("how").NoOptDefVal = "warmly"
	secret := &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}}
	say.AddCommand(hello, secret)
	root.AddCommand(say)
	return root
}

// write makes the pages of a program in a folder, and returns their names.
func write(t *testing.T, root *cobra.Command) (dir string, names []string, err error) {
	t.Helper()
	dir = t.TempDir()
	root.AddCommand(manpage.Command(manpage.Build{Date: "2026-11-22", Version: "v0.1.0", SeeAlso: []string{"other(5)"}},
		nil))
	root.CompletionOptions.DisableDefaultCmd = true
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetArgs([]string{"man-pages", dir})
	err = root.Execute()
	files, _ := os.ReadDir(dir)
	for _, file := range files {
		names = append(names, file.Name())
	}
	return dir, names, err
}

func TestEachCommandHasAPage(t *testing.T) {
	_, names, err := write(t, greeter())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"greeter-say-hello.1", "greeter-say.1", "greeter.1"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What stands in a command's help is what man shows, whatever roff makes of it.
func TestAPageAsManShowsIt(t *testing.T) {
	dir, _, err := write(t, greeter())
	if err != nil {
		t.Fatal(err)
	}
	got := manpagetest.Show(t, filepath.Join(dir, "greeter-say-hello.1"))
	_, got, _ = strings.Cut(got, "\n")                                     // the heading
	got = strings.TrimSpace(got[:strings.LastIndex(got, "\nnoused v0.1")]) // the foot
	want := `NAME
       greeter-say-hello - Say hello

SYNOPSIS
       greeter say hello NAME [OPTION…]

DESCRIPTION
       Say hello.

           .TH is  no request here
           'neither' is \fBthis

       It's ` + "`right` ~ ^ \"so\" - and .PP is text, too." + `

OPTIONS
       -h, --help
              help for hello

       --how[=way]
              a way

       -t, --to name
              the name to greet (default you)

OPTIONS OF ALL COMMANDS
       --loud shout

EXAMPLES
           greeter say hello --to '~/me'

SEE ALSO
       greeter-say(1), greeter(1)`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Below a page stand version, date and name, each by itself.
func TestTheFootOfAPage(t *testing.T) {
	for version, want := range map[string]string{
		"v0.3.0":                             "noused v0.3.0",
		"v0.0.0-20261122181618-a304a3732a0d": "noused a304a3732a0d",
		"v0.3.1-rc.1.0.20261122181618-a304a3732a0d+dirty": "noused a304a3732a0d+dirty",
		"": "noused",
	} {
		path := filepath.Join(t.TempDir(), "nous-prompt.1")
		p := manpage.New(manpage.Title{
			Name: "nous-prompt", Section: 1, Summary: "say", Date: "2026-11-22",
			Source: "noused " + version,
		})
		if err := os.WriteFile(path, p.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(manpagetest.Show(t, path)), "\n")
		if got := strings.Join(strings.Fields(lines[len(lines)-1]), " "); got != want+" 2026-11-22 NOUS-PROMPT(1)" {
			t.Errorf("%q: got %q", version, got)
		}
	}
}

func TestWhatIsNotDescribedHasNoPage(t *testing.T) {
	for want, spoil := range map[string]func(root, hello *cobra.Command){
		"greeter say hello: the command has no description": func(_, hello *cobra.Command) { hello.Short = " " },
		"greeter: --loud has no description": func(root, _ *cobra.Command) {
			root.PersistentFlags().Lookup("loud").Usage = ""
		},
		"greeter say hello: --to has no description": func(_, hello *cobra.Command) {
			hello.Flags().Lookup("to").Usage = ""
		},
	} {
		root := greeter()
		hello, _, _ := root.Find([]string{"say", "hello"})
		spoil(root, hello)
		_, names, err := write(t, root)
		if err == nil || !strings.Contains(err.Error(), want) || names != nil {
			t.Errorf("got %v and pages %q, want %q and none", err, names, want)
		}
	}
}
