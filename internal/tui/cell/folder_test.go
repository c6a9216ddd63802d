package cell

import "testing"

func TestFolder(t *testing.T) {
	for _, c := range []struct {
		path, home string
		width      int
		want       string
	}{
		{"/home/ada/src/noused", "/home/ada", 30, "~/src/noused"},
		{"/home/ada", "/home/ada/", 30, "~"},
		{"/home/adam/src", "/home/ada", 30, "/home/adam/src"},
		{"/srv/x", "/", 30, "/srv/x"},
		{"/home/ada/src/clients/acme/website/public", "/home/ada", 20, "~/src/c…bsite/public"},
		{"/a\x1b[31m\nb", "", 30, "/a b"},
	} {
		got := Folder(c.path, c.home, c.width)
		if got != c.want || Width(got) > c.width {
			t.Errorf("%s in %d cells: got %q, want %q", c.path, c.width, got, c.want)
		}
	}
}
