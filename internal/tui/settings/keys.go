package settings

import (
	"slices"
	"strings"

	"noused/internal/alert"
	"noused/internal/tui/keymap"
)

// Key is a key of nous's configuration, as its manual describes it.
type Key struct {
	Name  string // with its section before it; a part in capitals stands for any name
	Value string // what it is set to, in a word or two
	Text  string // what it does, and its default

	set func(*Config, []string, any) error // takes in the key that a file has, and its value
}

// configKeys are what the file may say: its reader and its manual have them from here.
var configKeys = []Key{
	{
		"autostart", "true or false", "Whether nous starts a daemon where none runs. Default: true.",
		func(c *Config, _ []string, value any) (err error) { c.start, err = boolean(value); return err },
	},
	{
		"theme", "one of " + strings.Join(Themes, ", "),
		"The colours of the screen; none: no colours. Default: auto, which is dark or light as the terminal is.",
		func(c *Config, _ []string, value any) (err error) { c.Theme, err = oneOf(value, Themes); return err },
	},
	{
		"mouse", "true or false", "Whether the screen takes the mouse; false leaves it to the terminal. Default: true.",
		func(c *Config, _ []string, value any) error {
			on, err := boolean(value)
			c.Mouse = &on
			return err
		},
	},
	{
		"notify.bell", "true or false",
		"Whether the terminal's bell tells that you are needed, while you look elsewhere. Default: true.",
		func(c *Config, _ []string, value any) (err error) { c.Notify.Bell, err = boolean(value); return err },
	},
	{
		"notify.osc", "true or false",
		"Whether a notification of the desktop tells it, where the terminal can (OSC 9 and 777). Default: true.",
		func(c *Config, _ []string, value any) (err error) { c.Notify.OSC, err = boolean(value); return err },
	},
	{
		"notify.after", "time", "Only longer runs are reported. Default: 10s.",
		func(c *Config, _ []string, value any) (err error) { c.Notify.After, err = duration(value); return err },
	},
	{
		"notify.on", "array", "Which of " + strings.Join(alert.Kinds, ", ") + " are told. Default: all.",
		func(c *Config, _ []string, value any) (err error) {
			c.Notify.On, err = someOf(value, alert.Kinds)
			return err
		},
	},
	{
		"fleet.url", "text, or an array of them", "The NATS server of a fleet of daemons, or several of one cluster: " +
			"nats://, tls:// or wss://. --via and NOUS_VIA win.",
		func(c *Config, _ []string, value any) (err error) {
			c.fleet.URLs, err = severalTexts(value)
			return err
		},
	},
	{
		"fleet.creds", "path", "A file with a JWT and its key, which the server lets you in with. Nobody else may be able " +
			"to read it. ~/ is your home; other paths begin beside this file. --creds wins.",
		func(c *Config, _ []string, value any) (err error) { c.fleet.Creds, err = word(value); return err },
	},
	{
		"fleet.nkey", "path", "A file with the seed of an nkey, instead of fleet.creds.",
		func(c *Config, _ []string, value any) (err error) { c.fleet.NKey, err = word(value); return err },
	},
	{
		"fleet.ca", "path", "A file of certificates that the server's is checked with, instead of the system's.",
		func(c *Config, _ []string, value any) (err error) { c.fleet.CA, err = word(value); return err },
	},
	{
		"fleet.subject", "text", "The first word of the fleet's subjects, as on its hosts. Default: noused.",
		func(c *Config, _ []string, value any) (err error) { c.fleet.Subject, err = word(value); return err },
	},
	{
		"fleet.on", "text", "The host whose daemon is meant without --on, --host and --socket. Default: none, which is the " +
			"daemon of this machine.",
		func(c *Config, _ []string, value any) (err error) { c.fleet.On, err = word(value); return err },
	},
	{
		"keys.ACTION", "key, or an array of them",
		"The keys of an action. They are taken from the action that had them; an empty array leaves it without.",
		func(c *Config, key []string, value any) error { return c.setKey(key[1], value) },
	},
	{
		"hosts.NAME.ssh", "array",
		"The destination of ssh behind nous --host NAME, and behind it options of ssh. Default: NAME.",
		func(c *Config, key []string, value any) error {
			return c.setHost(key[1], func(h *Host) (err error) { h.SSH, err = sshWords(value); return err })
		},
	},
	{
		"hosts.NAME.nous", "path", "Where nous is on that host. Default: nous, which is looked for in PATH there.",
		func(c *Config, key []string, value any) error {
			return c.setHost(key[1], func(h *Host) (err error) { h.Nous, err = program(value); return err })
		},
	},
	{
		"hosts.NAME.workdir", "path", "The folder there whose sessions are meant without --workdir. Default: none; the " +
			"daemon's active session is meant.",
		func(c *Config, key []string, value any) error {
			return c.setHost(key[1], func(h *Host) (err error) { h.Workdir, err = absolute(value); return err })
		},
	},
}

// Keys are all keys that nous's configuration may have, in the order of its
// manual.
func Keys() []Key { return slices.Clone(configKeys) }

// Action is what a key of the screen does.
type Action struct {
	Name string
	Keys []string // by default
	Text string
}

// Actions are what keys can be given to, in the order of the palette.
func Actions() (all []Action) {
	for _, a := range keymap.Actions {
		all = append(all, Action{a.Name, slices.Clone(a.Keys), a.What})
	}
	return all
}

// keyOf is the one that describes a key of the file, or nil.
func keyOf(key []string) *Key {
	i := slices.IndexFunc(configKeys, func(k Key) bool { return k.fits(key) })
	if i < 0 {
		return nil
	}
	return &configKeys[i]
}

func (k Key) fits(key []string) bool {
	return slices.EqualFunc(strings.Split(k.Name, "."), key, func(name, part string) bool {
		return name == part || name == strings.ToUpper(name)
	})
}
