package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/buildinfo"
	"noused/internal/fleet"
	"noused/internal/fleet/host"
	"noused/internal/fleet/work"
	"noused/internal/regular"
	"noused/internal/worktree"
)

// instanceFile has what the daemons of one state folder have in common in a fleet.
const instanceFile = "fleet-instance"

// openFleet makes the daemon's side of its fleet; nil is that none is configured.
func (d *Daemon) openFleet() (*host.Host, error) {
	f := d.cfg.Fleet
	if len(f.URLs) == 0 {
		return nil, nil
	}
	instance, err := fleetInstance(filepath.Join(d.cfg.StateDir, instanceFile))
	if err != nil {
		return nil, fmt.Errorf("[fleet]: %w", err)
	}
	jobs := work.New(work.Options{
		Prefix: f.Prefix, Name: f.Name, Instance: instance, Labels: f.Labels, Slots: f.Slots, Timeout: f.JobTimeout,
		Dir: filepath.Join(d.cfg.StateDir, "fleet-jobs"), Trees: worktree.Home(os.Getenv), Git: confinedGit(d.tools),
		Mux: d.mux, Events: d.events, Audit: d.audit.Record, Log: d.log.Named("jobs"),
	})
	return host.New(host.Options{
		Connect: f.Connect, Prefix: f.Prefix, Name: f.Name, Labels: f.Labels, Approve: f.Approve, Slots: f.Slots,
		JobTimeout: f.JobTimeout,
		Version:    buildinfo.Version(), Epoch: d.info.Epoch, Instance: instance, Workdir: d.cfg.Workdir, Load: d.hub.Load,
		Jobs: jobs,
		Mux:  d.mux, MaxLine: d.cfg.MaxLine, Held: d.held, Events: d.events, Audit: d.audit.Record, Log: d.log.Named("fleet"),
	}), nil
}

// fleetInstance reads the id of the state folder, which it makes where there is none. An
// empty file is what a power cut may leave of one.
func fleetInstance(path string) (string, error) {
	text, err := regular.ReadOwn(path, 1<<10)
	id := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && id == "":
		id = newID("in-")
		err = regular.Replace(path, []byte(id+"\n"), 0o600)
	case err == nil && fleet.CheckID(id) != nil:
		err = fmt.Errorf("%s has no id; remove it, and it is made anew", path)
	}
	return id, err
}
