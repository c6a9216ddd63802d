package main

import (
	"os"
	"strings"
	"time"

	"noused/internal/fleet"
)

// Bounds of [fleet].
const (
	maxSlots          = 64
	defaultSlots      = 1 // two jobs in one folder would be in each other's way
	minJobTimeout     = time.Minute
	maxJobTimeout     = 24 * time.Hour
	defaultJobTimeout = 10 * time.Minute
	maxURLs           = 16
)

// fleetSettings are the section [fleet], which only the file can have. Without a URL
// there is no fleet.
type fleetSettings struct {
	fleet.Connect
	Name       string
	Labels     map[string]string
	Prefix     fleet.Prefix
	Approve    bool
	Slots      int
	JobTimeout time.Duration
}

// fleet is the section as the file has it.
func (r *resolver) fleet() (f fleetSettings) {
	section, from := r.file.find("fleet")
	if section == nil {
		return f
	}
	v, at := r.file.find("fleet.url")
	if v == nil {
		r.fail(from, "has no url, want one like nats://box:4222")
		return f
	}
	f.URLs = r.asTexts(v, at)
	if len(f.URLs) == 0 || len(f.URLs) > maxURLs {
		r.fail(at, "got %d URLs, want 1 to %d", len(f.URLs), maxURLs)
	}
	for _, u := range f.URLs {
		if err := fleet.CheckURL(u); err != nil {
			r.fail(at, "%v", err)
		}
	}
	f.Creds, f.NKey, f.CA = r.fleetPath("creds"), r.fleetPath("nkey"), r.fleetPath("ca")
	if _, at := r.file.find("fleet.nkey"); f.Creds != "" && f.NKey != "" {
		r.fail(at, "there is a fleet.creds too, want one of the two")
	}
	f.Prefix = fleet.Prefix(r.fleetToken("subject", fleet.CheckPrefix, func() string {
		return string(fleet.DefaultPrefix)
	}))
	f.Name = r.fleetToken("name", fleet.CheckName, hostName)
	f.Labels = r.labels()
	f.Approve = r.boolean("fleet.approve", false)
	if f.Slots = int(r.count("fleet.slots", 0, maxSlots)); f.Slots == 0 {
		if v, _ := r.file.find("fleet.slots"); v == nil {
			f.Slots = defaultSlots
		}
	}
	f.JobTimeout = defaultJobTimeout
	if v, at := r.file.find("fleet.job_timeout"); v != nil {
		if f.JobTimeout = r.asDuration(v, at, maxJobTimeout, defaultJobTimeout); f.JobTimeout < minJobTimeout {
			r.fail(at, "%s is out of bounds, want %s to %s", f.JobTimeout, minJobTimeout, maxJobTimeout)
		}
	}
	return f
}

func (r *resolver) fleetPath(key string) string {
	v, from := r.file.find("fleet." + key)
	text, from, ok := r.asText(v, from)
	if !ok {
		return ""
	}
	return r.absolute(text, from)
}

// fleetToken is a setting that becomes a part of subjects.
func (r *resolver) fleetToken(key string, check func(string) error, otherwise func() string) string {
	v, from := r.file.find("fleet." + key)
	text, from, ok := r.asText(v, from)
	if !ok {
		text = otherwise()
	}
	if err := check(text); err != nil {
		r.fail(from, "%v", err)
	}
	return text
}

// hostName is the machine's name up to its first dot.
func hostName() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	return name
}

func (r *resolver) labels() map[string]string {
	v, from := r.file.find("fleet.labels")
	if v == nil {
		return nil
	}
	table, ok := v.(map[string]any)
	if !ok {
		r.fail(from, `got %v, want a table of texts, as in labels = { gpu = "a100" }`, v)
	}
	labels := map[string]string{}
	for key, value := range table {
		text, ok := value.(string)
		if !ok {
			r.fail(from, "%s: got %v, want a string", key, value)
		}
		labels[key] = text
	}
	if err := fleet.CheckLabels(labels); err != nil {
		r.fail(from, "%v", err)
	}
	return labels
}

// keyFiles are the files that no tool may read.
func (f fleetSettings) keyFiles() (paths []string) {
	for _, path := range []string{f.Creds, f.NKey} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}
