package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// The clients for other languages have tests of their own, in their languages: each
// starts daemons, kills them, and starts them again.
func TestPythonClient(t *testing.T) {
	testClient(t, "python", "python3", 3, 11, "-W", "error", "-m", "unittest", "discover", "-s", "tests")
}

func TestTypeScriptClient(t *testing.T) {
	testClient(t, "typescript", "node", 20, 0, "--test", "test/client.test.js")
}

// testClient runs the tests of a client with a program that has at least a version.
func testClient(t *testing.T, language, program string, major, minor int, args ...string) {
	if testing.Short() {
		t.Skip("long")
	}
	needVersion(t, program, major, minor)
	programs, err := builtPrograms()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join("..", "..", "clients", language)
	cmd.Env = append(os.Environ(), "NOUSED="+filepath.Join(programs, "noused"),
		"PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// needVersion skips a test where a program is missing or older than a version.
func needVersion(t *testing.T, program string, major, minor int) {
	t.Helper()
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Skipf("%s %d.%d or newer is needed: %v", program, major, minor, err)
	}
	said := regexp.MustCompile(`(\d+)\.(\d+)`).FindStringSubmatch(string(out))
	if said == nil {
		t.Fatalf("%s --version says %q", program, out)
	}
	first, _ := strconv.Atoi(said[1])
	second, _ := strconv.Atoi(said[2])
	if first < major || first == major && second < minor {
		t.Skipf("%s %d.%d or newer is needed, this is %s", program, major, minor, said[0])
	}
}
