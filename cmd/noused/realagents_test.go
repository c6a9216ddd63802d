package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// realAgent is an agent as npm has it, against aimock in the place of its model.
type realAgent struct {
	name    string
	npm     string // package@version
	command []string
	env     map[string]string // $MODEL stands for the server's address, $KEY for its key
	ask     string            // a prompt upon which it asks whether it may run a command
	files   map[string]string // of its home
}

var realAgents = []realAgent{
	{
		name: "codex", npm: "@agentclientprotocol/codex-acp@2.6.0", command: []string{"codex-acp"},
		ask: "Use exec_command.",
		env: map[string]string{
			"NO_BROWSER": "1", "OPENAI_API_KEY": "$KEY", "MODEL_PROVIDER": "stub", "INITIAL_AGENT_MODE": "read-only",
			"DEFAULT_AUTH_REQUEST": `{"methodId":"api-key"}`,
			"CODEX_CONFIG": `{"model_provider":"stub","model":"gpt-5.5","model_providers":{"stub":{"name":"stub",` +
				`"base_url":"$MODEL/v1","env_key":"OPENAI_API_KEY","wire_api":"responses"}}}`,
		},
	},
	{
		name: "claude", npm: "@agentclientprotocol/claude-agent-acp@0.101.0", command: []string{"claude-agent-acp"},
		ask: "Use Bash.", files: map[string]string{".claude/settings.json": `{"permissions":{"ask":["Bash"]}}`},
		env: map[string]string{
			"ANTHROPIC_BASE_URL": "$MODEL", "ANTHROPIC_API_KEY": "$KEY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		},
	},
	{
		name: "gemini", npm: "@google/gemini-cli@0.61.0", command: []string{"gemini", "--acp"},
		ask: "Use run_shell_command.",
		env: map[string]string{
			"GOOGLE_GEMINI_BASE_URL": "$MODEL", "GEMINI_API_KEY": "$KEY", "GEMINI_MODEL": "gemini-2.5-pro",
		},
	},
	{
		name: "qwen", npm: "@qwen-code/qwen-code@0.24.4", command: []string{"qwen", "--acp"},
		ask: "Use run_shell_command.",
		env: map[string]string{"OPENAI_BASE_URL": "$MODEL/v1", "OPENAI_API_KEY": "$KEY", "OPENAI_MODEL": "gpt-5"},
	},
	{
		name: "opencode", npm: "opencode-ai@1.18.33", command: []string{"opencode", "acp"},
		ask: "Use opencode's.",
		env: map[string]string{
			"OPENCODE_CONFIG_CONTENT": `{"model":"stub/m","permission":{"bash":"ask"},"provider":{"stub":{` +
				`"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"$MODEL/v1","apiKey":"$KEY"},"models":{"m":{}}}}}`,
		},
	},
}

// install has npm install an agent, in a folder that is kept, and returns its programs'.
func (a realAgent) install(t *testing.T, cache string) string {
	t.Helper()
	dir := filepath.Join(cache, strings.NewReplacer("/", "_", "@", "_").Replace(a.npm))
	bin := filepath.Join(dir, "node_modules", ".bin")
	if _, err := os.Stat(filepath.Join(bin, a.command[0])); err == nil {
		return bin
	}
	npm := exec.Command("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, a.npm)
	out, err := npm.CombinedOutput()
	if err != nil {
		t.Skipf("npm cannot install %s: %v\n%s", a.npm, err, out)
	}
	return bin
}

// TestRealAgents has agents that people use do what docs/agents.md says of them. It takes
// the folder where npm is to put them, 1.5 GB, in NOUSED_TEST_AGENTS.
func TestRealAgents(t *testing.T) {
	cache := os.Getenv("NOUSED_TEST_AGENTS")
	if cache == "" {
		t.Skip("NOUSED_TEST_AGENTS is not set: make real-agents does")
	}
	model := startAimock(t, aimockProgram(t), filepath.Join("testdata", "agents", "fixtures.json"))
	for _, a := range realAgents {
		t.Run(a.name, func(t *testing.T) { a.try(t, a.install(t, cache), model) })
	}
}

func (a realAgent) try(t *testing.T, bin, model string) {
	h := &hosting{daemon: unstarted(t, "noused"), checker: newHostedChecker()}
	home := filepath.Join(h.Dir, "home")
	var env strings.Builder
	put := strings.NewReplacer("$MODEL", model, "$KEY", aimockKey)
	for name, value := range a.env {
		fmt.Fprintf(&env, "%s = %q, ", name, put.Replace(value))
	}
	for name, text := range a.files {
		h.write(filepath.Join("home", name), text, 0o600)
	}
	command := append([]string{filepath.Join(bin, a.command[0])}, a.command[1:]...)
	h.write("noused/config.toml", fmt.Sprintf("[agent.%s]\ncommand = [\"%s\"]\n"+
		"env = { %sHOME = %q, XDG_CONFIG_HOME = %q, XDG_DATA_HOME = %q, XDG_STATE_HOME = %q, XDG_CACHE_HOME = %q, "+
		"PATH = %q }\n",
		a.name, strings.Join(command, `", "`), env.String(), home,
		filepath.Join(home, "c"), filepath.Join(home, "d"), filepath.Join(home, "s"), filepath.Join(home, "k"),
		os.Getenv("PATH")), 0o600)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Start()
	h.follow()
	h.session = h.newSession(a.name)

	h.prompt("Say hello")
	h.sees("run ends completed", "message end: Hello.")

	ran := filepath.Join(h.Dir, "ran.txt")
	h.prompt(a.ask)
	h.until("asks *")
	h.answer("deny")
	h.until("run ends *")
	if _, err := os.Stat(ran); err == nil {
		t.Error("it did what it was denied")
	}
	h.prompt(a.ask)
	h.until("asks *")
	h.answer("once")
	h.sees("run ends completed", "message end: I see.")
	if text, _ := os.ReadFile(ran); string(text) != "done\n" {
		t.Errorf("the command that was allowed has written %q", text)
	}

	h.prompt("Tell a story")
	h.until("delta: *")
	h.queue(protocol.KindFollowUp, "Another one")
	h.sees("run ends completed", "turn follow_up", "message end: There is no other.")

	h.prompt("Tell a story")
	h.until("delta: *")
	h.queue(protocol.KindSteer, "Another one")
	h.sees("run ends completed", "turn ends steered", "message end: There is no other.")

	h.prompt("Tell a story")
	h.until("delta: *")
	h.abort()
	h.until("run ends aborted")
	h.prompt("Say hello")
	h.sees("run ends completed", "message end: Hello.")

	a.besides(h, bin)

	h.prompt("Tell a story")
	h.until("delta: *")
	h.Kill()
	if left, _ := exec.Command("pgrep", "-f", bin).Output(); len(bytes.TrimSpace(left)) > 0 {
		t.Errorf("the agent outlives the daemon: %s", left)
	}
	h.Start()
	h.follow()
	h.sees("run ends completed", "resumed")
	h.prompt("Say hello")
	h.sees("run ends completed", "message end: Hello.")
}

// besides has the agent work in two sessions at once, while the daemon starts anew:
// NOUSED_TEST_RESTARTS times, or twice.
func (a realAgent) besides(h *hosting, bin string) {
	h.t.Helper()
	other := *h
	other.checker, other.alone = newHostedChecker(), true
	other.session = h.newSession(a.name)
	other.follow()
	h.alone = true

	other.prompt("Say hello")
	other.sees("run ends completed", "message end: Hello.")
	processes := h.running(bin)
	if len(processes) != 1 {
		h.t.Errorf("%d processes of the agent serve two sessions, want one", len(processes))
	}
	times := 2
	if n, err := strconv.Atoi(os.Getenv("NOUSED_TEST_RESTARTS")); err == nil {
		times = n
	}
	for range times {
		h.prompt("Tell a story")
		h.until("delta: *")
		other.prompt(a.ask)
		other.until("asks *")
		lines := h.restart()
		other.rest()
		other.answer("once")
		other.sees("run ends completed", "message end: I see.")
		if !runEnded(lines) {
			lines = append(lines, h.until("run ends completed")...)
		}
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "message end: Once upon a time") && strings.HasSuffix(line, "before it.")
		}) || slices.Contains(lines, "resumed") {
			h.t.Errorf("the story is not told without a gap: %q", lines)
		}
	}
	if now := h.running(bin); !slices.Equal(now, processes) {
		h.t.Errorf("the agent's process is %v, and was %v", now, processes)
	}
}

// running are the daemon's children that run a program of that folder.
func (h *hosting) running(bin string) (pids []int) {
	h.t.Helper()
	for _, pid := range h.children() {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(line, []byte(bin)) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// sees reads events to one, and wants the others among them in this order.
func (h *hosting) sees(end string, want ...string) {
	h.t.Helper()
	lines := h.until(end)
	for _, line := range lines {
		if len(want) > 0 && line == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		h.t.Errorf("no %q in %q", want[0], lines)
	}
}

// answer answers the approval that waits.
func (h *hosting) answer(option string) {
	h.t.Helper()
	pending := h.state().PendingApprovals
	if len(pending) != 1 {
		h.t.Fatalf("got %+v, want one question", pending)
	}
	_, err := client.Call(context.Background(), h.dial(), protocol.Approve, protocol.ApproveParams{
		ApprovalID: pending[0].ApprovalID, Option: option,
	})
	if err != nil {
		h.t.Fatal(err)
	}
}
