package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigNamesHosts(t *testing.T) {
	got, err := Load(written(t, `
[hosts.box]
ssh = ["me@10.0.0.7", "-p", "2222"]
nous = "~/bin/nous"
workdir = "/srv/code"
[hosts."gpu.example.org"]
workdir = "/home/me"
[hosts.bare]
ssh = "elsewhere"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Host{
		"box":             {SSH: []string{"me@10.0.0.7", "-p", "2222"}, Nous: "~/bin/nous", Workdir: "/srv/code"},
		"gpu.example.org": {Workdir: "/home/me"},
		"bare":            {SSH: []string{"elsewhere"}},
	}
	if diff := cmp.Diff(want, got.hosts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorsOfAHostNameFileLineAndKey(t *testing.T) {
	for _, tc := range []struct{ text, line, want string }{
		{"[hosts.box]\nssh = 3", "2", "hosts.box.ssh: want a text, or a list of texts"},
		{"[hosts.box]\nssh = []", "2", "hosts.box.ssh: want a destination first"},
		{
			"[hosts.box]\nssh = [\"-oProxyCommand=sh\"]", "2",
			"hosts.box.ssh: the destination stands first: a host's name does not begin with -",
		},
		{"[hosts.box]\nssh = [\"box\", \"a\\nb\"]", "2", "hosts.box.ssh: want a text without control characters"},
		{"[hosts.box]\nssh = [" + strings.Repeat(`"a",`, maxHostArgs+1) + "]", "2", "hosts.box.ssh: has 65 words"},
		{"[hosts.box]\n\nnous = \"--help\"", "3", "hosts.box.nous: want the path of a program"},
		{"[hosts.box]\nworkdir = \"code\"", "2", "hosts.box.workdir: want an absolute path"},
		{"[hosts.box]\nworkdir = \"/" + strings.Repeat("x", maxHostArg) + "\"", "2", "hosts.box.workdir: has 4097 bytes"},
		{"[hosts.box]\nport = 22", "2", "hosts.box.port: there is no such key"},
		{"[hosts.\"-v\"]\nnous = \"nous\"", "2", "hosts.-v.nous: a host's name does not begin with -"},
		{"[hosts.\"a b\"]\nnous = \"nous\"", "2", "a host's name has no spaces"},
		{"[hosts]\nbox = 3", "2", ""},
		{"hosts = 3", "1", ""},
	} {
		path := written(t, tc.text)
		got, err := Load(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+":"+tc.line+": ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want line %s and %q", tc.text, err, tc.line, tc.want)
		}
		if len(got.hosts) > 0 {
			t.Errorf("%q: half of it holds: %v", tc.text, got.hosts)
		}
	}
}
