package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// What packages allocate before main, every process of ours pays for: the daemon,
// the guardian, each launcher of a sandbox.
func TestPackagesTakeLittleBeforeMain(t *testing.T) {
	const most = 480 << 10 // bytes; a fifth of it is the NATS client
	cmd := exec.Command(plainDaemon(t), "--version")
	cmd.Env = append(cmd.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	sum, packages := 0, 0
	for lines := bufio.NewScanner(&trace); lines.Scan(); {
		// init PACKAGE @0.1 ms, 0.2 ms clock, 345 bytes, 6 allocs
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[0] != "init" {
			continue
		}
		n, err := strconv.Atoi(f[7])
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if packages++; n > 64<<10 {
			t.Logf("%s takes %d bytes", f[1], n)
		}
		sum += n
	}
	if packages == 0 || sum > most {
		t.Errorf("%d packages take %d bytes before main, want at most %d", packages, sum, most)
	}
}

// A program that executes templates is a quarter larger, as the linker then leaves
// out no exported method: any could be called by its name.
func TestTheDaemonExecutesNoTemplates(t *testing.T) {
	program, err := elf.Open(plainDaemon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "text/template.(*Template).Execute") {
			t.Errorf("%s is linked; go build -ldflags=-dumpdep ./cmd/noused tells by whom", s.Name)
		}
	}
}
