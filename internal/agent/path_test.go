package agent

import (
	"os"
	"path/filepath"
	"testing"

	"noused/internal/trust"
)

// An agent outside the sandbox is no program that one in the sandbox can have made.
func TestAPlantedAgentIsNotStarted(t *testing.T) {
	folder, own := t.TempDir(), t.TempDir()
	for _, dir := range []string{folder, own} {
		if err := os.WriteFile(filepath.Join(dir, "speaker"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+own)
	trust.Writable(folder)
	for confined, want := range map[bool]string{false: own, true: folder} {
		path, err := Spec{Name: "a", Command: []string{"speaker"}, Sandbox: confined}.Path()
		if err != nil || filepath.Dir(path) != want {
			t.Errorf("confined %t: got %s, %v, want the one in %s", confined, path, err, want)
		}
	}
}
