package builtin

import (
	"os"
	"path/filepath"
	"testing"

	"noused/internal/proc"
)

// What the sandbox hides is refused in words, by whatever name it is asked for.
func TestTheDaemonsOwnIsRefused(t *testing.T) {
	dir := files(t, map[string]string{
		"config/environment": "KEY=secret\n", "config/tools.d/tool": "a KEY\n", "here/file": "a KEY\n",
		"here/dir/environment": "",
	})
	must(t, os.Symlink("../config", filepath.Join(dir, "here", "link")))
	must(t, os.Symlink("../config/environment", filepath.Join(dir, "here", "env")))
	t.Setenv(proc.HiddenVariable, proc.Hidden{
		Paths:  []string{proc.Resolve(filepath.Join(dir, "config"))},
		Except: []string{proc.Resolve(filepath.Join(dir, "config/tools.d"))},
	}.String())
	const refusal = " is hidden from tools in the sandbox: it may hold keys, or is the daemon's own"
	for _, c := range []struct{ op, args, want string }{
		{"read", `{"path":"../config/environment"}`, "failed: ../config/environment" + refusal},
		{"read", `{"path":"link/environment"}`, "failed: link/environment" + refusal},
		{"read", `{"path":"env"}`, "failed: env" + refusal},
		{"read", `{"path":"../config/missing"}`, "failed: ../config/missing" + refusal},
		{"edit", `{"path":"env","old_text":"KEY","new_text":"x"}`, "failed: env" + refusal},
		{"grep", `{"path":"../config","pattern":"KEY"}`, "failed: ../config" + refusal},
		{"grep", `{"path":"env","pattern":"KEY"}`, "failed: env" + refusal},
		{"grep", `{"path":"..","pattern":"KEY"}`, "../here/file:1: a KEY\n[1 folder could not be read]"},
		{"find", `{"path":"..","pattern":"environment"}`, "../here/dir/environment\n[1 folder could not be read]"},
		{"find", `{"path":"link","pattern":"*"}`, "failed: link" + refusal},
		{"ls", `{"path":"link"}`, "failed: link" + refusal},
		{"read", `{"path":"link/tools.d/tool"}`, "     1\ta KEY\n"},
	} {
		t.Run(c.op+c.args, func(t *testing.T) { expect(t, do(t, filepath.Join(dir, "here"), c.op, c.args).text(), c.want) })
	}
}

func TestCommandsAreNotToldWhatIsHidden(t *testing.T) {
	t.Setenv(proc.HiddenVariable, "-/x")
	expect(t, do(t, t.TempDir(), "bash", `{"command":"env | grep -c ^NOUSED_HIDDEN"}`).text(), "failed: exit status 1\n0")
}
