package mcp

import (
	"strings"
	"testing"

	"noused/internal/budget"
	"noused/internal/tool"
)

// What servers say has one room: what a manifestCache no longer keeps is given back, and a
// file for which there is none is not read.
func TestBooksShareARoom(t *testing.T) {
	says := func(text string) (*tool.Manifest, int) {
		m := &tool.Manifest{Operations: []tool.Operation{{Name: "x", Description: text, Params: []byte(`{}`)}}}
		return m, costOf(m)
	}
	_, size := says(strings.Repeat("x", 1000))
	dir := t.TempDir()
	l := &library{dir: dir, room: budget.New(2 * size), manifests: map[string]*manifestCache{}}
	server := func(url string) *manifestCache {
		return l.open(&tool.Descriptor{Transport: tool.Transport{Type: "http", URL: url}})
	}
	a := server("a")
	for _, text := range []string{"x", "x", "y"} { // the second says nothing new
		m, cost := says(strings.Repeat(text, 1000))
		if !l.room.Take(cost) {
			t.Fatalf("there is no room for %s, %d are used", text, l.room.Used())
		}
		if _, err := a.write("a", m, cost, false); err != nil {
			t.Fatal(err)
		}
		if l.room.Used() != size {
			t.Errorf("after %s got %d used, want %d", text, l.room.Used(), size)
		}
	}
	a.close()
	if l.room.Used() != 0 || len(l.manifests) != 0 {
		t.Errorf("a closed manifestCache: got %d used, %d manifests", l.room.Used(), len(l.manifests))
	}
	a = server("a")
	if m, _ := a.known(); m == nil || l.room.Used() != size {
		t.Errorf("read again: got %v, %d used, want %d", m, l.room.Used(), size)
	}
	a.close()
	l.room.Take(size + 1)
	a = server("a")
	if m, _ := a.known(); m != nil || l.room.Used() != size+1 {
		t.Errorf("without room: got %v, %d used, want none, %d", m, l.room.Used(), size+1)
	}
}

func TestACrowdedServerIsToldSo(t *testing.T) {
	deep := tool.Operation{Params: []byte(`{"enum":[` + strings.Repeat("1,", 999) + `1]}`)}
	if got, least := costOfTool(deep), 1000*perValue; got < least {
		t.Errorf("1000 values cost %d, want at least %d", got, least)
	}
	if err := crowdedOut(3 << 20); !strings.Contains(err.Error(), "3072 KiB") || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("got %v", err)
	}
}
