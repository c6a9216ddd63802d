package credentials

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.M{M: m}.Run()) }

// Keys that several processes save at once are all there afterwards, in a file that only
// this user may read.
func TestNoKeyIsLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "noused")
	var saving sync.WaitGroup
	for _, provider := range []string{"anthropic", "openai", "gemini", "my.own-one"} {
		saving.Go(func() {
			if err := Save(dir, provider, "sk-"+provider); err != nil {
				t.Errorf("%s: %v", provider, err)
			}
		})
	}
	saving.Wait()
	if err := Forget(dir, "gemini"); err != nil {
		t.Error(err)
	}
	keys, err := Read(dir)
	want := map[string]string{"anthropic": "sk-anthropic", "openai": "sk-openai", "my.own-one": "sk-my.own-one"}
	if diff := cmp.Diff(want, keys); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

// What cannot be a key is refused before anything is written, and a bad file as a whole; no
// error says a key.
func TestWhatIsNoKeyIsRefused(t *testing.T) {
	for _, key := range []string{"sk secret", "sk-secret\n", "“secret”", "secret\x00", strings.Repeat("secret", 20_000)} {
		dir := t.TempDir()
		err := Save(dir, "openai", key)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.20q: got %v", key, err)
		}
		if _, err := os.Stat(filepath.Join(dir, FileName)); err == nil {
			t.Errorf("%.20q was written", key)
		}
	}
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
		left int
	}{
		"others may read it": {"openai = \"sk-secret\"\n", 0o640, "chmod 600", 0},
		"no TOML":            {"openai = sk-secret\n", 0o600, "credentials.toml", 0},
		"a number":           {"openai = 7\n", 0o600, "credentials.toml", 0},
		"a section":          {"[openai]\nkey = \"sk-secret\"\n", 0o600, "credentials.toml", 0},
		"two lines":          {"openai = \"sk-\\nsecret\"\nxai = \"sk-good\"\n", 0o600, `"openai"`, 1},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		keys, err := Read(dir)
		if err == nil || len(keys) > c.left || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, %v", name, keys, err)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a link is followed")
	}
}

func TestParseEnvironment(t *testing.T) {
	values, errs := ParseEnvironment("# keys\n; more\n\nA=1\n export B = two words \nC=\"say \\\"hi\\\" " +
		"\\\\\"\nD='$HOME \\'\nE=\nno line\n1X=2\nF=\"open\n")
	want := map[string]string{"A": "1", "B": "two words", "C": `say "hi" \`, "D": `$HOME \`, "E": ""}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	said := []string{}
	for _, err := range errs {
		said = append(said, err.Error())
	}
	if diff := cmp.Diff([]string{
		"line 9: want NAME=value", "line 10: want NAME=value",
		"line 11: the value of F does not end in its quote, or has a NUL",
	}, said); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzParseEnvironment(f *testing.F) {
	f.Add("A=1\nB='x'\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, _ := ParseEnvironment(text)
		for name, value := range values {
			if name == "" || strings.ContainsAny(name, "= \n\x00") || strings.ContainsRune(value, 0) {
				t.Errorf("%q is %q", name, value)
			}
		}
	})
}

// The process's own environment comes first; what the file no longer has is gone at the next
// load, and what it never had stays.
func TestLoadTakesTheFileAnew(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_TEST_OURS", "process")
	for _, name := range []string{"CREDENTIALS_TEST_A", "CREDENTIALS_TEST_B"} {
		t.Setenv(name, "")
	}
	var e Environment
	load := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, EnvironmentName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if errs := e.Load(dir); len(errs) > 0 {
			t.Error(errs)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		got := []string{os.Getenv("CREDENTIALS_TEST_OURS"), os.Getenv("CREDENTIALS_TEST_A"), os.Getenv("CREDENTIALS_TEST_B")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	load("CREDENTIALS_TEST_OURS=file\nCREDENTIALS_TEST_A=1\nCREDENTIALS_TEST_B=2\n")
	expect("process", "1", "2")
	if left := strings.Join(e.Without(os.Environ()), "\n"); strings.Contains(left, "CREDENTIALS_TEST_A") ||
		!strings.Contains(left, "CREDENTIALS_TEST_OURS=process") {
		t.Errorf("the next program would be given\n%s", left)
	}
	load("CREDENTIALS_TEST_A=3\n")
	expect("process", "3", "")
	if err := os.Remove(filepath.Join(dir, EnvironmentName)); err != nil {
		t.Fatal(err)
	}
	if errs := e.Load(dir); len(errs) > 0 {
		t.Error(errs)
	}
	expect("process", "", "")
}

// A writer that was killed leaves a file with keys; the next one removes it, and nothing else.
func TestALeftoverOfACrashGoes(t *testing.T) {
	dir := t.TempDir()
	left, other := filepath.Join(dir, "."+FileName+"123456"), filepath.Join(dir, "."+FileName+".mine")
	for _, path := range []string{left, other} {
		if err := os.WriteFile(path, []byte("openai = \"sk-half\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Save(dir, "openai", "sk-new"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
	if keys, err := Read(dir); err != nil || keys["openai"] != "sk-new" {
		t.Errorf("got %v, %v", keys, err)
	}
}

// A wrong key goes, and the one before it comes back; one that another login has saved since
// stays.
func TestAWrongKeyIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ now, before, want string }{
		{"wrong", "", ""}, {"wrong", "older", "older"}, {"newer", "older", "newer"}, {"newer", "", "newer"},
	} {
		if err := Save(dir, "p", c.now); err != nil {
			t.Fatal(err)
		}
		if err := TakeBack(dir, "p", "wrong", c.before); err != nil {
			t.Fatal(err)
		}
		if keys, err := Read(dir); keys["p"] != c.want || err != nil {
			t.Errorf("of %+v %q is left, %v", c, keys["p"], err)
		}
	}
}
