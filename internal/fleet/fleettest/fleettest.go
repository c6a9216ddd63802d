// Package fleettest has the real NATS server for tests: it starts and stops with the
// same URL and the same store, with accounts or without JetStream if a test wants that,
// and the proxy in front of it can stall.
//
// Concurrency: a Server belongs to its test; a Proxy may be used by any number of
// goroutines.
//
// It refuses to stand in for the server: what it starts is the server itself.
package fleettest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// patience is how long the server may take to start and to answer, on a machine that is
// busy.
const patience = 2 * time.Minute

// Server is a NATS server for one test, behind a proxy: URL is the proxy's, which stays.
type Server struct {
	*Proxy
	t       testing.TB
	options *server.Options
	running *server.Server
	routes  *Proxy // where the others of its cluster find it, or nil
}

// Start runs a server with JetStream until the test ends. config,
// if it is not empty, is a part of a configuration file, such as accounts.
func Start(t testing.TB, config string) *Server {
	t.Helper()
	return start(t, store(t)+config, nil)
}

// store is JetStream's configuration. Without limits of its own the server takes them from
// the disk that is free.
func store(t testing.TB) string {
	return fmt.Sprintf("jetstream { store_dir: %q, max_mem: 256M, max_file: 4G }\n", t.TempDir())
}

// Cluster starts three servers that are one, until the test ends. They find each other by
// proxies, which are there before any of them has a port.
func Cluster(t testing.TB) (all []*Server) {
	t.Helper()
	routes := []*Proxy{NewProxy(t), NewProxy(t), NewProxy(t)}
	for i, p := range routes {
		config := fmt.Sprintf(
			"server_name: s%d\ncluster { name: c, listen: \"127.0.0.1:-1\", advertise: %q, routes: [%q, %q, %q] }\n",
			i, p.ln.Addr(), routes[0].URL(), routes[1].URL(), routes[2].URL())
		all = append(all, start(t, store(t)+config, p))
	}
	return all
}

// StartWithout is Start for a server without JetStream.
func StartWithout(t testing.TB, config string) *Server {
	t.Helper()
	return start(t, config, nil)
}

func start(t testing.TB, config string, routes *Proxy) *Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte("listen: \"127.0.0.1:-1\"\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	options.NoSigs, options.NoLog, options.AuthTimeout = true, true, patience.Seconds()
	s := &Server{Proxy: NewProxy(t), t: t, options: options, routes: routes}
	s.Up()
	t.Cleanup(s.Down)
	return s
}

// Dial is a client's connection until the test ends. It waits longer for the server than
// clients do by themselves.
func Dial(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.Timeout(patience)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream is a connection's, whose requests wait as long.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Limit has a stream, which open makes, take no longer messages than that.
func Limit(t testing.TB, url string, most int32,
	open func(context.Context, jetstream.JetStream) (jetstream.Stream, error),
) {
	t.Helper()
	js := JetStream(t, Dial(t, url))
	s, err := open(t.Context(), js)
	if err == nil {
		config := s.CachedInfo().Config
		config.MaxMsgSize = most
		_, err = js.UpdateStream(t.Context(), config)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Direct is where clients connect that need no proxy. It is another address after each
// Up: nobody can have taken the port meanwhile.
func (s *Server) Direct() string { return s.running.ClientURL() }

// WebSocket is where clients connect that come over HTTP, where config has a websocket.
func (s *Server) WebSocket() string { return s.running.WebsocketURL() }

// Up starts the server, again if it was down: with the same URL and the same store.
func (s *Server) Up() {
	s.t.Helper()
	options := s.options.Clone()
	running, err := server.NewServer(options)
	if err != nil {
		s.t.Fatal(err)
	}
	running.Start()
	if !running.ReadyForConnections(patience) {
		s.t.Fatalf("the NATS server is not ready after %s", patience)
	}
	s.running = running
	s.lead(running.Addr().String())
	if s.routes != nil {
		s.routes.lead(running.ClusterAddr().String())
	}
}

// Down stops the server. Its store stays.
func (s *Server) Down() {
	if s.running == nil {
		return
	}
	s.lead("")
	if s.routes != nil {
		s.routes.lead("")
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}
