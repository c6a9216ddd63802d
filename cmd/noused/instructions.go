package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/regular"
)

const (
	// basePrompt is what every model is told first.
	basePrompt = "You are an agent that works through tools, for the user whose machine they run on. " +
		"Do what is asked, look before you change something, and say briefly what you did and what you found. " +
		"Relative paths start at the working directory."
	agentsName = "AGENTS.md"
	maxAgents  = 32 << 10 // bytes of one file that a model is told
	maxParents = 64
)

// instructions is the system prompt: the built-in one, the AGENTS.md files of
// the workdir and its parents up to the repository's root, outermost first, and
// what the configuration adds. It reads the files anew, since they may change
// while the daemon runs, and returns which it used.
func instructions(workdir, extra string) (text string, files []string) {
	parts := []string{basePrompt + "\nThe working directory is " + workdir + "."}
	folders := repository(workdir)
	for _, dir := range folders {
		path := filepath.Join(dir, agentsName)
		if said := readAgents(path, folders[0]); said != "" {
			parts = append(parts, fmt.Sprintf("# %s\n\n%s", path, said))
			files = append(files, path)
		}
	}
	if extra != "" {
		parts = append(parts, extra)
	}
	return strings.Join(parts, "\n\n"), files
}

// repository lists the folders from the repository's root down to dir; outside a
// repository dir alone.
func repository(dir string) []string {
	up := []string{dir}
	for d := dir; len(up) < maxParents; {
		if _, err := os.Stat(filepath.Join(d, ".git")); err == nil {
			slices.Reverse(up)
			return up
		}
		parent := filepath.Dir(d)
		if parent == d {
			break
		}
		d = parent
		up = append(up, d)
	}
	return []string{dir}
}

// readAgents is a file's text, cut at its limit, "" where there is none. A link
// out of the root, to a file of keys for one, and a file of another user are
// none.
func readAgents(path, root string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	root, err = filepath.EvalSymlinks(root)
	if err != nil {
		return ""
	}
	if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	f, err := regular.Open(real, os.O_RDONLY)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxAgents+1))
	if err != nil {
		return ""
	}
	said := strings.TrimSpace(strings.ToValidUTF8(string(text[:min(len(text), maxAgents)]), ""))
	if len(text) > maxAgents {
		said += fmt.Sprintf("\n[cut after %d bytes; the rest is in %s]", maxAgents, path)
	}
	return said
}
