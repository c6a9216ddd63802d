package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"noused/internal/cmdline"
	"noused/internal/mcpfile"
	"noused/internal/oauth"
	"noused/internal/tool"
)

// loginTime is how long a person may take.
const loginTime = 15 * time.Minute

// mcpCommand has what people do at MCP servers themselves; nous mcp has the rest of
// the work about servers, and hands these on.
func mcpCommand(getenv func(string) string) *cobra.Command {
	parent := &cobra.Command{
		Use:   "mcp",
		Short: "Log in at an MCP server, or out: nous mcp has the rest",
		Args:  cmdline.Wants(0, 0, ""),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(loginCommand(getenv), logoutCommand(getenv))
	return parent
}

func loginCommand(getenv func(string) string) *cobra.Command {
	var id, secret string
	cmd := &cobra.Command{
		Use:   "login NAME",
		Short: "Log in at an MCP server in a browser",
		Long: `login has you say yes, in a browser, to what an MCP server wants to be used
with (OAuth). The daemon then sends the token that comes of it, and renews it by
itself. A daemon that runs notices it at its next request.

The server is one of your mcp.json, of the .mcp.json of this folder if you trust
it, or of a tool descriptor. Its address has to be https, or on this machine.

Without a browser on this machine, open the page in one elsewhere. It ends at an
address that cannot be opened there: paste that address here.

Where the server's authorization server registers no clients by itself, register
one there, with http://127.0.0.1/callback as its redirect address, and name it
with --client-id. A secret of it is read from a variable.`,
		Example: "  nous mcp login docs\n  nous mcp login docs --client-id abc --client-secret-env DOCS_SECRET",
		Args:    cmdline.Wants(1, 1, "NAME, that of a server"),
		RunE: func(cmd *cobra.Command, names []string) error {
			client := oauth.Client{ID: id}
			if secret != "" {
				if client.Secret = getenv(secret); client.Secret == "" || id == "" {
					return cmdline.Errorf("--client-secret-env %s: want a variable that is set, and --client-id with it", secret)
				}
			}
			return logIn(cmd, getenv, names[0], client)
		},
	}
	cmd.Flags().StringVar(&id, "client-id", "",
		"the `id` of a client that the authorization server knows (default: one is registered)")
	cmd.Flags().StringVar(&secret, "client-secret-env", "", "the `variable` that has its secret")
	registerFlags(cmd.Flags())
	return cmd
}

func logoutCommand(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout NAME",
		Short: "Take a login at an MCP server back",
		Long: `logout has the authorization server take the token back, where it can, and
forgets it.`,
		Example: "  nous mcp logout docs",
		Args:    cmdline.Wants(1, 1, "NAME, that of a server"),
		RunE:    func(cmd *cobra.Command, names []string) error { return logOut(cmd, getenv, names[0]) },
	}
	registerFlags(cmd.Flags())
	return cmd
}

func logIn(cmd *cobra.Command, getenv func(string) string, name string, client oauth.Client) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("%v have passed", loginTime))
	defer cancel()
	cfg, server, err := serverNamed(cmd, getenv, name)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	g, err := loginsOf(cfg).Login(ctx, oauth.Login{
		Server: server, Client: client, Pasted: linesOf(cmd.InOrStdin()),
		Show: func(page string) {
			fmt.Fprintf(out, "Open this page to log in at %s:\n\n  %s\n\nIn a browser elsewhere? Paste the address that it "+
				"ends at here. Ctrl-C gives up.\n", printable(name), printable(page))
			browse(getenv, page)
		},
	})
	if err != nil {
		return fmt.Errorf("log in at %s: %w", name, err)
	}
	fmt.Fprintf(out, "Logged in at %s, by %s.", printable(name), printable(g.Issuer))
	if g.Scope != "" {
		fmt.Fprintf(out, " Granted: %s.", printable(g.Scope))
	}
	if !g.Refreshes && !g.Expires.IsZero() {
		fmt.Fprintf(out, " It ends at %s: log in again then.", g.Expires.Local().Format(time.DateTime))
	}
	fmt.Fprintln(out)
	return nil
}

func logOut(cmd *cobra.Command, getenv func(string) string, name string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	cfg, server, err := serverNamed(cmd, getenv, name)
	if err != nil {
		return err
	}
	had, revoked, err := loginsOf(cfg).Logout(ctx, server)
	out := cmd.OutOrStdout()
	switch {
	case !had && err != nil:
		return fmt.Errorf("log out of %s: %w", name, err)
	case !had:
		fmt.Fprintf(out, "There was no login at %s.\n", printable(name))
	case revoked:
		fmt.Fprintf(out, "Logged out of %s; the token was taken back.\n", printable(name))
	default:
		fmt.Fprintf(out, "Logged out of %s: the token is forgotten here, and was not taken back: %s\n", printable(name),
			printable(err.Error()))
	}
	return nil
}

// linesOf are the lines that somebody types or pastes. The goroutine ends with the
// input, or the process.
func linesOf(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// browse opens a page where there is a browser to open it.
func browse(getenv func(string) string, page string) {
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return
	}
	// What lies in the current folder may be a stranger's.
	browser := exec.Command("xdg-open", page)
	browser.Dir = "/"
	if browser.Start() == nil { // else the person opens it
		go func() { _ = browser.Wait() }()
	}
}

// serverNamed returns the configuration, and the address of the MCP server of that
// name.
func serverNamed(cmd *cobra.Command, getenv func(string) string, name string) (Config, string, error) {
	cfg, err := resolveConfig(cmd.Flags(), getenv)
	if err != nil {
		return cfg, "", err
	}
	address, found, err := addressOf(cfg, name)
	switch {
	case err != nil:
		return cfg, "", err
	case !found:
		return cfg, "", fmt.Errorf("there is no MCP server %s: nous mcp list shows those there are", name)
	case address == "":
		return cfg, "",
			fmt.Errorf("%s is a program on this machine, at which nobody logs in: what it needs goes into its env", name)
	}
	return cfg, address, nil
}

// addressOf looks for a server where the daemon does: in the folder's file, the
// user's own and the tool descriptors.
func addressOf(cfg Config, name string) (address string, found bool, err error) {
	s, found, err := fileServer(cfg, name)
	if err != nil {
		return "", false, err
	}
	if found {
		s, err = s.Expand(os.LookupEnv)
		return s.URL, true, err
	}
	for _, dir := range cfg.ToolsDirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, file := range files {
			d, err := tool.LoadDescriptor(file, cfg.Workdir, os.Environ())
			if err == nil && d.Name == name && d.Protocol == tool.MCP {
				return d.Transport.URL, true, nil
			}
		}
	}
	return "", false, nil
}

func fileServer(cfg Config, name string) (s mcpfile.Server, found bool, err error) {
	folder, err := os.Getwd()
	if err != nil {
		return s, false, err
	}
	text, err := mcpfile.ReadProject(folder)
	if err == nil && text != nil {
		s, found, err = projectServer(cfg, folder, name, text)
	}
	if found || err != nil {
		return s, found, err
	}
	own, err := mcpfile.Read(filepath.Join(cfg.ConfigDir, mcpfile.Name))
	if err != nil {
		return s, false, err
	}
	s, found = own.Server(name)
	for _, wrong := range own.Errors {
		if !found && wrong.Server == name {
			err = errors.Join(err, wrong)
		}
	}
	return s, found, err
}

// projectServer looks in a folder's file, which a stranger may have written.
func projectServer(cfg Config, folder, name string, text []byte) (s mcpfile.Server, found bool, err error) {
	f, err := mcpfile.Parse(mcpfile.Project(folder), text)
	if err != nil {
		return s, false, err
	}
	if s, found = f.Server(name); !found {
		return s, false, nil
	}
	trusted, err := mcpfile.Trusted(cfg.ConfigDir, folder, mcpfile.Hash(text))
	if err == nil && !trusted {
		err = fmt.Errorf("%s of this folder is not trusted: say nous mcp trust first", name)
	}
	return s, true, err
}
