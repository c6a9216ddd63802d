package doctor

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/mcpfile"
	"noused/internal/tool"
)

// tools looks at every descriptor as the daemon reads them (tools.md §1), and
// starts none of the programs.
func (e *exam) tools(ctx context.Context) {
	if info, err := os.Stat(e.Workdir); err != nil || !info.IsDir() {
		e.fail(Tools, "name a folder with --workdir", "the working folder %s is not a folder", e.Workdir)
	}
	defer e.hidden()
	defer e.confinement()
	defer e.noSandbox()
	defer e.unused()
	taken := map[string]string{}
	for _, d := range e.Builtin {
		taken[d.Name] = "the built-in tools"
		e.tool(d, "the built-in tools")
	}
	for _, dir := range e.ToolsDirs {
		entries, err := os.ReadDir(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			e.ok(Tools, "%s does not exist; no tools are loaded from it", dir)
			continue
		case err != nil:
			e.fail(Tools, "make it a folder that you can read, or name another with --tools-dir", "%v", err)
			continue
		}
		e.replaceable(dir)
		for _, entry := range entries {
			if ctx.Err() != nil {
				return
			}
			if !strings.HasSuffix(entry.Name(), ".json") || strings.HasPrefix(entry.Name(), ".") {
				continue
			}
			e.descriptor(filepath.Join(dir, entry.Name()), taken)
		}
	}
	e.servers(taken)
}

// servers looks at every entry of mcp.json as the daemon reads it. No server is
// started, and none over http is asked.
func (e *exam) servers(taken map[string]string) {
	const correct = "correct it; docs/mcp.md describes every field"
	f, err := mcpfile.Read(e.ServersFile)
	if err != nil {
		e.fail(Tools, correct, "%v", err)
		return
	}
	e.readable(e.ServersFile)
	for _, err := range f.Errors {
		e.fail(Tools, correct, "%v", err)
	}
	for _, s := range f.Servers {
		if s.Disabled {
			e.ok(Tools, "mcp server %s (%s) is disabled", s.Name, s.Place)
			continue
		}
		for _, field := range s.Ignored {
			e.warn(Tools, "remove it, if it matters in no other program", "%s: %q does nothing here", s.Place, field)
		}
		d, err := tool.EntryDescriptor(s, filepath.Dir(e.ServersFile), e.Workdir, e.Environ)
		if err != nil {
			e.fail(Tools, correct, "%v", err)
			continue
		}
		if first := taken[d.Name]; first != "" {
			e.fail(Tools, "give it another name", "%s: the name %s is taken by %s", s.Place, d.Name, first)
			continue
		}
		taken[d.Name] = s.Place.File
		e.found = append(e.found, d)
		e.tool(d, fmt.Sprintf("mcp server %s (%s:%d)", d.Name, s.Place.File, s.Place.Line))
	}
}

// readable reports a file with secrets that others may read.
func (e *exam) readable(path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return
	}
	e.mend(Finding{
		Status: Warn, Area: Tools, What: fmt.Sprintf("others may read %s (mode %04o), which may hold keys", path,
			info.Mode().Perm()), Fix: "chmod 600 " + quote(path),
	}, "others cannot any more", func() error { return restrict(path, 0o600) })
}

// hidden tells what sandboxed tools cannot read, of what is there, and whether they
// have the network.
func (e *exam) hidden() {
	var there, unseen []string
	for _, path := range e.Hidden {
		switch _, err := os.Stat(path); {
		case slices.Contains(there, path) || slices.Contains(unseen, path):
		case err == nil:
			there = append(there, path)
		case errors.Is(err, fs.ErrPermission):
			unseen = append(unseen, path)
		}
	}
	if len(unseen) > 0 {
		e.ok(Tools, "this user cannot look at, and so neither can its tools: %s", strings.Join(unseen, ", "))
	}
	e.ok(Tools, "tools in the sandbox cannot read, of what is there: %s", cmp.Or(strings.Join(there, ", "), "nothing"))
	for _, dir := range e.Dots {
		e.ok(Tools, "tools in the sandbox can read, of what begins with a dot in %s, only toolchains and settings", dir)
	}
	if e.Offline {
		e.ok(Tools, "tools in the sandbox cannot use the network")
	}
}

// unused reports what the policy says and nothing fits: it may be misspelt.
func (e *exam) unused() {
	for _, rule := range tool.Unused(e.Policy, slices.Concat(e.Builtin, e.found)) {
		e.warn(Tools, "correct it there; nous tools shows the names", "the policy's pattern %q fits no tool: %s", rule.Tool,
			rule.Place)
	}
}

// replaceable reports a folder in which everybody could put a program that the
// daemon starts.
func (e *exam) replaceable(dir string) {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o002 == 0 {
		return
	}
	e.mend(Finding{
		Status: Fail, Area: Tools, What: fmt.Sprintf("every user may put tools into %s (mode %04o)", dir, info.Mode().Perm()),
		Fix: "chmod o-w " + quote(dir),
	}, "others cannot any more", func() error { return restrict(dir, info.Mode().Perm()&^0o002) })
}

func (e *exam) descriptor(file string, taken map[string]string) {
	d, err := tool.LoadDescriptor(file, e.Workdir, e.Environ)
	if err != nil {
		fix := "correct it; docs/tools.md describes every field"
		if field := (*tool.FieldError)(nil); errors.As(err, &field) {
			fix = "correct the field " + field.Field + "; docs/tools.md describes it"
		}
		e.fail(Tools, fix, "%v", err)
		return
	}
	if first := taken[d.Name]; first != "" {
		e.fail(Tools, "give it another name", "tool descriptor %s: name: %q is taken by %s", file, d.Name, first)
		return
	}
	taken[d.Name] = file
	e.found = append(e.found, d)
	for _, what := range d.Ignored {
		e.warn(Tools, "correct or remove it; docs/tools.md describes every field", "tool descriptor %s: %s", file, what)
	}
	e.tool(d, fmt.Sprintf("%s %s (%s)", d.Kind, d.Name, file))
}

// tool looks whether a tool could be started, in the sandbox that it asks for.
func (e *exam) tool(d *tool.Descriptor, who string) {
	where := "at " + d.Transport.URL + " (not contacted)"
	if d.Transport.Type == "stdio" {
		command, err := d.Command()
		if err == nil {
			err = interpreter(d, command.Path)
		}
		if err != nil {
			e.fail(Tools, "install the program, make it executable (chmod +x), or correct transport.command or workdir",
				"%s: %v", who, err)
			return
		}
		where = command.Path
		if d.File == "" {
			where = "part of noused"
		}
	}
	if d.Sandbox == tool.SandboxNone {
		e.ok(Tools, "%s: %s", who, where)
		return
	}
	e.boxed = true
	err := e.sandbox(*d)
	switch {
	case err == nil:
		e.ok(Tools, "%s: %s, in a sandbox", who, where)
	case d.SandboxRequired:
		e.fail(Tools, "use a kernel that has Landlock (Linux 6.2 or later, with landlock in the boot parameter lsm=), or "+
			"do without the sandbox",
			"%s is refused, because its sandbox is not possible: %v", who, err)
	default:
		e.warn(Tools, "use a kernel that has Landlock (Linux 6.2 or later)",
			"%s runs with a weaker sandbox than it asks for: %v", who, err)
	}
}

// sandbox is an error where a tool cannot have its sandbox. It is asked for one
// that is required, with a folder to write to of its own, so that the answer is
// plain and no cache folder is made for it.
func (e *exam) sandbox(d tool.Descriptor) error {
	d.SandboxRequired, d.SandboxWrite = true, []string{d.Workdir}
	return e.Sandbox(&d)
}

// noSandbox says whether there would be sandboxes, where no tool has told yet.
func (e *exam) noSandbox() {
	if e.boxed {
		return
	}
	err := e.sandbox(tool.Descriptor{
		Name: "any", Sandbox: tool.SandboxWorkdir, Workdir: e.Workdir, Transport: tool.Transport{
			Type:    "stdio",
			Command: []string{"true"},
		},
	})
	if err != nil {
		e.ok(Tools, "no tool asks for a sandbox; none is possible here: %v", err)
		return
	}
	e.ok(Tools, "no tool asks for a sandbox; the kernel supports it")
}

// socketABI is the first version of Landlock that closes other programs' sockets.
const socketABI = 9

// confinement tells what the sandbox is made of here, and what it does not do where it
// has no namespaces.
func (e *exam) confinement() {
	abi, namespaces := e.Confinement()
	if abi == 0 {
		return // every tool was reported
	}
	if namespaces {
		e.ok(Tools, "the sandbox is made of namespaces and Landlock %d", abi)
		return
	}
	lacks := "tools have no terminals of their own"
	if abi < socketABI {
		lacks += ", and can connect to sockets of your other programs (tmux, D-Bus, Docker)"
	}
	e.warn(Tools, namespacesFix(),
		"the sandbox is made of Landlock %d alone, because this system forbids user namespaces: %s", abi, lacks)
	workdir, err := filepath.EvalSymlinks(e.Workdir)
	if err != nil {
		return // told already
	}
	for _, path := range e.Hidden {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		if rel, err := filepath.Rel(workdir, path); err == nil && filepath.IsLocal(rel) {
			e.fail(Tools, "allow user namespaces, as above, or name another folder with --workdir",
				"tools cannot create files in the working folder %s: without user namespaces, %s in it can only be hidden by that",
				e.Workdir, path)
			return
		}
	}
}

// namespacesFix is how to allow user namespaces, by what forbids them.
func namespacesFix() string {
	for _, forbids := range []struct{ file, value, fix string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sudo sysctl user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl kernel.unprivileged_userns_clone=1"},
		{
			"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
			"give noused an AppArmor profile with userns, as docs/tools.md shows",
		},
	} {
		if text, err := os.ReadFile(forbids.file); err == nil && strings.TrimSpace(string(text)) == forbids.value {
			return forbids.fix
		}
	}
	return "allow user namespaces; a container needs CAP_SYS_ADMIN for it, or a seccomp profile that lets it have them"
}

// interpreter is an error where the program is a script whose interpreter is
// missing.
func interpreter(d *tool.Descriptor, program string) error {
	f, err := os.Open(program)
	if err != nil {
		return nil // it may be executable and not readable
	}
	defer func() { _ = f.Close() }()
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n') // as much as the kernel reads
	script, ok := strings.CutPrefix(line, "#!")
	words := strings.Fields(script)
	if !ok || err != nil || len(words) == 0 {
		return nil
	}
	if filepath.Base(words[0]) == "env" {
		if len(words) != 2 { // options of env
			return nil
		}
		words = words[1:]
	}
	if _, err := d.LookPath(words[0]); err != nil {
		return fmt.Errorf("the interpreter of %s: %w", program, err)
	}
	return nil
}
