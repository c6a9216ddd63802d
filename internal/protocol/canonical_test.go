package protocol

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The short way and the general one never disagree.
func FuzzCanonical(f *testing.F) {
	for _, line := range []string{
		`{"v":"1","id":"c1","type":"ping","payload":{}}`, `{"v":"1","id":"c1","type":"ping"}`,
		`{"id": "c1", "type": "prompt", "payload": {"text": "hi", "wait": false}}`,
		`{"v":"1","id":"c1","type":"ping","payload":{}}}`,
		`{"v":"1","id":"c1","id":"c2","type":"ping"}`, `{"v":"1","id":"c1","type":"ping",}`,
		`{"type":"x","id":"y","payload":{"a":1},"v":"1"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		short, ok := decodeCanonical(line)
		if !ok {
			return
		}
		general, err := decodeGeneral(line)
		if err != nil {
			t.Fatalf("%q is taken the short way; the general one says %v", line, err)
		}
		if diff := cmp.Diff(general, short); diff != "" {
			t.Errorf("%q: -general +short:\n%s", line, diff)
		}
	})
}

func TestUsualLinesGoTheShortWay(t *testing.T) {
	for _, line := range []string{
		`{"v":"1","id":"c1","type":"ping","payload":{}}`,
		`{"v": "1", "id": "c1", "type": "prompt", "payload": {"text": "grüezi", "wait": false}}`,
		`{"id":"1","type":"ping"}`,
	} {
		if _, ok := decodeCanonical([]byte(line)); !ok {
			t.Errorf("%s goes the long way", line)
		}
	}
}
