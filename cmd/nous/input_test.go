package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/protocol"
)

func TestReadText(t *testing.T) {
	for _, tc := range []struct {
		args        []string
		stdin, want string // "" means refused
	}{
		{[]string{"two", "words"}, "", "two words"},
		{[]string{"review", "this"}, "+one\n-two\n", "review this\n\n+one\n-two"},
		{[]string{"-"}, "from\nstdin\n", "from\nstdin"},
		{nil, "piped\r\n", "piped"},
		{[]string{"-", "x"}, "", "- x"},
		{[]string{""}, "piped", "piped"},
		{[]string{"x"}, "\n\n", "x"},
		{nil, "", ""},
		{[]string{""}, "", ""},
		{[]string{"\xff"}, "", ""},
		{[]string{"x"}, "\xff", ""},
		{nil, strings.Repeat("x", protocol.DefaultMaxLine+1), ""},
		{nil, strings.Repeat("\x01", protocol.DefaultMaxLine/4), ""},
		{[]string{strings.Repeat("x", protocol.DefaultMaxLine/2)}, strings.Repeat("x", protocol.DefaultMaxLine/2), ""},
	} {
		a := newApp(strings.NewReader(tc.stdin), nil, nil)
		got, err := a.readText(tc.args)
		if (err == nil) != (tc.want != "") || got != tc.want {
			t.Errorf("%.40q: got %.40q, %v, want %q", tc.args, got, err, tc.want)
		}
	}
}

// What stands on standard input without having been put there for nous is left
// alone, and nobody waits for it.
func TestOnlyPipesAndFilesFollowAText(t *testing.T) {
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	if _, err := w.WriteString("of a pipe\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	closed := open(file)
	closed.Close()
	for name, tc := range map[string]struct {
		in         *os.File
		want, told string
	}{
		"file":      {open(file), "x\n\nof a file", ""},
		"pipe":      {pipe, "x\n\nof a pipe", ""},
		"null":      {open("/dev/null"), "x", ""},
		"zero":      {open("/dev/zero"), "x", ""},
		"directory": {open(t.TempDir()), "x", ""},
		"closed":    {closed, "x", ""},
		"socket":    {openSocket(t), "x", "standard input is a socket: it is not added to the text\n"},
	} {
		var errout bytes.Buffer
		got, err := newApp(tc.in, nil, &errout).readText([]string{"x"})
		if got != tc.want || err != nil || errout.String() != tc.told {
			t.Errorf("%s: got %q, %v, %q, want %q, %q", name, got, err, errout.String(), tc.want, tc.told)
		}
	}
}

// openSocket is one end of a connection on which the other end says nothing.
func openSocket(t *testing.T) *os.File {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f, err := conn.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSlowInputIsWaitedForAloud(t *testing.T) {
	for wait, told := range map[time.Duration]string{
		time.Second: "",
		time.Hour:   "waiting for the end of standard input, which is a part of the text\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			in, w := io.Pipe()
			go func() {
				time.Sleep(wait) // of the bubble's clock
				io.WriteString(w, "late")
				w.Close()
			}()
			var errout bytes.Buffer
			got, err := newApp(in, nil, &errout).readText([]string{"x"})
			if got != "x\n\nlate" || err != nil || errout.String() != told {
				t.Errorf("%s: got %q, %v, %q, want both texts and %q", wait, got, err, errout.String(), told)
			}
		})
	}
}
