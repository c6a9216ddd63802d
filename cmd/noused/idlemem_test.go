package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"noused/internal/protocol"
	"noused/internal/testenv"
)

// A daemon that has nothing to do, its guardian and the process of the built-in tools
// keep little of the program in memory: each had 14 MB of it.
func TestIdleProcessesAreSmall(t *testing.T) {
	d := newDaemonOf(t, plainDaemon(t))
	if r := d.commands().request(`{"id":"1","type":"prompt","payload":{"text":"!ls {}"}}`); !r.OK {
		t.Fatalf("got %+v, want an answer", r)
	}
	for _, pid := range append(d.children(), d.Cmd.Process.Pid) {
		testenv.Until(t, fmt.Sprintf("process %d has less than 8 MB of files in memory", pid), func() bool {
			if hugePages(t, pid) {
				t.Skip("the system keeps the program in pages of 2 MB")
			}
			return inMemory(t, pid, "status", "RssFile") < 8<<10
		})
	}
}

func hugePages(t *testing.T, pid int) bool { return inMemory(t, pid, "smaps", "FilePmdMapped") > 0 }

// inMemory is the sum of a figure in a file of /proc, in KB.
func inMemory(t *testing.T, pid int, file, name string) (sum int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	found := regexp.MustCompile(`(?m)^`+name+`:\s+([0-9]+) kB`).FindAllSubmatch(text, -1)
	if err != nil || found == nil {
		t.Skipf("the system does not say how much of files is in memory: %v", err)
	}
	for _, match := range found {
		kb, err := strconv.Atoi(string(match[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += kb
	}
	return sum
}

// A prompt that needs no tool does not start the process of the built-in tools: what they can do is known. A
// git that records the folder may run beside it, and ends. Who looks at the tools has their process started,
// and hears whether that works.
func TestAPromptOfWordsStartsNoTool(t *testing.T) {
	d := newDaemon(t)
	w := d.commands()
	if r := w.request(`{"id":"1","type":"prompt","payload":{"text":"hello"}}`); !r.OK {
		t.Fatalf("got %+v, want an answer", r)
	}
	builtin := func() (found []string) {
		for _, pid := range d.children() {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
			if words := strings.ReplaceAll(string(line), "\x00", " "); strings.Contains(words, " extension files") {
				found = append(found, words)
			}
		}
		return found
	}
	if found := builtin(); len(found) != 0 {
		t.Errorf("got %q, want no process of the built-in tools", found)
	}
	tools := into[protocol.Tools](t, w.request(`{"id":"2","type":"list_tools"}`))
	if i := slices.IndexFunc(tools.Tools, func(i protocol.ToolInfo) bool {
		return i.Name == "bash"
	}); i < 0 || !tools.Tools[i].Healthy {
		t.Errorf("got %+v, want bash, healthy", tools.Tools)
	}
	// no listing waits for it long
	testenv.Until(t, "a process says whether the built-in tools work", func() bool { return len(builtin()) > 0 })
}
