package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

const (
	workers = 4
	readers = 3
	samples = 300              // in all
	hang    = 2 * time.Minute  // nothing takes so long
	tidy    = 20 * time.Second // for what a daemon has left to be gone
)

// world is a daemon with folders of its own.
type world struct {
	name      string
	dir       string
	noused    string
	report    *report
	restarted bool
	seen      *seen
	sample    *http.Client
	series    map[string][]float64

	mu      sync.Mutex          // guards the process
	process *daemontest.Process // nil when none runs
	log     bytes.Buffer
}

func newWorld(o options, name, vendor string, r *report) (*world, error) {
	w := &world{
		name: name, dir: filepath.Join(o.dir, name), noused: o.noused, report: r, restarted: name == "restarted",
		seen: newSeen(r), series: map[string][]float64{},
	}
	w.sample = &http.Client{Timeout: hang, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(w.dir, "debug"))
		},
	}}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for path, text := range map[string]string{
		"work/notes.txt":  "a note\n",
		"tools/sh.json":   `{"name":"sh","kind":"tool","protocol":"narratoria","capabilities":[],"timeout":"1m","transport":{"type":"stdio","command":["./sh.sh"]},"operations":{"mark":{},"slow":{}}}`,
		"tools/sh.sh":     shTool,
		"tools/pad.json":  `{"name":"pad","kind":"tool","protocol":"gevals","capabilities":[],"timeout":"1m","transport":{"type":"stdio","command":["./pad.sh"]}}`,
		"tools/pad.sh":    padTool,
		"home/.keep":      "",
		"noused/mcp.json": fmt.Sprintf(`{"mcpServers":{"soak":{"command":%q,"args":["mcp"]}}}`, self),
		"noused/config.toml": fmt.Sprintf(
			"[model]\nprovider = \"offline\"\ndelay = \"200us\"\n[providers.local]\nwire = \"chat\"\nbase_url = %q\n"+
				"[retention]\nsessions_larger = \"4MiB\"\ntool_output_larger = \"1MiB\"\naudit_larger = \"1MiB\"\n", vendor),
	} {
		path = filepath.Join(w.dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			return nil, err
		}
	}
	return w, os.Chmod(filepath.Join(w.dir, "noused", "config.toml"), 0o600)
}

func (w *world) socket() string { return filepath.Join(w.dir, "s") }

// start runs the daemon and returns once it says that it is ready.
func (w *world) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.Reset()
	cmd := exec.Command(w.noused, "--socket", w.socket(), "--state-dir", w.dir+"/state", "--workdir", w.dir+"/work",
		"--tools-dir", w.dir+"/tools", "--debug-socket", w.dir+"/debug", "--log-level", "warn")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir + "/home", "XDG_CONFIG_HOME=" + w.dir,
		"XDG_RUNTIME_DIR=" + w.dir,
	}
	cmd.Stderr = &w.log
	var err error
	if w.process, err = daemontest.Run(cmd); err != nil {
		return fmt.Errorf("the daemon %s: %w\n%s", w.name, err, w.log.Bytes())
	}
	return nil
}

// stop ends the daemon with a signal, and sees to it that nothing of it is left.
func (w *world) stop(sig syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return
	}
	if err := w.process.End(sig); sig == syscall.SIGTERM && err != nil {
		w.report.violation("%s: the stop ends with %v\n%s", w.name, err, w.log.Bytes())
	}
	w.process = nil
	if left := orphansGone(time.Now().Add(tidy)); left != "" {
		w.report.violation("%s: left behind: %s", w.name, left)
	}
}

// end stops the daemon for good.
func (w *world) end() { w.stop(syscall.SIGTERM) }

// restarting stops and kills the daemon, and starts it again.
func (w *world) restarting(ctx context.Context, every time.Duration, rng *rand.Rand) {
	for ok := true; ok; ok = pause(ctx, every/2+time.Duration(rng.Int64N(int64(every)))) {
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[rng.IntN(2)]
		w.stop(sig)
		if err := w.start(); err != nil {
			w.report.violation("%s: %v", w.name, err)
			return
		}
		w.report.count("restarts by " + unix.SignalName(sig))
	}
}

// pruning has old data removed.
func (w *world) pruning(ctx context.Context, every time.Duration) {
	for pause(ctx, every) {
		c, err := client.Dial(ctx, w.socket())
		if err != nil {
			continue
		}
		if r, err := client.Call(ctx, c, protocol.Prune, protocol.PruneParams{}); err == nil {
			w.report.count("passes of retention")
			for _, problem := range r.Problems {
				w.report.violation("%s: prune: %s", w.name, problem)
			}
		}
		c.Close()
	}
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sampling takes the figures.
func (w *world) sampling(ctx context.Context, every time.Duration) {
	for ok := true; ok; ok = pause(ctx, every) {
		now, err := w.measure()
		if err != nil {
			w.report.violation("%s: no figures: %v", w.name, err)
			continue
		}
		for name, value := range now {
			w.series[name] = append(w.series[name], value)
		}
	}
}

// measure asks the kernel, and the daemon itself for what the kernel tells nobody else.
// Between a stop and a start there is nothing to be measured.
func (w *world) measure() (map[string]float64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return nil, nil
	}
	r, err := w.sample.Get("http://noused/debug/vars")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var vars struct {
		Goroutines  float64 `json:"goroutines"`
		Descriptors float64 `json:"descriptors"`
	}
	if err := json.NewDecoder(r.Body).Decode(&vars); err != nil {
		return nil, err
	}
	pid := w.process.Cmd.Process.Pid
	memory, err := residentMB(pid)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"memory MB": memory, "goroutines": vars.Goroutines, "descriptors": vars.Descriptors,
		"processes": float64(len(descendants(pid))), "disk MB": folderMB(w.dir + "/state"),
	}, nil
}

func residentMB(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("the kernel does not say how much memory it has")
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib / 1024, err
}

func folderMB(dir string) (size float64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += float64(info.Size()) / 1e6
			}
		}
		return nil
	})
	return size
}
