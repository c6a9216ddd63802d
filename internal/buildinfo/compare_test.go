package buildinfo

import "testing"

func TestCompared(t *testing.T) {
	for _, c := range []struct{ daemon, own, want string }{
		{"v0.3.0", "v0.3.0", ""},
		{"v0.3.0", "v0.10.0", "older"},
		{"v1.0.0", "v0.10.0", "newer"},
		{"v0.3.1", "v0.3.0", "newer"},
		{"v0.3.0-rc.1", "v0.3.0", "another"},
		{"v0.2.9-rc.1+x", "v0.3.0", "older"},
		{"devel-0123456789ab", "v0.3.0", "another"},
		{"devel", "devel", ""},
		{"", "v0.3.0", ""},
		{"v1.2", "v1.2.3", "another"},
		{"v1.2.x", "v1.2.3", "another"},
		{"v-1.2.3", "v1.2.3", "another"},
	} {
		if got := compared(c.daemon, c.own); got != c.want {
			t.Errorf("a daemon %q to %q: got %q, want %q", c.daemon, c.own, got, c.want)
		}
	}
}
