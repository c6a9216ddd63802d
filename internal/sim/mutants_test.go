//go:build sim

package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// The simulator finds every mutant.
func TestMutants(t *testing.T) {
	if *mutate == "" {
		t.Skip("make sim-mutants")
	}
	all := readMutants(t)
	before, _ := os.ReadFile(*written)
	for i, m := range all {
		if *mutate == "five" {
			if (i-time.Now().YearDay()*5%len(all)+len(all))%len(all) >= 5 {
				continue
			}
		} else if *mutate != "all" && !strings.Contains(m.name, *mutate) {
			continue
		}
		if *written != "" && strings.Contains(string(before), "\t"+m.name+"\t") {
			continue
		}
		seed, how := m.hunt(t)
		t.Logf("%s: seed %s: %.160s", m.name, seed, how)
		if *written != "" && seed != "" {
			f, err := os.OpenFile(*written, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			must(t, err)
			_, err = fmt.Fprintf(f, "%s\t%s\t%.120s\n", seed, m.name, how)
			must(t, err)
			must(t, f.Close())
		}
	}
}

// hunt runs histories with the mutant until one is wrong.
func (m mutant) hunt(t *testing.T) (seed, how string) {
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
	run := exec.Command(binary, "-test.run", "TestSeeds$", "-test.timeout", "10m", "-seeds", "2000", "-shrink=false",
		"-test.v", "-places=false")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Errorf("%s: 2000 seeds have not found it", m.name)
		return "", ""
	}
	if found := foundAt.FindSubmatch(out); found != nil {
		return string(found[1]), string(found[2])
	}
	if run.ProcessState.ExitCode() < 0 {
		t.Errorf("%s: the histories were ended: %v", m.name, err)
		return "", ""
	}
	return "?", string(out[max(0, len(out)-2000):]) // it cannot go on at all
}
