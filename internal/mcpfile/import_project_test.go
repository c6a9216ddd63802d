package mcpfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Claude keeps the servers that were added in a folder with that folder's project.
func TestImportTakesTheServersOfTheFoldersProject(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(root, "app", "web")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "app"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "claude.json")
	text := `{"mcpServers":{"git":{"command":"all"},"db":{"command":"all"}},"projects":{
		"` + root + `/link":{"mcpServers":{"git":{"command":"app"},"lint":{"command":"app"}}},
		"` + root + `":{"mcpServers":{"git":{"command":"root"}}},
		"` + root + `/app2":{"mcpServers":{"x":{"command":"app2"}}},
		"` + root + `/none":{"mcpServers":{}}, "odd":7, "relative":{"mcpServers":{"y":{"command":"y"}}}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		sub:                         "db=all git=app lint=app",
		filepath.Join(root, "app"):  "db=all git=app lint=app",
		filepath.Join(root, "app2"): "db=all git=all x=app2",
		root:                        "db=all git=root",
		"/nowhere":                  "db=all git=all",
	} {
		all, elsewhere, err := Import(path, folder)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range all {
			got = append(got, one.From+"="+one.Server.Command)
			noted := strings.Contains(strings.Join(one.Notes, ""), "is of the project "+root)
			if own := one.Server.Command != "all"; noted != own {
				t.Errorf("%s: %s has the notes %q", folder, one.From, one.Notes)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", folder, got, want)
		}
		if others := 4; folder != "/nowhere" && len(elsewhere) != others-1 || !slices.Contains(elsewhere, "relative") {
			t.Errorf("%s: elsewhere are %q", folder, elsewhere)
		}
	}
}
