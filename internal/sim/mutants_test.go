//go:build sim

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	mutate  = flag.String("mutants", "", "run mutants: all, five of the day, or those whose names have this")
	written = flag.String("write-found", "", "a file for the seeds that mutants took, but for those that it has")
)

// mutant is a small change to the daemon that breaks one thing.
type mutant struct{ name, file, old, new string }

const root = "../.." // of the module

// readMutants reads mutants/list.txt.
func readMutants(t *testing.T) (all []mutant) {
	t.Helper()
	text, err := os.ReadFile("mutants/list.txt")
	must(t, err)
	_, list, _ := strings.Cut(string(text), "\n== ")
	for one := range strings.SplitSeq(list, "\n== ") {
		lines := strings.Split(strings.TrimSpace(one), "\n")
		m := mutant{name: lines[0], file: lines[1]}
		for _, line := range lines[2:] {
			switch line[0] {
			case '-':
				m.old += line[1:] + "\n"
			case '+':
				m.new += line[1:] + "\n"
			default:
				t.Fatalf("mutant %q: %q", m.name, line)
			}
		}
		all = append(all, m)
	}
	return all
}

// apply returns the file with the mutant in it.
func (m mutant) apply() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has the old text %d times, want once", m.file, n)
	}
	mutated := strings.Replace(string(text), m.old, m.new, 1)
	_, err = parser.ParseFile(token.NewFileSet(), m.file, mutated, 0)
	return mutated, err
}

// Every mutant still fits the code that it is for.
func TestMutantsFit(t *testing.T) {
	all, names := readMutants(t), map[string]bool{}
	for _, m := range all {
		if _, err := m.apply(); err != nil || names[m.name] {
			t.Errorf("%s: %v", m.name, err)
		}
		names[m.name] = true
	}
	if len(all) < 40 {
		t.Errorf("there are %d mutants, want at least 40", len(all))
	}
}

var foundAt = regexp.MustCompile(`seed (\d+): (.*)`)

// The simulator finds every mutant. Five of the day are five others every day, until all have
// had their turn.
func TestMutants(t *testing.T) {
	if *mutate == "" {
		t.Skip("make sim-mutants")
	}
	all, before, done := readMutants(t), readFound(t, "mutants/found.txt"), map[string]string{}
	if *written != "" {
		done = readFound(t, *written)
	}
	first := int(time.Now().Unix()/(24*60*60)) * 5 % len(all)
	for i, m := range all {
		switch {
		case *mutate == "all", *mutate == "five" && (i-first+len(all))%len(all) < 5:
		case *mutate == "five", !strings.Contains(m.name, *mutate):
			continue
		}
		if done[m.name] != "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			seed, how := m.hunt(t, before[m.name])
			if seed == "" {
				return
			}
			t.Logf("seed %s: %.160s", seed, how)
			if *written != "" {
				f, err := os.OpenFile(*written, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				must(t, err)
				_, err = fmt.Fprintf(f, "%s\t%s\n", seed, m.name)
				must(t, err)
				must(t, f.Close())
			}
		})
	}
}

// readFound returns the seed at which each mutant was found.
func readFound(t *testing.T, path string) map[string]string {
	text, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		seed, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		found[name] = seed
	}
	return found
}

// hunt runs histories with the mutant until one is wrong: that of the seed which has found it
// before, then those from 1 on.
func (m mutant) hunt(t *testing.T, before string) (seed, how string) {
	t.Helper()
	dir := t.TempDir()
	text, err := m.apply()
	must(t, err)
	at, err := filepath.Abs(filepath.Join(root, m.file))
	must(t, err)
	file, overlay, binary := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay"), filepath.Join(dir, "sim.test")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{at: file}})
	must(t, err)
	must(t, os.WriteFile(overlay, replace, 0o600))
	build := exec.Command("go", "test", "-c", "-tags", "sim", "-overlay", overlay, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", m.name, err, out)
		return "", ""
	}
	if _, err := strconv.Atoi(before); err == nil {
		if seed, how = m.run(t, binary, "-from", before, "-seeds", "1"); seed != "" {
			return seed, how
		}
	}
	if seed, how = m.run(t, binary, "-seeds", "2000"); seed == "" {
		t.Error("2000 seeds have not found it")
	}
	return seed, how
}

// run returns what histories come to: "" where none is wrong.
func (m mutant) run(t *testing.T, binary string, args ...string) (seed, how string) {
	t.Helper()
	run := exec.Command(binary, append(args, "-test.run", "TestSeeds$", "-test.timeout", "10m", "-shrink=false", "-test.v",
		"-places=false")...)
	out, err := run.CombinedOutput()
	switch found := foundAt.FindSubmatch(out); {
	case err == nil:
		return "", ""
	case bytes.Contains(out, []byte("test timed out")):
		t.Fatal("it is not found in 10 minutes")
	case found != nil:
		return string(found[1]), string(found[2])
	case run.ProcessState.ExitCode() < 0:
		t.Fatalf("the histories were ended: %v", err)
	}
	return "?", string(out[max(0, len(out)-2000):]) // it cannot go on at all
}
