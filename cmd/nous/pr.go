package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
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
	if err := worktree.Push(working, l.Dir, l.Branch, to); err != nil {
		return err
	}
	a.Notef("pushed %s to %s", l.Branch, plain.OneLine(to.URL, 300))
	title, body, _ := strings.Cut(r.Message, "\n")
	url, there, err := hub.open(working, l.Branch, l.Into, title, strings.TrimSpace(body))
	if err != nil {
		return err
	}
	a.Println(url)
	if there {
		a.Notef("updated the %s that was open", hub.request)
	}
	return nil
}

// forge is a server of repositories, and the program for it.
type forge struct {
	program, request string
	path             string // of the program
	repository       string
}

// forgeOf finds the program for a remote: by the name of the host, or by asking which of the
// two is logged in there.
func forgeOf(ctx context.Context, to worktree.Remote) (forge, error) {
	github := forge{program: "gh", request: "pull request", repository: to.Host + "/" + to.Path}
	gitlab := forge{program: "glab", request: "merge request", repository: "https://" + to.Host + "/" + to.Path}
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
	if f.path, err = exec.LookPath(f.program); err != nil {
		site := map[string]string{"gh": "https://cli.github.com", "glab": "https://gitlab.com/gitlab-org/cli"}[f.program]
		return f, fmt.Errorf("a %s is opened with %s, which is not installed (%s); nothing was committed or pushed",
			f.request, f.program, site)
	}
	return f, nil
}

// open returns the address of the branch's request; there tells that it was open already.
func (f forge) open(ctx context.Context, branch, into, title, body string) (url string, there bool, err error) {
	list := []string{
		"pr", "list", "--repo", f.repository, "--head", branch, "--state", "open", "--limit", "1", "--json", "url",
	}
	create := []string{
		"pr", "create", "--repo", f.repository, "--head", branch, "--base", into, "--title", title, "--body", body,
	}
	if f.program == "glab" {
		list = []string{
			"mr", "list", "--repo", f.repository, "--source-branch", branch, "--per-page", "1", "--output", "json",
		}
		create = []string{
			"mr", "create", "--repo", f.repository, "--source-branch", branch, "--target-branch", into, "--title", title,
			"--description", body, "--yes",
		}
	}
	out, err := f.run(ctx, list...)
	if err != nil {
		return "", false, err
	}
	var known []struct {
		URL    string `json:"url"`
		WebURL string `json:"web_url"`
	}
	if text := strings.TrimSpace(out); strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &known); err != nil {
			return "", false, fmt.Errorf("%s %s list: %w", f.program, list[0], err)
		}
	}
	if len(known) > 0 {
		return plain.OneLine(cmp.Or(known[0].URL, known[0].WebURL), maxAddress), true, nil
	}
	if out, err = f.run(ctx, create...); err != nil {
		return "", false, err
	}
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "https://") || strings.HasPrefix(word, "http://") {
			url = word
		}
	}
	return plain.OneLine(cmp.Or(url, strings.TrimSpace(out)), maxAddress), false, nil
}

const (
	maxAddress  = 2000     // characters
	maxForge    = 64 << 10 // bytes of what the program says
	forgeWithin = 2 * time.Minute
)

// run runs the program in no repository, whose configuration it would use otherwise.
func (f forge) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, forgeWithin, fmt.Errorf("it was not done within %v", forgeWithin))
	defer cancel()
	cmd := exec.CommandContext(ctx, f.path, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "GH_PROMPT_DISABLED=1", "NO_PROMPT=1", "NO_COLOR=1", "GIT_DIR=/nonexistent")
	out, said := &head{most: maxForge}, &head{most: maxForge}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		what := f.program + " " + strings.Join(args[:2], " ")
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		return "", fmt.Errorf("%s: %s", what, cmp.Or(plain.OneLine(strings.TrimSpace(said.String()), 500), err.Error()))
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
