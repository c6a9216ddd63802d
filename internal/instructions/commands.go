package instructions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	maxCommand   = 64 << 10  // bytes of a command's file
	maxCommands  = 200       // of all folders together
	maxTextOfOne = 256 << 10 // bytes of what a command comes to
)

// Command is a text of the user's, or of a repository, that is sent in the place of its name.
// Path is its file, NAME.md.
type Command struct{ Name, Description, Path string }

// commandFile is a command's file that was read, or what is wrong with it.
type commandFile struct {
	description, text string
	err               error
}

var commandNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`) })

// Commands returns all commands, those that are nearest first, and the files that were left
// out, each with the reason.
func (in *Instructions) Commands() (commands []Command, problems []string) {
	for _, p := range in.placesOf("commands") {
		list, _ := in.listings.get(p.root, p.dir, readNames)
		if list.err != nil {
			problems = append(problems, p.dir+": "+reason(list.err))
		}
		for _, name := range list.names {
			path := filepath.Join(p.dir, name+".md")
			file, ok := in.commands.get(p.root, path, in.readCommand)
			switch {
			case !ok || slices.ContainsFunc(commands, func(c Command) bool { return c.Name == name }):
			case len(commands)+len(problems) >= maxCommands:
				return commands, append(problems, fmt.Sprintf("%s: there are more than %d commands", p.dir, maxCommands))
			case file.err != nil:
				problems = append(problems, path+": "+reason(file.err))
			default:
				commands = append(commands, Command{name, file.description, path})
			}
		}
	}
	return commands, problems
}

// Expand puts what a command says in the place of /NAME and what is written behind it. ok is
// false for a text that names no command. The error is for people.
func (in *Instructions) Expand(written string) (text string, ok bool, err error) {
	name, found := strings.CutPrefix(written, "/")
	args := ""
	if i := strings.IndexFunc(name, unicode.IsSpace); i >= 0 {
		name, args = name[:i], strings.TrimSpace(name[i:])
	}
	if !found || !commandNames().MatchString(name) {
		return "", false, nil
	}
	for _, p := range in.placesOf("commands") {
		list, _ := in.listings.get(p.root, p.dir, readNames)
		if !slices.Contains(list.names, name) {
			continue
		}
		path := filepath.Join(p.dir, name+".md")
		file, there := in.commands.get(p.root, path, in.readCommand)
		switch {
		case !there:
			continue
		case file.err != nil:
			return "", true, fmt.Errorf("%s: %w", path, file.err)
		}
		text, fits := filled(file.text, args)
		switch {
		case !fits:
			return "", true, fmt.Errorf("/%s comes to more than %d KiB: write less behind it", name, maxTextOfOne>>10)
		case strings.TrimSpace(text) == "":
			return "", true, fmt.Errorf("/%s comes to an empty text: %s says nothing", name, path)
		}
		return text, true, nil
	}
	return "", false, nil
}

// placesOf are where files of a kind, such as commands, are looked for, the nearest first. A place is
// the repository's before it is the user's own.
func (in *Instructions) placesOf(kind string) []place {
	var all []place
	for _, folder := range slices.Backward(repository(in.Workdir)) {
		all = append(all, place{filepath.Join(folder, ".noused", kind), folder},
			place{filepath.Join(folder, ".claude", kind), folder})
	}
	return append(all, place{filepath.Join(in.ConfigDir, kind), ""})
}

// readNames lists the files NAME.md of a folder, by their names. Links are left out.
func readNames(root, dir string) listing {
	real, err := inside(root, dir)
	if err != nil {
		return listing{err: err}
	}
	d, err := os.OpenFile(real, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return listing{err: err}
	}
	defer func() { _ = d.Close() }()
	list, err := d.ReadDir(maxEntries + 1)
	switch {
	case errors.Is(err, io.EOF): // it is empty
		return listing{}
	case err != nil:
		return listing{err: err}
	case len(list) > maxEntries:
		return listing{err: fmt.Errorf("has more than %d entries", maxEntries)}
	}
	var names []string
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".md")
		if ok && e.Type()&fs.ModeType == 0 && commandNames().MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return listing{names: names}
}

// readCommand reads a command's file. It need not have a front matter.
func (in *Instructions) readCommand(root, path string) commandFile {
	r := in.readFile(root, path, maxCommand)
	switch {
	case r.err != nil:
		return commandFile{err: r.err}
	case r.cut:
		return commandFile{err: fmt.Errorf("has more than %d KiB", maxCommand>>10)}
	case !strings.HasPrefix(strings.TrimPrefix(r.text, "\ufeff"), "---"):
		return commandFile{text: strings.TrimSpace(r.text)}
	}
	front, body, err := split(r.text)
	if err != nil {
		return commandFile{err: err}
	}
	file := commandFile{text: strings.TrimSpace(body)}
	if strings.TrimSpace(front) != "" {
		_, file.description, file.err = parse(front)
	}
	return file
}

var argumentNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$(ARGUMENTS|[1-9])\b`) })

// filled is a command's text with what is written behind its name: all of it for $ARGUMENTS,
// single words for $1 to $9, and behind the text where that names neither. False: it comes to
// too much, and is not made.
func filled(text, args string) (string, bool) {
	words := splitWords(args)
	named, put := false, 0 // bytes of args
	full := argumentNames().ReplaceAllStringFunc(text, func(name string) string {
		named = true
		said := ""
		if name == "$ARGUMENTS" {
			said = args
		} else if i := int(name[1] - '1'); i < len(words) {
			said = words[i]
		}
		if put += len(said); put > maxTextOfOne {
			return ""
		}
		return said
	})
	if !named && args != "" {
		full += "\n\n" + args
	}
	return full, max(put, len(full)) <= maxTextOfOne
}

// splitWords are the words of a text; what is between quotes is one.
func splitWords(text string) (words []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if q := text[0]; q == '"' || q == '\'' {
			if end := strings.IndexByte(text[1:], q); end >= 0 {
				words, text = append(words, text[1:1+end]), text[2+end:]
				continue
			}
		}
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		words, text = append(words, text[:end]), text[end:]
	}
	return words
}
