package settings

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What a host's table may have.
const (
	maxHosts    = 256
	maxHostName = 255  // bytes
	maxHostArgs = 64   // of ssh
	maxHostArg  = 4096 // bytes of each, and of a path
)

// Host is a machine that the user's file names: [hosts.NAME].
type Host struct {
	SSH     []string // the destination, and behind it options of ssh; nil is NAME alone
	Nous    string   // the path of nous there; "" is nous on the PATH there
	Workdir string   // the folder there that is meant without another; "" is none
}

// Hosts are the hosts of the user's file by name. The error says what is wrong with
// the file.
func Hosts(getenv func(string) string) (map[string]Host, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	c, err := Load(Path(getenv))
	return c.hosts, err
}

// CheckHost refuses what is no name of a host, as ssh would take it for an option.
func CheckHost(name string) error {
	odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	switch {
	case name == "":
		return errors.New("want the name of a host, or user@host")
	case strings.HasPrefix(name, "-"):
		return errors.New("a host's name does not begin with -")
	case len(name) > maxHostName:
		return fmt.Errorf("a host's name has at most %d bytes", maxHostName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, odd):
		return errors.New("a host's name has no spaces and no control characters")
	}
	return nil
}

// setHost takes one key of a host's table in.
func (c *Config) setHost(name string, set func(*Host) error) error {
	h, known := c.hosts[name]
	if !known {
		if err := CheckHost(name); err != nil {
			return err
		}
		if len(c.hosts) == maxHosts {
			return fmt.Errorf("there may be at most %d hosts", maxHosts)
		}
	}
	if err := set(&h); err != nil {
		return err
	}
	if c.hosts == nil {
		c.hosts = map[string]Host{}
	}
	c.hosts[name] = h
	return nil
}

// program is the path of a program, or its name.
func program(value any) (string, error) {
	text, err := word(value)
	if err == nil && strings.HasPrefix(text, "-") {
		err = errors.New("want the path of a program, which does not begin with -")
	}
	return text, err
}

// absolute is the path of a folder.
func absolute(value any) (string, error) {
	text, err := word(value)
	if err == nil && !path.IsAbs(text) {
		err = errors.New("want an absolute path: it is a folder of that host")
	}
	return text, err
}

// sshWords are a destination, and behind it options.
func sshWords(value any) ([]string, error) {
	words, err := several(value)
	switch {
	case err != nil:
		return nil, err
	case len(words) == 0:
		return nil, errors.New("want a destination first, and then options of ssh")
	case len(words) > maxHostArgs:
		return nil, fmt.Errorf("has %d words, and may have %d", len(words), maxHostArgs)
	}
	if err := CheckHost(words[0]); err != nil {
		return nil, fmt.Errorf("the destination stands first: %w", err)
	}
	for _, w := range words {
		if _, err := word(w); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// word is a text for a command line.
func word(value any) (string, error) {
	text, ok := value.(string)
	switch {
	case !ok || text == "":
		return "", errors.New("want a text")
	case len(text) > maxHostArg:
		return "", fmt.Errorf("has %d bytes, and may have %d", len(text), maxHostArg)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", errors.New("want a text without control characters")
	}
	return text, nil
}
