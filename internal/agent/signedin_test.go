package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// Who is signed in is told by the files that are there, and by the keys of the configuration.
func TestWhoIsSignedIn(t *testing.T) {
	home, elsewhere := t.TempDir(), t.TempDir()
	for _, path := range []string{
		filepath.Join(home, ".codex", "auth.json"), filepath.Join(elsewhere, "opencode", "auth.json"),
		filepath.Join(home, ".kimi", "credentials", "kimi-code.json"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0); err != nil { // which nobody can read
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(home, ".qwen", "oauth_creds.json"), 0o700); err != nil { // a folder
		t.Fatal(err)
	}
	known := map[string]Spec{}
	for _, s := range Known {
		known[s.Name] = s
	}
	known["keyed"] = Spec{Name: "keyed", Env: map[string]string{"SOME_API_KEY": "{env.SOME_API_KEY}"}}
	for _, row := range []struct {
		agent, variable string
		yes, known      bool
	}{
		{"codex", "", true, true},
		{"codex", "CODEX_HOME=" + elsewhere, false, true},
		{"claude", "", false, true},
		{"qwen", "", false, true},
		{"opencode", "", false, false},
		{"opencode", "XDG_DATA_HOME=" + elsewhere, true, true},
		{"kimi", "", true, true},
		{"cursor", "", false, false},
		{"goose", "", false, false},
		{"keyed", "SOME_API_KEY=sk", true, true},
		{"keyed", "SOME_API_KEY=", false, false},
	} {
		yes, can := known[row.agent].SignedIn([]string{"HOME=" + home, row.variable})
		if yes != row.yes || can != row.known {
			t.Errorf("%s with %s: got %t, known %t; want %t, %t", row.agent, row.variable, yes, can, row.yes, row.known)
		}
	}
}
