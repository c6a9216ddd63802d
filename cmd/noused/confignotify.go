package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/alert"
	"noused/internal/notify"
)

// Bounds of [notify].
const (
	maxNotifyAfter     = 24 * time.Hour
	defaultNotifyAfter = 10 * time.Second
)

// notify is the section [notify], which only the file can have.
func (r *resolver) notify() (o notify.Options) {
	if v, from := r.file.find("notify.command"); v != nil {
		if _, text := v.(string); text {
			r.fail(from, "got %v, want an array: the program and its arguments; no shell reads it", v)
		}
		o.Command = r.asTexts(v, from)
		if len(o.Command) == 0 || o.Command[0] == "" {
			r.fail(from, "got %v, want an array: the program and its arguments", v)
		} else if strings.Contains(o.Command[0], "/") && !filepath.IsAbs(o.Command[0]) {
			o.Command[0] = filepath.Join(from.dir, o.Command[0])
		}
	}
	o.On, o.After = alert.Kinds, defaultNotifyAfter
	if v, from := r.file.find("notify.on"); v != nil {
		o.On = r.asTexts(v, from)
		for _, name := range o.On {
			if !slices.Contains(alert.Kinds, name) {
				r.fail(from, "there is no event %q, only %s", name, strings.Join(alert.Kinds, ", "))
			}
		}
	}
	if v, from := r.file.find("notify.after"); v != nil {
		o.After = r.asDuration(v, from, maxNotifyAfter, defaultNotifyAfter)
	}
	if o.Command == nil {
		return notify.Options{}
	}
	return o
}
