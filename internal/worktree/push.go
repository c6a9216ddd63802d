package worktree

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Remote is where a branch is pushed to.
type Remote struct {
	Name string
	URL  string
	Host string // with the port where one is said and it is that of the web server
	Path string // of the repository there, without .git
}

// ErrNoRemote says that the repository has no remote to push to.
var ErrNoRemote = errors.New("the repository has no remote")

// PlanPush says what a worktree's branch has that Into has not, committed or not, and where
// Push would push it. It fails with ErrNothingToLand where that is nothing, and changes
// nothing, as Plan does.
func PlanPush(ctx context.Context, r LandRequest) (Landing, Remote, error) {
	l, err := open(ctx, r)
	if err != nil {
		return Landing{}, Remote{}, err
	}
	defer l.close()
	if err := l.planCommit(ctx); err != nil {
		return l.Landing, Remote{}, err
	}
	to, err := l.remote(ctx)
	return l.Landing, to, err
}

func (l *landing) planCommit(ctx context.Context) error {
	for _, find := range []func(context.Context) error{l.findBranch, l.findTarget, l.snapshot, l.compare} {
		if err := find(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Commit commits what is not committed in a worktree, as Land does, and nothing more; As is
// "" where there is nothing.
func Commit(ctx context.Context, r LandRequest) (Landing, error) {
	l, err := open(ctx, r)
	if err != nil {
		return Landing{}, err
	}
	defer l.close()
	if err := l.planCommit(ctx); err != nil || !l.dirty {
		return l.Landing, err
	}
	sign, err := l.tree.signs(ctx)
	if err != nil {
		return l.Landing, err
	}
	l.As, err = l.tree.commitTree(ctx, sign, l.treeID, strings.TrimSpace(r.Message)+"\n", nil, l.head)
	if err != nil {
		return l.Landing, err
	}
	j := l.journal(l.As, l.As) // a landing on itself
	j.Into, j.Old = j.Branch, l.head
	return l.Landing, l.carryOut(ctx, j)
}

// Push pushes a worktree's branch to the branch of that name at a remote, if that is where
// PlanPush has said. It blocks until that is done; nothing is asked on a terminal. No hook is run.
func Push(ctx context.Context, r LandRequest, branch string, to Remote) error {
	l, err := linkOf(r.Dir)
	if err != nil {
		return fmt.Errorf("%s %w", r.Dir, ErrNotLinked)
	}
	return withFolder(r.Home, r.Dir, func(own string) error {
		p, err := checkoutPlace(r.Dir, l.gitDir).inert(ctx, l.common, filepath.Join(own, "git"))
		if err != nil {
			return err
		}
		if keys := p.foreignKeys(pushPrograms); len(keys) > 0 {
			return fmt.Errorf("the repository's own configuration sets %.100s, which a session could have written, and git "+
				"would use it with your login: set it with git config --global, or push with git", keys[0])
		}
		at, err := p.address(ctx, to.Name)
		if err == nil && at != to.URL {
			err = fmt.Errorf("the remote %s was %s, and is %s now; nothing was pushed, try again", to.Name, to.URL, at)
		}
		if err != nil {
			return err
		}
		p.env = []string{"GIT_ALLOW_PROTOCOL=https:http:ssh"}
		ref := "refs/heads/" + branch
		_, err = p.git(ctx, "push", "--quiet", "--no-verify", "--no-signed", "--recurse-submodules=no", "--", to.Name,
			ref+":"+ref)
		return err
	})
}

// pushPrograms are settings that name a program, or have a login go elsewhere, when git pushes.
var pushPrograms = pattern(`(?s)^(core\.(sshcommand|askpass|gitproxy)|credential\..*|http\..*|ssh\..*` +
	`|remote\..*\.(receivepack|vcs|proxy|proxyauthmethod))$`)

// address is where git pushes to at a remote.
func (p place) address(ctx context.Context, remote string) (string, error) {
	out, err := p.git(ctx, "remote", "get-url", "--push", "--all", remote)
	return strings.TrimSpace(out), err
}

// remote is that of the branch which is landed on, else origin, else the only one.
func (l *landing) remote(ctx context.Context) (r Remote, err error) {
	out, err := l.tree.git(ctx, "remote")
	if err != nil {
		return r, err
	}
	names := strings.Fields(out)
	of, err := l.tree.git(ctx, "config", "--get", "branch."+l.Into+".remote")
	if err != nil && !refused(err) {
		return r, err
	}
	switch of = strings.TrimSpace(of); {
	case slices.Contains(names, of):
		r.Name = of
	case slices.Contains(names, "origin"):
		r.Name = "origin"
	case len(names) == 1:
		r.Name = names[0]
	case len(names) == 0:
		return r, ErrNoRemote
	default:
		return r, fmt.Errorf("the repository has the remotes %s, and none is that of %s: git branch --set-upstream-to says "+
			"which", strings.Join(names, ", "), l.Into)
	}
	if r.URL, err = l.tree.address(ctx, r.Name); err != nil {
		return r, err
	}
	if strings.Contains(r.URL, "\n") {
		return r, fmt.Errorf("the remote %s is several: %s", r.Name, strings.Join(strings.Fields(r.URL), ", "))
	}
	if r.Host, r.Path = hostOf(r.URL); r.Host == "" {
		return r, fmt.Errorf("the remote %s is %.200q: a pull request needs one at a server, by https or ssh", r.Name, r.URL)
	}
	return r, nil
}

// hostOf takes the address of a repository apart: https://host/path, ssh://me@host/path or
// me@host:path; the host is "" for any other.
func hostOf(address string) (host, path string) {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		switch u.Scheme {
		case "https", "http":
			host = u.Host
		case "ssh":
			host = u.Hostname()
		}
		path = u.Path
	} else if at, rest, ok := strings.Cut(address, ":"); ok && !strings.Contains(at, "/") &&
		!strings.HasPrefix(rest, ":") {
		_, host, ok = strings.Cut(at, "@")
		if !ok {
			host = at
		}
		path = rest
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	if host == "" || strings.HasPrefix(host, "-") || strings.HasPrefix(path, "-") || !strings.Contains(path, "/") {
		return "", ""
	}
	return host, path
}
