package main

import (
	"context"
	"expvar"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"

	"go.uber.org/zap"

	"noused/internal/server"
)

// debugging is the socket of --debug-socket, if there is one.
type debugging struct {
	socket *server.Debug
	log    *zap.Logger
}

// openDebug makes the socket where the configuration names one.
func openDebug(path string, log *zap.Logger) (*debugging, error) {
	if path == "" {
		runtime.MemProfileRate = 0 // nobody will ask which code allocates
		return nil, nil
	}
	socket, err := server.ListenDebug(path)
	if err != nil {
		return nil, err
	}
	log.Warn("the debug socket tells how the daemon works inside; leave --debug-socket out where nobody looks",
		zap.String("path", path))
	return &debugging{socket, log}, nil
}

// serve answers until ctx ends. Without a socket, or with one that fails, it only
// waits.
func (d *debugging) serve(ctx context.Context) error {
	if d != nil {
		if err := server.ServeDebug(ctx, d.socket, debugPages(), d.log); err != nil {
			d.log.Error("the debug socket is served no longer", zap.Error(err))
		}
	}
	<-ctx.Done()
	return nil
}

func (d *debugging) close() {
	if d != nil {
		d.socket.Close()
	}
}

// debugPages are expvar's and pprof's. Both packages also put theirs into
// http.DefaultServeMux, which nobody here serves.
func debugPages() http.Handler {
	expvar.Publish("goroutines", expvar.Func(func() any { return runtime.NumGoroutine() }))
	expvar.Publish("descriptors", expvar.Func(func() any { return descriptors() }))
	pages := http.NewServeMux()
	pages.Handle("/debug/vars", expvar.Handler())
	pages.HandleFunc("/debug/pprof/", pprof.Index)
	pages.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	pages.HandleFunc("/debug/pprof/profile", pprof.Profile)
	pages.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	pages.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return pages
}

// descriptors counts the open ones, with the one that it takes; -1: they cannot be
// counted. The kernel tells nobody else.
func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(open)
}
