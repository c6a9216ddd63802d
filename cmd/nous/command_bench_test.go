package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"noused/internal/daemontest"
)

// dialOnly is a program that asks a daemon on a socket for a pong, and no more.
const dialOnly = `package main

import ("bufio"; "net"; "os")

func main() {
	c, err := net.Dial("unix", os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	c.Write([]byte("{\"id\":\"1\",\"type\":\"ping\"}\n"))
	line, _ := bufio.NewReader(c).ReadString('\n')
	os.Stdout.WriteString(line)
}
`

// From exec to exit of the commands that scripts call most, beside a Go program that
// only dials.
func BenchmarkCommand(b *testing.B) {
	dir := b.TempDir()
	source, dial := filepath.Join(dir, "dial.go"), filepath.Join(dir, "dial")
	if err := os.WriteFile(source, []byte(dialOnly), 0o600); err != nil {
		b.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", dial, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	d := daemontest.Start(b, program(b, "noused"), "")
	raw := takes{dial, d.Dir, d.Env()}
	nous := takes{program(b, "nous"), d.Dir, d.Env()}
	for _, args := range [][]string{{"ping"}, {"statusline"}, {"prompt", "hello"}} {
		b.Run(args[0], func(b *testing.B) {
			var took, least []time.Duration
			for b.Loop() {
				least = append(least, raw.time(b, d.Socket))
				took = append(took, nous.time(b, args...))
			}
			timesRaw(b, took, least)
		})
	}
}
