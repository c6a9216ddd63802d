package xdg

import "testing"

// A base folder is what its variable says, if that is absolute, and else in the home folder.
func TestBaseFolders(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{"/c", "/c"},
		{"c", "/h/.config"},
		{"", "/h/.config"},
	} {
		getenv := func(name string) string { return map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": c.config}[name] }
		if got := Config(getenv); got != c.want {
			t.Errorf("with %q: got %s, want %s", c.config, got, c.want)
		}
		if got := State(getenv); got != "/h/.local/state" {
			t.Errorf("got %s", got)
		}
	}
	if got := Home(func(string) string { return "" }); got == "" {
		t.Error("without HOME there is no home folder")
	}
}
