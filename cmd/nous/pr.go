package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/trust"
	"noused/internal/worktree"
)

func (a *app) prCommand() *cobra.Command {
	var into, message string
	cmd := &cobra.Command{
		Use:   "pr",
		Short: "Open a pull or merge request with what a session did in its worktree",
		Long: `Commit what is not committed in the session's git worktree, as nous land does, push its
branch, and open a pull request with gh or a merge request with glab: those programs have to
be installed and logged in. Again, it pushes what is new to the same one. It prints the
address of the request.

The remote is that of the branch which the worktree was made from, else origin. git pushes
with your own login, and asks for none: ssh needs a key without a passphrase or an agent.`,
		Example: `  nous pr
  nous pr --into release -m 'Fix the cart'`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if done, err := a.doneThere(cmd, args); done {
				return err
			}
			return a.openRequest(cmd.Context(), into, message)
		},
	}
	cmd.Flags().StringVar(&into, "into", "", "ask for a merge into this `branch` instead")
	cmd.Flags().StringVarP(&message, "message", "m", "", "the commit's and the request's `text` instead of the title")
	return cmd
}

func (a *app) openRequest(ctx context.Context, into, message string) error {
	s, err := a.sessionInWorktree(ctx, false)
	if err != nil {
		return err
	}
	r := worktree.LandRequest{Dir: s.Workdir, Home: worktree.Home(os.Getenv), Into: into, Message: message}
	working, stop := untilInterrupted(ctx)
	defer stop()
	l, to, err := worktree.PlanPush(working, r)
	if errors.Is(err, worktree.ErrNothingToLand) {
		return fmt.Errorf("there is nothing to open a request with: %s has all that %s has", l.Into, l.Branch)
	}
	if err != nil {
		return err
	}
	hub, err := forgeOf(working, to)
	if err != nil {
		return err
	}
	stop()
	if r.Message, err = a.commitMessage(message, cmp.Or(s.Title, l.Subject)); err != nil {
		return err
	}
	working, stop = untilInterrupted(ctx)
	defer stop()
	if l, err = worktree.Commit(working, r); err != nil {
		return err
	}
	if err := worktree.Push(working, r, l.Branch, to); err != nil {
		return err
	}
	a.Notef("pushed %s to %s", l.Branch, plain.OneLine(to.URL, 300))
	title, body, _ := strings.Cut(r.Message, "\n")
	address, there, err := hub.open(working, l.Branch, l.Into, title, strings.TrimSpace(body))
	if err != nil {
		return err
	}
	a.Println(address)
	if there {
		a.Notef("updated the %s that was open", hub.request)
	}
	return nil
}

// forge is a server of repositories, and the program for it.
type forge struct {
	program, request string
	path             string // of the program
	to               worktree.Remote
}

// forgeOf finds the program for a remote: by the name of the host, or by asking which of the
// two is logged in there.
func forgeOf(ctx context.Context, to worktree.Remote) (forge, error) {
	github := forge{program: "gh", request: "pull request", to: to}
	gitlab := forge{program: "glab", request: "merge request", to: to}
	name := strings.ToLower(to.Host)
	switch {
	case strings.Contains(name, "github"):
		return github.find()
	case strings.Contains(name, "gitlab"):
		return gitlab.find()
	}
	for _, f := range []forge{github, gitlab} {
		if found, err := f.find(); err == nil {
			if _, err := found.run(ctx, "auth", "status", "--hostname", to.Host); err == nil {
				return found, nil
			}
		}
	}
	return forge{}, fmt.Errorf("neither gh nor glab is logged in at %s: gh auth login --hostname %[1]s is for GitHub, "+
		"glab auth login --hostname %[1]s for GitLab", to.Host)
}

func (f forge) find() (forge, error) {
	var err error
	f.path, err = trust.LookPath(f.program, os.Getenv("PATH"))
	if foreign := (*trust.ProgramError)(nil); errors.As(err, &foreign) {
		return f, fmt.Errorf("a %s is opened with %s, and %s is in %s, where a session could have made it; "+
			"nothing was committed or pushed", f.request, f.program, foreign.Path, foreign.Folder)
	}
	if err != nil {
		site := map[string]string{"gh": "https://cli.github.com", "glab": "https://gitlab.com/gitlab-org/cli"}[f.program]
		return f, fmt.Errorf("a %s is opened with %s, which is not installed (%s); nothing was committed or pushed",
			f.request, f.program, site)
	}
	return f, nil
}

// open returns the address of the branch's request; there tells that it was open already.
func (f forge) open(ctx context.Context, branch, into, title, body string) (address string, there bool, err error) {
	repository := f.to.Host + "/" + f.to.Path
	list := []string{
		"pr", "list", "--repo", repository, "--head", branch, "--state", "open", "--limit", "20", "--json",
		"url,isCrossRepository",
	}
	create := []string{
		"pr", "create", "--repo", repository, "--head", branch, "--base", into, "--title", title, "--body", body,
	}
	if f.program == "glab" { // whose mr create needs a repository whose remotes it reads
		requests := "projects/" + url.PathEscape(f.to.Path) + "/merge_requests"
		list = []string{
			"api", requests + "?source_branch=" + url.QueryEscape(branch) + "&state=opened&per_page=20",
			"--hostname", f.to.Host,
		}
		create = []string{
			"api", requests, "--hostname", f.to.Host, "--method", "POST", "--raw-field", "source_branch=" + branch,
			"--raw-field", "target_branch=" + into, "--raw-field", "title=" + title, "--raw-field", "description=" + body,
		}
	}
	out, err := f.run(ctx, list...)
	if err != nil {
		return "", false, err
	}
	var open []mergeRequest
	if err := json.Unmarshal([]byte(out), &open); err != nil {
		return "", false, fmt.Errorf("%s said what is no list of requests: %w", f.program, err)
	}
	for _, r := range open {
		if !r.Fork && r.From == r.Into { // else it is of another's branch with that name
			return plain.OneLine(cmp.Or(r.URL, r.WebURL), maxAddress), true, nil
		}
	}
	if out, err = f.run(ctx, create...); err != nil {
		return "", false, err
	}
	if f.program == "glab" {
		var made mergeRequest
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			return "", false, fmt.Errorf("glab said what is no merge request: %w", err)
		}
		out = made.WebURL
	}
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "https://") || strings.HasPrefix(word, "http://") {
			address = word
		}
	}
	if address == "" {
		return "", false, fmt.Errorf("%s did not say the address of the %s", f.program, f.request)
	}
	return plain.OneLine(address, maxAddress), false, nil
}

// mergeRequest is one as the programs tell it.
type mergeRequest struct {
	URL    string `json:"url"` // of gh
	Fork   bool   `json:"isCrossRepository"`
	WebURL string `json:"web_url"` // of glab
	From   int64  `json:"source_project_id"`
	Into   int64  `json:"target_project_id"`
}

const (
	maxAddress  = 2000    // characters
	maxForge    = 4 << 20 // bytes of what the program says
	forgeWithin = 2 * time.Minute
)

// run runs the program in no repository, whose configuration it would use otherwise.
func (f forge) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, forgeWithin, fmt.Errorf("it was not done within %v", forgeWithin))
	defer cancel()
	cmd := exec.CommandContext(ctx, f.path, args...)
	cmd.Dir = "/"
	cmd.Env = append(trust.Environ(os.Environ()),
		"GH_PROMPT_DISABLED=1", "NO_PROMPT=1", "NO_COLOR=1", "GIT_DIR=/nonexistent")
	out, said := &head{most: maxForge}, &head{most: maxForge}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		what := f.program + " " + args[0]
		if f.program == "gh" {
			what += " " + args[1]
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		return "", fmt.Errorf("%s: %s", what, cmp.Or(plain.OneLine(strings.TrimPrefix(strings.TrimSpace(said.String()),
			f.program+": "), 500), err.Error()))
	}
	return out.String(), nil
}

// head keeps the beginning of what is written to it.
type head struct {
	bytes.Buffer
	most int
}

func (h *head) Write(p []byte) (int, error) {
	_, _ = io.Copy(&h.Buffer, bytes.NewReader(p[:min(len(p), h.most-h.Len())]))
	return len(p), nil
}
