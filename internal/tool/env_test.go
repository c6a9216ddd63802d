package tool

import (
	"slices"
	"testing"
)

// marked is the variable that marks a Supervisor's children.
const marked = "NOUSED_CHILD"

func TestSecretsReachNoToolThatDoesNotNameThem(t *testing.T) {
	daemon := []string{
		"HOME=/h", "PATH=/bin", "OPENAI_API_KEY=sk-1", "GITHUB_TOKEN=gh", "AWS_SECRET_ACCESS_KEY=aws", "DB_PASSWORD=p",
		"XDG_CACHE_HOME=/c", "XDG_SYNC_TOKEN=xdg", "LC_ALL=C", "LC_API_KEY=lc",
		"NOTIFY_SOCKET=/n", "LISTEN_FDS=2", "LISTEN_PID=1", "LISTEN_FDNAMES=a", "WATCHDOG_USEC=1", "WATCHDOG_PID=1",
		marked + "=outer.1",
	}
	for _, c := range []struct {
		env  string
		want []string
	}{
		{`{}`, nil},
		{`{"KEY":"{env.OPENAI_API_KEY}"}`, []string{"KEY=sk-1"}},
		{`{"OPENAI_API_KEY":"{env.OPENAI_API_KEY}"}`, []string{"OPENAI_API_KEY=sk-1"}},
		{`{"A":"{env.NOTIFY_SOCKET}{env.LISTEN_FDS}{env.WATCHDOG_USEC}{env.` + marked + `}"}`, []string{"A="}},
		{`{"A":"{env.LISTEN_{env.HOME}FDS}"}`, []string{"A={env.LISTEN_/hFDS}"}},
	} {
		d, err := parse(`{`+minimal+`,"env":`+c.env+`}`, daemon...)
		if err != nil {
			t.Fatal(err)
		}
		want := append([]string{"HOME=/h", "PATH=/bin", "LC_ALL=C", "XDG_CACHE_HOME=/c"}, c.want...)
		slices.Sort(want)
		if got := d.Environ(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", c.env, got, want)
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", marked} {
		if _, err := parse(`{` + minimal + `,"env":{"` + name + `":"x"}}`); err == nil {
			t.Errorf("a descriptor could set %s", name)
		}
	}
}
