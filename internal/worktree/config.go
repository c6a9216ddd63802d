package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// What a repository's own configuration may have at most.
const (
	maxConfig  = 8 << 20 // bytes
	maxEntries = 1000    // in its git folder
)

// inert returns the place with a git that runs no program which the repository's own
// configuration names, and fetches no object that is missing: any program could be named for
// that. Filters of the user's own configuration run. A merge for which a driver was named ends
// in a conflict.
//
// A session may write to the configuration at any moment, and each git reads it anew. So it is
// read once, here, and git has a copy, without what names programs, in a folder that is made
// for it. All else there is a link to what the repository has. That folder takes the place of
// the common one only: HEAD, the index and what else a checkout has of its own is where it was.
func (p place) inert(ctx context.Context, common, folder string) (place, error) {
	if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700)); err != nil {
		return p, err
	}
	text, err := p.judged(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "config"), text, 0o600)
	}
	if err == nil {
		err = linkEntries(common, folder)
	}
	p.common, p.env = folder, slices.Concat(p.env, noFetch)
	return p, err
}

// linkEntries links what is in a repository's git folder, and what may come there meanwhile.
func linkEntries(common, folder string) error {
	entries, err := os.ReadDir(common)
	if err != nil {
		return err
	}
	if len(entries) > maxEntries {
		return fmt.Errorf("%s has more than %d entries", common, maxEntries)
	}
	names := []string{"packed-refs", "shallow"}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "config", name == "config.worktree", name == "hooks", name == "commondir",
			strings.HasSuffix(name, ".lock"), slices.Contains(names, name):
		default:
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := os.Symlink(filepath.Join(common, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// judged is the repository's own configuration without what names a program, and without
// include, as what is included is in it. It keeps the keys, also of what is left out.
func (p *place) judged(ctx context.Context) ([]byte, error) {
	var text strings.Builder
	scope, size := "", 0
	err := p.each(ctx, nil, func(field string) error {
		if scope == "" {
			scope = field
			return nil
		}
		from := scope
		if scope = ""; from != "local" && from != "worktree" {
			return nil
		}
		if size += len(field); size > maxConfig {
			return fmt.Errorf("the repository's configuration is longer than %d bytes", maxConfig)
		}
		key, value, has := strings.Cut(field, "\n")
		p.own = append(p.own, key)
		switch {
		case driver().MatchString(key):
			value, has = "false", true
		case leftOut().MatchString(key):
			return nil
		}
		return writeEntry(&text, key, value, has)
	}, "config", "--list", "--includes", "--show-scope", "--null")
	return []byte(text.String()), err
}

// leftOut are the keys that name programs or other files of configuration, or have git look
// for such; driver those of merge drivers.
var (
	driver  = pattern(`(?s)^merge\..*\.driver$`)
	leftOut = pattern(`(?is)^((alias|credential|filter|hook|include|includeif|pager|trailer)\..*` +
		`|lfs\.(extension\..*|customtransfer\..*|standalonetransferagent)` +
		`|core\.(alternaterefscommand|askpass|editor|fsmonitor|gitproxy|hookspath|pager|sshcommand|worktree)` +
		`|diff\.(external|.*\.(command|textconv))|extensions\.worktreeconfig|gpg\.(.*\.)?(program|defaultkeycommand)` +
		`|log\.showsignature|remote\..*\.(receivepack|uploadpack|vcs)|sequence\.editor|uploadpack\.packobjectshook)$`)
)

// pattern is compiled where it is used: these take much at a start.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// writeEntry writes what git reads as this key and value; has tells whether there is one.
func writeEntry(to *strings.Builder, key, value string, has bool) error {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return fmt.Errorf("git config names a key %.100q", key)
	}
	to.WriteString("[" + key[:first])
	if first < last {
		to.WriteString(` "` + quote.Replace(key[first+1:last]) + `"`)
	}
	to.WriteString("]\n\t" + key[last+1:])
	if has {
		to.WriteString(` = "` + quote.Replace(value) + `"`)
	}
	to.WriteString("\n")
	return nil
}

// quote is for what is between quotes. The name of a section has no newline.
var quote = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// foreignKeys are the keys of a form that the repository's own configuration has, of a place
// that is inert: neither the user nor who runs the machine has written them.
func (p place) foreignKeys(form func() *regexp.Regexp) (keys []string) {
	for _, key := range p.own {
		if form().MatchString(key) {
			keys = append(keys, key)
		}
	}
	return keys
}
