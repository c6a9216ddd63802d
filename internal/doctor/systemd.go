package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// units are the files of the user service (deploy/systemd). One socket without
// the other is no use.
var units = []string{"noused.service", "noused.socket", "noused-events.socket"}

// systemd looks at the unit files that systemd would take, and asks it nothing.
func (e *exam) systemd(context.Context) {
	var files, missing []string
	for _, name := range units {
		if path := e.unit(name); path != "" {
			files = append(files, path)
		} else {
			missing = append(missing, name)
		}
	}
	if len(files) == 0 {
		e.ok(Systemd, "noused is not installed as a user service")
		return
	}
	if len(missing) > 0 {
		e.fail(Systemd, "make install puts all three in place; then systemctl --user daemon-reload",
			"%s is there, but not %s", few(files), strings.Join(missing, " and "))
	}
	for _, path := range files {
		if filepath.Base(path) == units[0] {
			e.service(path)
		}
	}
	e.linger()
}

// unitListens tells whether a socket is that of a unit, which leaves its file when it is
// stopped.
func (e *exam) unitListens(path string) bool {
	for _, name := range []string{units[1], units[2], "noused@.socket", "noused-events@.socket"} {
		options, err := readUnit(e.unit(name))
		if err != nil {
			continue
		}
		for _, o := range options {
			pattern, whole := e.expand(strings.ReplaceAll(o.Value, "%i", "*"))
			if fits, err := filepath.Match(pattern, path); o.Name == "ListenStream" && whole && fits && err == nil {
				return true
			}
		}
	}
	return false
}

// linger tells what a logout does to the service, where a systemd of the user's runs:
// without one nous starts the daemon by itself, and a logout does not end it.
func (e *exam) linger() {
	if e.Linger == "" {
		return
	}
	if !filepath.IsAbs(e.RuntimeDir) || !exists(filepath.Join(e.RuntimeDir, "systemd")) {
		e.ok(Systemd, "no systemd of yours runs: nous starts the daemon without it")
		return
	}
	if _, err := os.Stat(e.Linger); errors.Is(err, fs.ErrNotExist) {
		e.warn(Systemd, "loginctl enable-linger, if it is to run on",
			"when you log out, systemd ends the daemon, and its runs wait until you log in again")
	} else {
		e.ok(Systemd, "the daemon runs on when you log out")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (e *exam) unit(name string) string {
	for _, dir := range e.UnitDirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// service looks at what the unit starts, and at the file of its environment.
func (e *exam) service(path string) {
	options, err := readUnit(path)
	if err != nil {
		e.fail(Systemd, "make install writes it anew", "%s: %v", path, err)
		return
	}
	started := false
	for _, o := range options {
		if o.Section != "Service" {
			continue
		}
		switch o.Name {
		case "ExecStart":
			started = true
			e.execStart(path, o.Value)
		case "EnvironmentFile":
			file, whole := e.expand(strings.TrimPrefix(o.Value, "-"))
			if _, err := os.Stat(file); whole && err == nil {
				e.private(Systemd, file, "is where keys of model providers stand")
			}
		}
	}
	if !started {
		e.fail(Systemd, "make install writes it anew", "%s has no ExecStart", path)
	}
}

func readUnit(path string) ([]*unit.UnitOption, error) {
	const most = 1 << 20 // bytes
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, errors.New("is no unit file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return unit.DeserializeOptions(f)
}

func (e *exam) execStart(path, value string) {
	words := strings.Fields(strings.TrimLeft(value, "-@:+!|"))
	if len(words) == 0 {
		e.fail(Systemd, "make install writes it anew", "%s: ExecStart is empty", path)
		return
	}
	program, whole := e.expand(strings.Trim(words[0], `"'`))
	if !whole || !filepath.IsAbs(program) {
		e.ok(Systemd, "%s starts %s; whether that is there was not checked", path, program)
		return
	}
	info, err := os.Stat(program)
	if err == nil && (info.IsDir() || info.Mode().Perm()&0o111 == 0) {
		err = fmt.Errorf("%s is not executable", program)
	}
	if err != nil {
		e.fail(Systemd, "make install, or correct ExecStart and run systemctl --user daemon-reload", "%s: ExecStart: %v",
			path, err)
		return
	}
	e.ok(Systemd, "%s starts %s", path, program)
}

// expand puts in what systemd does for the specifiers of our own units; whole
// is false where there are others.
func (e *exam) expand(text string) (expanded string, whole bool) {
	config := filepath.Join(e.Home, ".config")
	for _, kv := range e.Environ {
		if dir, ok := strings.CutPrefix(kv, "XDG_CONFIG_HOME="); ok && filepath.IsAbs(dir) {
			config = dir
		}
	}
	expanded = strings.NewReplacer("%h", e.Home, "%t", e.RuntimeDir, "%E", config, "%%", "%").Replace(text)
	return expanded, strings.Count(text, "%") == strings.Count(text, "%h")+strings.Count(text, "%t")+
		strings.Count(text, "%E")
}
