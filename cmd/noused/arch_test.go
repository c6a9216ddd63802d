package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// layer says what the packages of a pattern may import: which of ours, and
// whether anything from outside the standard library, and the logger.
type layer struct {
	pattern    string // "/..." takes what is beneath, too
	ours       []string
	stdlibOnly bool
	logs       bool
}

// layers are those of docs/architecture.md. The first pattern that fits a
// package is its rule; cmd/noused wires everything and has none.
var layers = []layer{
	{pattern: "internal/model", stdlibOnly: true},
	{pattern: "internal/budget", stdlibOnly: true},
	{pattern: "internal/protocol", ours: []string{"internal/budget"}},
	{pattern: "internal/protocol/gen", ours: []string{"internal/protocol"}},
	{pattern: "internal/protocol/protocoltest", ours: []string{"internal/protocol"}},
	{pattern: "internal/buildinfo", ours: []string{"internal/protocol"}},
	{pattern: "internal/queue", ours: []string{"internal/protocol"}},
	{pattern: "internal/plaintext", stdlibOnly: true},
	{pattern: "internal/sse", stdlibOnly: true},
	{pattern: "internal/xdg", stdlibOnly: true},
	{pattern: "internal/format", stdlibOnly: true},
	{pattern: "internal/policy", ours: []string{"internal/tomlfile"}},
	{pattern: "internal/tomlfile"},
	{pattern: "internal/gitfile", ours: []string{"internal/regular"}},
	{pattern: "internal/cmdline"},
	{pattern: "internal/licences"},
	{pattern: "internal/manpage", ours: []string{"internal/cmdline"}},
	{pattern: "internal/manpage/gen", ours: []string{"internal/manpage"}},
	{pattern: "internal/manpage/manpagetest", stdlibOnly: true},
	{pattern: "internal/regular"},
	{pattern: "internal/idlemem"},
	{pattern: "internal/jsonschema"},
	{pattern: "internal/form", ours: []string{"internal/jsonschema"}},
	{pattern: "internal/trust"},
	{pattern: "internal/worktree", ours: []string{
		"internal/gitfile", "internal/regular", "internal/trust", "internal/xdg",
	}},
	{pattern: "internal/changes", ours: []string{
		"internal/budget", "internal/gitfile", "internal/regular", "internal/worktree",
	}},
	{pattern: "internal/mcpfile", ours: []string{"internal/regular"}},
	{pattern: "internal/instructions", ours: []string{"internal/regular", "internal/trust"}},
	{pattern: "internal/lock", ours: []string{"internal/regular"}},
	{pattern: "internal/detach", ours: []string{"internal/regular", "internal/xdg"}},
	{pattern: "internal/oauth", ours: []string{"internal/lock", "internal/regular"}},
	{pattern: "internal/oauth/oauthtest"},
	{pattern: "internal/event", ours: []string{"internal/protocol"}},
	{pattern: "internal/session", ours: []string{
		"internal/model", "internal/protocol", "internal/lock",
		"internal/regular",
	}},
	{pattern: "internal/session/sessiontest", ours: []string{
		"internal/protocol", "internal/protocol/protocoltest",
		"internal/model", "internal/session",
	}},
	{pattern: "internal/runloop", ours: []string{
		"internal/budget", "internal/plaintext", "internal/protocol",
		"internal/model", "internal/queue", "internal/session", "internal/form", "internal/jsonschema",
	}},
	{pattern: "internal/server", ours: []string{
		"internal/budget", "internal/protocol", "internal/event", "internal/lock",
		"internal/trust",
	}, logs: true},
	{pattern: "internal/audit", ours: []string{"internal/model", "internal/regular"}, logs: true},
	{pattern: "internal/fleet", ours: []string{"internal/regular"}},
	{pattern: "internal/fleet/host", ours: []string{
		"internal/budget", "internal/event", "internal/fleet",
		"internal/model", "internal/protocol",
	}, logs: true},
	{pattern: "internal/fleet/job", ours: []string{"internal/fleet", "internal/protocol"}},
	{pattern: "internal/fleet/work", ours: []string{
		"internal/event", "internal/fleet", "internal/fleet/job",
		"internal/model", "internal/protocol", "internal/regular", "internal/worktree",
	}, logs: true},
	{pattern: "internal/fleet/via", ours: []string{
		"internal/budget", "internal/client", "internal/client/hosts", "internal/fleet",
		"internal/protocol",
	}},
	{pattern: "internal/fleet/fleettest"},
	{pattern: "internal/proc", ours: []string{
		"internal/protocol", "internal/regular", "internal/idlemem", "internal/trust",
	}, logs: true},
	{pattern: "internal/alert", ours: []string{"internal/protocol"}},
	{pattern: "internal/hook", ours: []string{
		"internal/format", "internal/hookfile", "internal/mcpfile", "internal/model", "internal/policy", "internal/proc",
		"internal/regular", "internal/trust",
	}},
	{pattern: "internal/hookfile", ours: []string{"internal/mcpfile", "internal/regular", "internal/tomlfile"}},
	{pattern: "internal/notify", ours: []string{
		"internal/alert", "internal/proc", "internal/protocol", "internal/trust",
	}, logs: true},
	{pattern: "internal/tool", ours: []string{
		"internal/cmdline",
		"internal/gitfile", "internal/mcpfile", "internal/proc", "internal/policy",
		"internal/jsonschema", "internal/model", "internal/regular", "internal/trust",
	}, logs: true},
	{pattern: "internal/tool/worker", ours: []string{"internal/tool", "internal/proc", "internal/protocol"}, logs: true},
	{pattern: "internal/tool/registry", ours: []string{
		"internal/mcpfile", "internal/tool", "internal/tool/worker",
		"internal/policy", "internal/proc", "internal/model", "internal/regular", "internal/format",
	}, logs: true},
	{pattern: "internal/tool/tooltest", ours: []string{"internal/model", "internal/testenv"}},
	{pattern: "internal/tool/mcp", ours: []string{
		"internal/budget", "internal/oauth", "internal/tool",
		"internal/tool/worker", "internal/proc", "internal/jsonschema", "internal/model", "internal/protocol",
		"internal/regular", "internal/sse",
	}, logs: true},
	{pattern: "internal/tool/...", ours: []string{
		"internal/tool", "internal/tool/worker", "internal/proc",
		"internal/jsonschema", "internal/model", "internal/protocol",
	}, logs: true},
	{pattern: "internal/model/credentials", ours: []string{"internal/lock", "internal/regular", "internal/tomlfile"}},
	{pattern: "internal/model/...", ours: []string{"internal/model", "internal/model/wire", "internal/sse"}},
	{pattern: "internal/doctor", ours: []string{
		"internal/format", "internal/hookfile", "internal/mcpfile", "internal/policy", "internal/session", "internal/tool",
		"internal/protocol", "internal/lock", "internal/regular", "internal/trust", "internal/model/credentials",
		"internal/model/wire",
	}},
	{pattern: "internal/client", ours: []string{"internal/protocol", "internal/trust"}},
	{pattern: "internal/start", ours: []string{
		"internal/client", "internal/detach", "internal/lock", "internal/protocol", "internal/regular",
		"internal/trust", "internal/xdg",
	}},
	{pattern: "internal/client/approval", ours: []string{"internal/form", "internal/plaintext", "internal/protocol"}},
	{pattern: "internal/client/actions", ours: []string{"internal/client", "internal/protocol"}},
	{pattern: "internal/client/plain", ours: []string{
		"internal/client/approval", "internal/client/conversation", "internal/plaintext", "internal/protocol",
		"internal/tui/cell",
	}},
	{pattern: "internal/client/export", ours: []string{
		"internal/buildinfo", "internal/client", "internal/client/conversation", "internal/client/plain",
		"internal/plaintext",
		"internal/protocol", "internal/regular",
	}},
	{pattern: "internal/client/machine", ours: []string{
		"internal/buildinfo", "internal/client", "internal/client/ssh", "internal/cmdline", "internal/fleet/via",
		"internal/protocol",
	}},
	{pattern: "internal/client/lookup", ours: []string{
		"internal/client", "internal/client/hosts", "internal/client/plain", "internal/protocol",
	}},
	{pattern: "internal/client/runs", ours: []string{
		"internal/client", "internal/client/approval", "internal/client/follow", "internal/client/plain",
		"internal/cmdline", "internal/plaintext", "internal/protocol", "internal/regular",
	}},
	{pattern: "internal/client/servers", ours: []string{
		"internal/client/approval", "internal/client/plain", "internal/hookfile", "internal/mcpfile",
		"internal/plaintext", "internal/protocol",
	}},
	{pattern: "internal/client/live", ours: []string{
		"internal/client", "internal/client/follow", "internal/client/hosts", "internal/client/plain",
		"internal/fleet", "internal/fleet/via", "internal/plaintext", "internal/protocol",
	}},
	{pattern: "internal/client/jobs", ours: []string{
		"internal/client/plain", "internal/fleet", "internal/fleet/job", "internal/fleet/via", "internal/protocol",
	}},
	{pattern: "internal/client/proxy", ours: []string{
		"internal/buildinfo", "internal/client", "internal/client/follow", "internal/client/ssh", "internal/protocol",
		"internal/start",
	}},
	{pattern: "internal/client/conversation", ours: []string{"internal/protocol"}},
	{pattern: "internal/client/follow", ours: []string{"internal/client", "internal/protocol"}},
	{pattern: "internal/client/ssh", ours: []string{
		"internal/budget", "internal/client", "internal/plaintext",
		"internal/protocol",
	}},
	{pattern: "internal/client/ssh/sshtest", stdlibOnly: true},
	{pattern: "internal/client/hosts", ours: []string{"internal/client", "internal/client/follow", "internal/protocol"}},
	{pattern: "internal/client/clienttest", ours: []string{"internal/protocol"}},
	{pattern: "internal/tui", ours: []string{
		"internal/alert", "internal/client/actions", "internal/client/approval", "internal/client",
		"internal/client/follow", "internal/tui/approvals",
		"internal/tui/board", "internal/tui/composer", "internal/tui/jobs", "internal/tui/keymap",
		"internal/tui/pick", "internal/tui/plain", "internal/tui/settings", "internal/tui/slash",
		"internal/tui/terminal", "internal/tui/transcript", "internal/tui/theme", "internal/tui/cell",
		"internal/gitfile", "internal/protocol", "internal/xdg",
	}},
	{pattern: "internal/tui/approvals", ours: []string{
		"internal/client/approval", "internal/tui/pick", "internal/tui/theme", "internal/tui/cell",
		"internal/plaintext", "internal/protocol", "internal/form",
	}},
	{pattern: "internal/tui/board", ours: []string{
		"internal/tui/approvals", "internal/tui/pick", "internal/tui/theme", "internal/tui/cell",
		"internal/protocol",
	}},
	{pattern: "internal/tui/composer", ours: []string{
		"internal/client/actions", "internal/regular",
		"internal/tui/settings", "internal/tui/slash", "internal/tui/theme", "internal/tui/cell",
		"internal/protocol",
	}},
	{pattern: "internal/tui/jobs"},
	{pattern: "internal/tui/keymap", ours: []string{"internal/tui/pick"}},
	{pattern: "internal/tui/plain", ours: []string{
		"internal/client/approval", "internal/client/follow", "internal/tui/approvals", "internal/tui/board",
		"internal/tui/composer", "internal/tui/jobs", "internal/tui/pick", "internal/tui/slash",
		"internal/tui/cell", "internal/protocol",
	}},
	{pattern: "internal/tui/settings", ours: []string{
		"internal/alert", "internal/tui/keymap", "internal/regular", "internal/tomlfile", "internal/xdg",
	}},
	{pattern: "internal/tui/slash", ours: []string{
		"internal/client/actions", "internal/client/approval", "internal/client",
		"internal/client/follow", "internal/cmdline", "internal/tui/settings",
		"internal/tui/terminal", "internal/tui/cell", "internal/protocol", "internal/regular",
	}},
	{pattern: "internal/tui/terminal", ours: []string{"internal/regular"}},
	{pattern: "internal/tui/transcript", ours: []string{
		"internal/client/conversation", "internal/tui/theme",
		"internal/tui/cell", "internal/tui/highlight", "internal/protocol",
	}},
	{pattern: "internal/tui/pick", ours: []string{
		"internal/tui/theme", "internal/tui/cell", "internal/tui/highlight", "internal/protocol",
	}},
	{pattern: "internal/tui/highlight", stdlibOnly: true},
	{pattern: "internal/tui/theme", ours: []string{"internal/tui/highlight"}},
	{pattern: "internal/tui/cell", ours: []string{"internal/plaintext"}},
	{pattern: "internal/tui/tuitest", ours: []string{"internal/protocol"}},
	{pattern: "internal/acp", ours: []string{"internal/protocol"}},
	{pattern: "internal/client/toolserver", ours: []string{"internal/client", "internal/protocol"}},
	{pattern: "internal/agent", ours: []string{
		"internal/acp", "internal/budget", "internal/format", "internal/model", "internal/policy", "internal/proc",
		"internal/trust",
	}},
	{pattern: "internal/agent/agenttest"},
	{pattern: "internal/agent/scripted", ours: []string{"internal/agent/agenttest"}},
	{pattern: "internal/acp/bridge", ours: []string{
		"internal/client/approval", "internal/acp", "internal/client",
		"internal/client/follow", "internal/plaintext", "internal/protocol", "internal/regular",
	}},
	{pattern: "internal/sim", stdlibOnly: true},
	{pattern: "internal/soak", ours: []string{"internal/client", "internal/daemontest", "internal/protocol"}},
	{pattern: "internal/setup", ours: []string{"internal/model/credentials", "internal/regular", "internal/xdg"}},
	{pattern: "cmd/nous", ours: []string{
		"internal/setup", "internal/model/catalogue", "internal/model/credentials",
		"internal/client/actions", "internal/client/approval", "internal/client/conversation", "internal/client/export",
		"internal/client/jobs", "internal/client/live", "internal/client/lookup", "internal/client/machine",
		"internal/client/plain",
		"internal/client/proxy", "internal/client/runs", "internal/client/servers",
		"internal/client/toolserver",
		"internal/acp/bridge", "internal/tui", "internal/buildinfo", "internal/client",
		"internal/client/follow", "internal/client/hosts", "internal/client/ssh", "internal/cmdline", "internal/detach",
		"internal/fleet", "internal/fleet/job", "internal/fleet/via", "internal/manpage", "internal/hookfile",
		"internal/mcpfile", "internal/plaintext", "internal/protocol", "internal/regular", "internal/start",
		"internal/tui/board", "internal/tui/cell", "internal/tui/settings", "internal/tui/slash",
		"internal/trust", "internal/worktree", "internal/form", "internal/jsonschema",
	}},
	{pattern: "internal/testenv", stdlibOnly: true},
	{pattern: "internal/daemontest", ours: []string{"internal/testenv"}},
}

const (
	ours   = "noused/"
	logger = "go.uber.org/zap"

	everywhere = "internal/format" // every package may import it that is not bound to the standard library
)

func (l layer) fits(pkg string) bool {
	above, beneath := strings.CutSuffix(l.pattern, "...")
	return pkg == l.pattern || beneath && strings.HasPrefix(pkg, above)
}

// allows tells why the layer may not import a package, "" if it may.
func (l layer) allows(imported string, standard bool) string {
	name, isOurs := strings.CutPrefix(imported, ours)
	switch {
	case standard, name == everywhere && isOurs && !l.stdlibOnly:
	case isOurs && !slices.Contains(l.ours, name):
		return "of ours it may import only " + strings.Join(l.ours, ", ")
	case isOurs:
	case l.stdlibOnly:
		return "it may import the standard library only"
	case !l.logs && (imported == logger || strings.HasPrefix(imported, logger+"/")):
		return "only the edges and main log"
	}
	return ""
}

func TestLayers(t *testing.T) {
	type listed struct {
		ImportPath string
		Imports    []string
		Standard   bool
	}
	var packages []listed
	standard := map[string]bool{}
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", "-deps", "noused/...").Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderrOf(err))
	}
	for dec := jsontext.NewDecoder(bytes.NewReader(out)); dec.PeekKind() == jsontext.KindBeginObject; {
		var p listed
		if err := json.UnmarshalDecode(dec, &p); err != nil {
			t.Fatal(err)
		}
		standard[p.ImportPath] = p.Standard
		if strings.HasPrefix(p.ImportPath, ours) {
			packages = append(packages, p)
		}
	}
	if len(packages) < len(layers)/2 {
		t.Fatalf("go list found %d packages of ours, fewer than there are", len(packages))
	}
	for _, p := range packages {
		pkg := strings.TrimPrefix(p.ImportPath, ours)
		if pkg == "cmd/noused" {
			continue
		}
		i := slices.IndexFunc(layers, func(l layer) bool { return l.fits(pkg) })
		if i < 0 {
			t.Errorf("%s belongs to no layer: add a rule for it to arch_test.go", pkg)
			continue
		}
		for _, imported := range p.Imports {
			if why := layers[i].allows(imported, standard[imported]); why != "" {
				t.Errorf("%s imports %s: %s", pkg, imported, why)
			}
		}
	}
}

func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return string(exit.Stderr)
	}
	return ""
}

// docs/architecture.md draws the layers that are checked here.
func TestLayersAreDrawn(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, l := range layers {
		fmt.Fprintln(&want, l)
	}
	_, rest, _ := strings.Cut(string(page), "```layers\n")
	if got, _, _ := strings.Cut(rest, "```"); got != want.String() {
		t.Errorf("docs/architecture.md draws other layers; put these between ```layers and ```:\n%s", want.String())
	}
}

// String is the layer's line in docs/architecture.md.
func (l layer) String() string {
	short := func(pkg string) string { return strings.TrimPrefix(pkg, "internal/") }
	may := make([]string, len(l.ours))
	for i, pkg := range l.ours {
		may[i] = short(pkg)
	}
	line := fmt.Sprintf("%-24s%s", short(l.pattern), cmp.Or(strings.Join(may, " "), "-"))
	if l.stdlibOnly {
		line += "; standard library only"
	}
	if l.logs {
		line += "; logs"
	}
	return line
}

func TestLayerRules(t *testing.T) {
	rule := func(pkg string) layer {
		return layers[slices.IndexFunc(layers, func(l layer) bool { return l.fits(pkg) })]
	}
	for _, c := range []struct {
		pkg, imported string
		standard, ok  bool
	}{
		{"internal/event", ours + "internal/protocol", false, true},
		{"internal/event", ours + "internal/server", false, false},
		{"internal/event", "time", true, true},
		{"internal/event", ours + "internal/format", false, true},
		{"internal/budget", ours + "internal/format", false, false},
		{"internal/event", logger, false, false},
		{"internal/event", logger + "/zapcore", false, false},
		{"internal/server", logger, false, true},
		{"internal/server", ours + "internal/runloop", false, false},
		{"internal/model", "encoding/json", true, true},
		{"internal/model", "github.com/google/uuid", false, false},
		{"internal/tool/gevals", ours + "internal/tool", false, true},
		{"internal/tool/gevals", ours + "internal/tool/narratoria", false, false},
		{"internal/tool/gevals", ours + "internal/tool/registry", false, false},
		{"internal/proc", ours + "internal/tool", false, false},
		{"internal/tool", ours + "internal/tool/worker", false, false},
		{"internal/model/offline", ours + "internal/protocol", false, false},
		{"cmd/nous", ours + "internal/session", false, false},
	} {
		if why := rule(c.pkg).allows(c.imported, c.standard); (why == "") != c.ok {
			t.Errorf("%s importing %s: got %q, want allowed %t", c.pkg, c.imported, why, c.ok)
		}
	}
}
