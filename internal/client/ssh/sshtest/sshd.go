// Package sshtest runs OpenSSH's server for tests: on loopback, as the user who runs the
// test, with keys and a configuration of its own.
//
// Concurrency: any goroutine may use a Server.
//
// It refuses to run as root, whose sshd would log others in, and to use any key,
// configuration or known host of the user's.
package sshtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server accepts connections on a port of loopback and has an sshd serve each.
type Server struct {
	// SSH is what leads there: options and destination.
	SSH []string
	// Dir is its folder.
	Dir string

	t     testing.TB
	sshd  string
	ln    net.Listener
	conns sync.WaitGroup

	mu   sync.Mutex
	live map[*net.TCPConn]*os.Process
	log  bytes.Buffer
}

// Start starts a server, which ends with the test. Where there is no sshd or ssh, and
// for root, the test is skipped.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("sshd is run as an ordinary user")
	}
	s := &Server{t: t, sshd: "/usr/sbin/sshd", live: map[*net.TCPConn]*os.Process{}}
	for _, path := range []string{s.sshd, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(path); err != nil {
			t.Skipf("this machine has no %s: install openssh-server and openssh-client", path)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Skip("who runs the test has no name:", err)
	}
	if s.Dir, err = os.MkdirTemp("", "sshd"); err != nil {
		t.Fatal(err)
	}
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.configure(me.Username)
	s.conns.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *Server) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *Server) configure(name string) {
	s.t.Helper()
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path(key)).CombinedOutput(); err !=
			nil {
			s.t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	port := strconv.Itoa(s.ln.Addr().(*net.TCPAddr).Port)
	host, err := os.ReadFile(s.path("host.pub"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("known", "[127.0.0.1]:"+port+" "+string(host))
	s.write("config", strings.Join([]string{
		"HostKey " + s.path("host"), "AuthorizedKeysFile " + s.path("user.pub"), "UsePAM no", "StrictModes no",
		"PidFile none", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "PrintMotd no", "",
	}, "\n"))
	s.SSH = []string{
		"-F", "none", "-p", port, "-i", s.path("user"), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile=" + s.path("known"), "-o", "GlobalKnownHostsFile=none", name + "@127.0.0.1",
	}
}

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Script makes a program there, by which a test names what the far shell runs.
func (s *Server) Script(name, script string) string {
	s.t.Helper()
	s.write(name, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(s.path(name), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return s.path(name)
}

// Nous makes a nous there, which has an environment of its own, as logins have.
func (s *Server) Nous(nous string, env ...string) string {
	s.t.Helper()
	var words []string
	for _, kv := range env {
		words = append(words, "'"+strings.ReplaceAll(kv, "'", `'\''`)+"'")
	}
	return s.Script("nous", fmt.Sprintf("exec env %s '%s' \"$@\"", strings.Join(words, " "), nous))
}

func (s *Server) accept() {
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.conns.Go(func() { s.serve(conn.(*net.TCPConn)) })
	}
}

// serve has an sshd of its own serve a connection.
func (s *Server) serve(conn *net.TCPConn) {
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		s.t.Error(err)
		return
	}
	cmd := exec.Command(s.sshd, "-i", "-e", "-f", s.path("config"))
	var log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file, file, &log
	s.mu.Lock()
	err = cmd.Start()
	_ = file.Close()
	if err == nil {
		s.live[conn] = cmd.Process
	}
	s.mu.Unlock()
	if err != nil {
		s.t.Error(err)
		return
	}
	_ = cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, conn)
	s.log.Write(log.Bytes())
}

// Cut breaks every connection, as a network does that goes away.
func (s *Server) Cut() {
	s.each(func(conn *net.TCPConn, _ *os.Process) { _, _ = conn.CloseRead(), conn.CloseWrite() })
}

// Kill kills the sshd of every connection.
func (s *Server) Kill() {
	s.each(func(_ *net.TCPConn, p *os.Process) { _ = p.Kill() })
}

// Connections is how many stand.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

func (s *Server) each(do func(*net.TCPConn, *os.Process)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, p := range s.live {
		do(conn, p)
	}
}

func (s *Server) stop() {
	_ = s.ln.Close()
	s.Cut()
	s.conns.Wait()
	if s.t.Failed() {
		s.t.Logf("sshd's log:\n%s", s.log.Bytes())
	}
	_ = os.RemoveAll(s.Dir)
}
