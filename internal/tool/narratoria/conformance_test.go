package narratoria

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// clause is one sentence of the contract, with a tool that puts it to the
// test. spec is Specification 001, model its data model.
type clause struct {
	name  string
	steps []string // of the player
	// said are the updates, in order, as show writes them; $W is the workdir.
	said []string
	// code is the result's, "" where it is ok; text begins its text.
	code, text string

	args      string         // the call's, "{}" by default
	set       map[string]any // fields of the descriptor
	prepare   func(*testing.T, *run)
	rewritten bool // updates are no steps, byte for byte
}

// show is everything an update does.
func show(u model.ToolUpdate) string {
	s := u.Delta
	if u.Warning != "" {
		s = "refused: " + s
	}
	if u.Patch != nil {
		s += "patch " + string(u.Patch)
	}
	if a := u.Asset; a != nil {
		s += fmt.Sprintf(" = asset %s %s %s %s of %s, supported %v", a.ID, a.Kind, a.MediaType, a.Path, a.Tool, a.Supported)
		if a.Metadata != nil {
			s += " " + string(a.Metadata)
		}
	}
	return s
}

// ev is an event: version "0", a type, and the rest of its members.
func ev(kind, members string) string {
	if members != "" {
		members = "," + members
	}
	return fmt.Sprintf(`{"version":"0","type":%q%s}`, kind, members)
}

func asset(id, mediaType, path string) string {
	return ev("asset", fmt.Sprintf(`"assetId":%q,"kind":"k","mediaType":%q,"path":%q`, id, mediaType, path))
}

func registered(id, mediaType, path string, supported bool) string {
	return fmt.Sprintf("k %s = asset %s k %s %s of t, supported %v", path, id, mediaType, path, supported)
}

// breaks is a protocol error: the tool says hello, then the line, and would
// then go on for ever.
func breaks(name, line, reason string) clause {
	return clause{
		name: name, steps: []string{hello, line, hello, done, "!blocks"},
		said: []string{"hello"}, code: tool.ProtocolError, text: reason,
	}
}

// refuses are events that break their own rules: each changes nothing, is
// reported as its type and the reason, and the call goes on.
func refuses(name, kind string, lines map[string]string) clause {
	c := clause{name: name, text: "fine"}
	for _, members := range slices.Sorted(keys(lines)) {
		c.steps = append(c.steps, ev(kind, members))
		c.said = append(c.said, "refused: "+kind+": "+lines[members])
	}
	c.steps = append(c.steps, done)
	c.said = append(c.said, "fine")
	return c
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// file puts files into the workdir.
func file(names ...string) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(r.workdir, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// release makes the FIFO "gate", and ends it when the first update is told: a
// tool that awaits it can go on only if it is heard while it runs.
func release(t *testing.T, r *run) {
	gate := filepath.Join(r.workdir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	first := true
	r.log.On = func(model.ToolUpdate) {
		if !first {
			return
		}
		first = false
		if err := os.WriteFile(gate, nil, 0); err != nil {
			t.Error(err)
		}
	}
}

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
}

func clauses() []clause {
	failed := ev("done", `"ok":false,"summary":"no oil"`)
	late := ev("state_patch", `"patch":{"late":true}`)
	wet := ev("error", `"errorCode":"E","errorMessage":"wet wood"`)
	fine := []string{"fine"}
	all := []clause{
		// Input.
		{
			name: "spec §6 the tool gets requestId, tool, operation and input; tools.md §2 one line, the input's keys at top " +
				"level too, the envelope's win, defaults filled in",
			steps: []string{"!input", done}, args: "{\"color\":\"red\",\n \"tool\":\"mine\",\"input\":1}",
			set: map[string]any{"operations": map[string]any{"run": map[string]any{"params": map[string]any{
				"properties": map[string]any{"size": map[string]any{"default": 3}},
			}}}},
			said: []string{
				`{"color":"red","input":{"color":"red","input":1,"size":3,"tool":"mine"},"operation":"run","requestId":"call-1","size":3,"tool":"t"}` + "\n", "fine",
			},
			text: "fine", rewritten: true,
		},
		{
			name:  "tools.md §1 arguments are validated before the child sees them",
			steps: []string{hello, done}, args: `{"n":"x"}`,
			set: map[string]any{"operations": map[string]any{"run": map[string]any{"params": map[string]any{
				"properties": map[string]any{"n": map[string]any{"type": "integer"}},
			}}}},
			code: tool.BadRequest, text: "bad_request: arguments: /n: got string, want integer",
		},
		{
			name: "spec §6 input is optional to read: a tool that reads none of much succeeds", steps: []string{"!deaf", done},
			args: `{"x":"` + strings.Repeat("x", 300_000) + `"}`, said: fine, text: "fine",
		},

		// Transport.
		{
			name: "spec §9 the minimal tool",
			steps: []string{
				ev("log", `"level":"info","message":"Starting"`),
				ev("state_patch", `"patch":{"flags":{"torchLit":true}}`), ev("done", `"ok":true,"summary":"Torch lit."`),
			},
			said: []string{"Starting", `patch {"flags":{"torchLit":true}}`, "Torch lit."}, text: "Torch lit.",
		},
		{
			name:  "spec §2.2 stderr is free text, whatever it says",
			steps: []string{`!stderr "{\"version\":\"9\"}\n\xff\x00 done"`, done},
			said:  fine, text: "fine",
		},
		{
			name:  "tools.md §2 blank lines and CR LF are tolerated",
			steps: []string{`!print "\n\r\n \t\n"`, hello + "\r", "", "\t " + hello + " \r", done + "\r"},
			said:  []string{"hello", "hello", "fine"}, text: "fine", rewritten: true,
		},
		{
			name: "spec §2.2 the last line counts without its newline", steps: []string{fmt.Sprintf("!print %q", done)},
			said: fine, text: "fine", rewritten: true,
		},
		{
			name: "spec §2.2 output that comes in pieces is one line", steps: []string{
				`!print "{\"version\":\"0\",\"type\":\"lo"`, `!print "g\",\"level\":\"info\",\"message\":\"h\xc3"`,
				`!print "\xa9\"}\n"`, done,
			}, said: []string{"hé", "fine"}, text: "fine", rewritten: true,
		},
		{
			name: "spec §5.4 each event is handled as it is received", steps: []string{hello, "!await gate", late, done},
			said: []string{"hello", `patch {"late":true}`, "fine"}, text: "fine", prepare: release,
		},
		breaks("spec §2.2 a line that is no JSON", "Loading model...", "protocol_error: the line is not a JSON object"),
		breaks("spec §2.2 a line that is an array", "["+hello+"]", "protocol_error: the line is not a JSON object"),
		breaks("spec §2.2 a line that is a string", `"done"`, "protocol_error: the line is not a JSON object"),
		breaks("spec §2.3 an object that is not complete", hello[:len(hello)-1],
			"protocol_error: the line is not a JSON object"),
		breaks("spec §2.2 two objects in a line", hello+hello, "protocol_error: the line is not a JSON object"),
		breaks("tools.md §2 a line that begins with a byte order mark is no object", "\ufeff"+hello,
			"protocol_error: the line is not a JSON object"),
		breaks("tools.md §2 an object that has a member twice is none", ev("done", `"ok":true,"ok":false`),
			"protocol_error: the line is not a JSON object"),
		breaks("spec §2.3 a line that is not UTF-8",
			`!print "{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"\xff\"}\n"`,
			"protocol_error: the line is not UTF-8"),
		breaks("spec §2.3 a field that is unknown and not UTF-8",
			`!print "{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"m\",\"x\":\"\xff\"}\n"`,
			"protocol_error: the line is not UTF-8"),
		breaks("spec §2.3 a NUL byte",
			`!print "{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"\x00\"}\n"`,
			"protocol_error: the line is not a JSON object"),
		breaks("tools.md §5 bounded: an object of 1001 levels", ev("state_patch", `"patch":`+nested(1000)),
			"protocol_error: the line nests deeper than 1000 levels"),
		breaks("tools.md §2 a line that is too long", "!long 1048577", "protocol_error: line is longer than 1048576 bytes"),
		{
			name: "tools.md §1 max_output, §5 bounded: a line without an end", steps: []string{hello, "!xs 200000", "!blocks"},
			set: map[string]any{"max_output": 4096}, said: []string{"hello"}, code: tool.ProtocolError,
			text: "protocol_error: line is longer than 4096 bytes",
		},
		{
			name: "tools.md §1 max_output: a line of just that length", steps: []string{"!long 1048576", done},
			said: []string{strings.Repeat("x", 1<<20-56), "fine"}, text: "fine", rewritten: true,
		},
		{
			name: "spec §2.3 half a surrogate pair, as Python and Node write it, is U+FFFD", steps: []string{
				ev("log", `"level":"info","message":"a\ud800b","fields":{"n":1.0}`),
				ev("state_patch", `"patch":{"a\udcff":"\u0000\ud83d\ude00"}`), done,
			}, said: []string{"a\ufffdb", "patch {\"a\ufffd\":\"\\u0000😀\"}", "fine"}, text: "fine", rewritten: true,
		},
		{
			name: "tools.md §5 an object of 1000 levels", steps: []string{ev("state_patch", `"patch":`+nested(999)), done},
			said: []string{"patch " + nested(999), "fine"}, text: "fine",
		},

		// Envelope.
		breaks("spec §3 version is there", `{"type":"done","ok":true}`, `protocol_error: version is absent, want "0"`),
		breaks("spec §3 version is a string", `{"version":0,"type":"done","ok":true}`,
			`protocol_error: version is 0, want "0"`),
		breaks(`spec §3, §11 version is "0"`, `{"version":"0.0.1","type":"done","ok":true}`,
			`protocol_error: version is "0.0.1", want "0"`),
		breaks("spec §3 type is there", `{"version":"0","Type":"done","ok":true}`,
			"protocol_error: unknown event type absent"),
		breaks("spec §3 type is a string", `{"version":"0","type":["done"]}`, `protocol_error: unknown event type ["done"]`),
		breaks("spec §5.2 an unknown type ends the invocation", ev("progress", `"percent":3`),
			`protocol_error: unknown event type "progress"`),
		breaks("spec §5.2 types are case-sensitive", ev("Log", `"level":"info","message":"m"`),
			`protocol_error: unknown event type "Log"`),
		{
			name: "spec §3, §8 additional fields are ignored, in every type", steps: []string{
				ev("log", `"level":"info","message":"m","x":1,"patch":[],"ok":"no"`), ev("state_patch", `"patch":{},"level":7`),
				ev("ui_event", `"event":"notify","ok":1,"Event":2`), ev("error", `"errorCode":"E","errorMessage":"m","message":3`),
				ev("done", `"ok":true,"summary":"fine","exitCode":9,"":null`),
			}, said: []string{"m", "patch {}", "notify", "E: m", "fine"}, text: "fine",
		},
		{
			name: "spec §3 requestId and timestamp are opaque: no rule is about them, and only one call hears the process",
			steps: []string{
				ev("log", `"level":"info","message":"a","requestId":"call-1","timestamp":"2026-01-31T12:00:00Z"`),
				ev("log", `"level":"info","message":"b","requestId":"another","timestamp":"yesterday"`),
				ev("log", `"level":"info","message":"c","requestId":7,"timestamp":null`), done,
			}, said: []string{"a", "b", "c", "fine"}, text: "fine",
		},
		{
			name: "spec §5.1 events come in any order", steps: []string{
				late, ev("ui_event", `"event":"notify"`), asset("a", "text/plain", "f"), hello, wet, late, done,
			},
			said: []string{
				`patch {"late":true}`, "notify", registered("a", "text/plain", "$W/f", true), "hello", "E: wet wood",
				`patch {"late":true}`, "fine",
			},
			text: "fine\nE: wet wood\nasset a (text/plain): $W/f", prepare: file("f"),
		},

		// log.
		{
			name: "spec §4.1 a log is no error, of whatever level", steps: []string{
				ev("log", `"level":"debug","message":"d"`), ev("log", `"level":"info","message":"i","fields":{"a":1}`),
				ev("log", `"level":"warn","message":"w","fields":null`), ev("log", `"level":"error","message":"e"`), done,
			}, said: []string{"d", "i", "w", "e", "fine"}, text: "fine",
		},
		refuses("model LogEvent: level in the allowed set", "log", map[string]string{
			`"level":"loud","message":"m"`: `level is "loud", want debug, info, warn or error`,
			`"level":"INFO","message":"m"`: `level is "INFO", want debug, info, warn or error`,
			`"message":"m"`:                `level is absent, want debug, info, warn or error`,
			`"level":3,"message":"m"`:      `level is 3, want debug, info, warn or error`,
		}),
		refuses("model LogEvent: message a non-empty string", "log", map[string]string{
			`"level":"info"`:                `message is absent, want a non-empty string`,
			`"level":"info","message":""`:   `message is "", want a non-empty string`,
			`"level":"info","message":{}`:   `message is {}, want a non-empty string`,
			`"level":"info","message":null`: `message is null, want a non-empty string`,
		}),
		refuses("model LogEvent: fields an object", "log", map[string]string{
			`"level":"info","message":"m","fields":[1]`: `fields is [1], want an object`,
		}),

		// state_patch.
		{
			name: "spec §4.2 patches are handed on, verbatim, in order", steps: []string{
				ev("state_patch", `"patch":{"a":{"b":null},"n":12345678901234567890}`), ev("state_patch", `"patch":{}`), done,
			}, said: []string{`patch {"a":{"b":null},"n":12345678901234567890}`, "patch {}", "fine"}, text: "fine",
		},
		refuses("spec §4.2 patch MUST be a JSON object", "state_patch", map[string]string{
			``: "patch is absent, want an object", `"patch":null`: "patch is null, want an object",
			`"patch":[{"a":1}]`: `patch is [{"a":1}], want an object`,
			`"patch":"{}"`:      `patch is "{}", want an object`, `"patch":1`: "patch is 1, want an object",
			`"patch":false`: "patch is false, want an object",
		}),

		// asset.
		{
			name: "spec §4.3 an asset is registered, with its metadata", steps: []string{
				ev("asset", `"assetId":"a1","kind":"image","mediaType":"image/png","path":"./map.png","metadata":{"w":3}`), done,
			},
			said: []string{`image $W/map.png = asset a1 image image/png $W/map.png of t, supported true {"w":3}`, "fine"},
			text: "fine\nasset a1 (image/png): $W/map.png", prepare: file("map.png"),
		},
		{
			name: "spec §4.3, §8 an unknown media type is registered all the same", steps: []string{
				asset("a", "model/gltf-binary", "f"), asset("b", "application/vnd.x+json; v=2", "f"), done,
			},
			said: []string{registered("a", "model/gltf-binary", "$W/f", false), registered("b", "application/vnd.x+json; v=2",
				"$W/f", false), "fine"},
			text: "fine\nasset a (model/gltf-binary): $W/f", prepare: file("f"),
		},
		{
			name: "spec §4.3 mediaType MUST be valid MIME: case and parameters are", steps: []string{
				asset("a", "Image/PNG", "f"), asset("b", `text/plain; charset="utf-8"`, "f"), done,
			},
			said: []string{registered("a", "Image/PNG", "$W/f", true), registered("b", `text/plain; charset="utf-8"`, "$W/f",
				true), "fine"},
			text: "fine", prepare: file("f"),
		},
		{
			name: "spec §4.3 mediaType MUST be valid MIME: these are not",
			steps: []string{
				asset("a", "png", "f"), asset("a", "image/", "f"), asset("a", "/png", "f"), asset("a", "image/png/x", "f"),
				asset("a", "image png", "f"), asset("a", "image/png;;", "f"), asset("a", "image/png; q", "f"), done,
			},
			said: []string{
				`refused: asset: mediaType "png" is no MIME type`, `refused: asset: mediaType "image/" is no MIME type`,
				`refused: asset: mediaType "/png" is no MIME type`, `refused: asset: mediaType "image/png/x" is no MIME type`,
				`refused: asset: mediaType "image png" is no MIME type`, `refused: asset: mediaType "image/png;;" is no MIME type`,
				`refused: asset: mediaType "image/png; q" is no MIME type`, "fine",
			},
			text: "fine", prepare: file("f"),
		},
		refuses("model AssetEvent: assetId, kind, mediaType and path non-empty strings", "asset", map[string]string{
			`"kind":"k","mediaType":"a/b","path":"p"`:                "assetId is absent, want a non-empty string",
			`"assetId":"","kind":"k","mediaType":"a/b","path":"p"`:   `assetId is "", want a non-empty string`,
			`"assetId":1,"kind":"k","mediaType":"a/b","path":"p"`:    "assetId is 1, want a non-empty string",
			`"assetId":"a","mediaType":"a/b","path":"p"`:             "kind is absent, want a non-empty string",
			`"assetId":"a","kind":[],"mediaType":"a/b","path":"p"`:   "kind is [], want a non-empty string",
			`"assetId":"a","kind":"k","path":"p"`:                    "mediaType is absent, want a non-empty string",
			`"assetId":"a","kind":"k","mediaType":null,"path":"p"`:   "mediaType is null, want a non-empty string",
			`"assetId":"a","kind":"k","mediaType":"a/b"`:             "path is absent, want a non-empty string",
			`"assetId":"a","kind":"k","mediaType":"a/b","path":""`:   `path is "", want a non-empty string`,
			`"assetId":"a","kind":"k","mediaType":"a/b","path":{}`:   "path is {}, want a non-empty string",
			`"assetId":"a","kind":"k","mediaType":"a/b","path":true`: "path is true, want a non-empty string",
		}),
		refuses("model AssetEvent: metadata an object", "asset", map[string]string{
			`"assetId":"a","kind":"k","mediaType":"a/b","path":"p","metadata":"w=3"`: `metadata is "w=3", want an object`,
		}),
		{
			name: "spec §4.3 assetId MUST be unique within the invocation; one that was refused is not taken",
			steps: []string{
				asset("a", "text/plain", "none"), asset("a", "text/plain", "f"), asset("a", "text/plain", "f"),
				asset("A", "text/plain", "f"), done,
			},
			said: []string{
				"refused: asset: path none: no such file or directory", registered("a", "text/plain", "$W/f", true),
				`refused: asset: assetId "a" is used twice`, registered("A", "text/plain", "$W/f", true), "fine",
			},
			text: "fine\nasset a (text/plain): $W/f\nasset A (text/plain): $W/f", prepare: file("f"),
		},
		{
			name: "spec §4.3, §7 path is absolute, or relative to the workdir",
			steps: []string{
				asset("a", "text/plain", "/dev/../proc/self/cmdline"), asset("b", "text/plain", "sub/../f"),
				asset("c", "text/plain", "link"), done,
			},
			said: []string{
				registered("a", "text/plain", "/proc/self/cmdline", true), registered("b", "text/plain", "$W/f", true),
				registered("c", "text/plain", "$W/link", true), "fine",
			},
			text: "fine", prepare: func(t *testing.T, r *run) {
				file("f")(t, r)
				if err := os.Symlink("f", filepath.Join(r.workdir, "link")); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "spec §4.3 path MUST refer to a readable file",
			steps: []string{
				asset("a", "text/plain", "none"), asset("a", "text/plain", "dir"), asset("a", "text/plain", "fifo"),
				asset("a", "text/plain", "dangling"), asset("a", "text/plain", "f/x"),
				ev("asset", `"assetId":"a","kind":"k","mediaType":"a/b","path":"\u0000"`), asset("a", "text/plain", "file://f"),
				done,
			},
			said: []string{
				"refused: asset: path none: no such file or directory", "refused: asset: path dir: not a regular file",
				"refused: asset: path fifo: not a regular file", "refused: asset: path dangling: no such file or directory",
				"refused: asset: path f/x: not a directory", "refused: asset: path \x00: invalid argument",
				"refused: asset: path file://f: no such file or directory", "fine",
			},
			text: "fine", prepare: func(t *testing.T, r *run) {
				file("f")(t, r)
				if err := errors.Join(
					os.Mkdir(filepath.Join(r.workdir, "dir"), 0o700), syscall.Mkfifo(filepath.Join(r.workdir, "fifo"), 0o600),
					os.Symlink("nowhere", filepath.Join(r.workdir, "dangling")),
				); err != nil {
					t.Fatal(err)
				}
			},
		},

		// ui_event.
		{
			name: "spec §4.4, §8 a known ui_event is dispatched, an unknown one gets a placeholder", steps: []string{
				ev("ui_event", `"event":"notify","payload":{"text":"x"}`), ev("ui_event", `"event":"sparkle","payload":{"n":1}`),
				ev("ui_event", `"event":"NOTIFY"`), ev("ui_event", `"event":"notify","payload":null`), done,
			}, said: []string{"notify", "unsupported ui_event: sparkle", "unsupported ui_event: NOTIFY", "notify", "fine"},
			text: "fine",
		},
		refuses("model UiEvent: event a non-empty string, payload an object", "ui_event", map[string]string{
			``: "event is absent, want a non-empty string", `"event":""`: `event is "", want a non-empty string`,
			`"event":{"name":"x"}`:           `event is {"name":"x"}, want a non-empty string`,
			`"event":"notify","payload":"x"`: `payload is "x", want an object`,
		}),

		// error.
		{
			name:  "spec §4.5 an error event does not end the invocation, and is surfaced",
			steps: []string{wet, ev("error", `"errorCode":"E2","errorMessage":"m","details":{"a":1}`), hello, done},
			said:  []string{"E: wet wood", "E2: m", "hello", "fine"}, text: "fine\nE: wet wood\nE2: m",
		},
		refuses("model ErrorEvent: errorCode and errorMessage non-empty strings, details an object", "error",
			map[string]string{
				`"errorMessage":"m"`:                              "errorCode is absent, want a non-empty string",
				`"errorCode":"E"`:                                 "errorMessage is absent, want a non-empty string",
				`"errorCode":7,"errorMessage":"m"`:                "errorCode is 7, want a non-empty string",
				`"errorCode":"E","errorMessage":""`:               `errorMessage is "", want a non-empty string`,
				`"errorCode":"E","errorMessage":"m","details":[]`: "details is [], want an object",
			}),

		// done and the exit status.
		{name: "spec §8 only done is required", steps: []string{ev("done", `"ok":true`)}, said: []string{""}, text: "done"},
		{
			name: "spec §4.6 summary is optional", steps: []string{ev("done", `"ok":true,"summary":null`)}, said: []string{""},
			text: "done",
		},
		{
			name: "spec §4.6 ok false is a controlled failure", steps: []string{failed}, said: []string{"no oil"},
			code: tool.ToolFailed, text: "tool_failed: no oil",
		},
		{
			name: "spec §4.5 error, then done with ok false", steps: []string{wet, ev("done", `"ok":false`)},
			said: []string{"E: wet wood", ""}, code: tool.ToolFailed, text: "tool_failed: E: wet wood",
		},
		{
			name: "spec §4.6 ok false without a word", steps: []string{ev("done", `"ok":false`)}, said: []string{""},
			code: tool.ToolFailed, text: "tool_failed: the tool reported a failure",
		},
		{
			name: "model DoneEvent: ok boolean required; a done that is refused is none",
			steps: []string{
				ev("done", ``), ev("done", `"ok":"true"`), ev("done", `"ok":1`), ev("done", `"ok":null`),
				ev("done", `"ok":true,"summary":7`),
			},
			said: []string{
				"refused: done: ok is absent, want true or false", `refused: done: ok is "true", want true or false`,
				"refused: done: ok is 1, want true or false",
				"refused: done: ok is null, want true or false", "refused: done: summary is 7, want a string",
			},
			code: tool.ProtocolError, text: "protocol_error: the tool exited without a done event",
		},
		{
			name: "spec §4.6 nothing after done is accepted", steps: []string{done, late, failed, "garbage", `!print "\xff"`},
			said: fine, text: "fine",
		},
		{name: "spec §4.6 a second done counts for nothing", steps: []string{done, done}, said: fine, text: "fine"},
		{
			name: "spec §5.3 done, then exit 3: protocol failure", steps: []string{done, "!exit 3"}, said: fine,
			code: tool.ProtocolError, text: "protocol_error: the tool ended with exit status 3\nsummary: fine",
		},
		{
			name: "spec §5.3 done with ok false, then exit 1: protocol failure", steps: []string{
				wet, failed, `!stderr "oops"`,
				"!exit 1",
			}, said: []string{"E: wet wood", "no oil"},
			code: tool.ProtocolError,
			text: "protocol_error: the tool ended with exit status 1\nE: wet wood\nsummary: no oil\nstderr:\noops",
		},
		{
			name: "spec §5.3 done, then killed by a signal", steps: []string{done, "!dies"}, said: fine,
			code: tool.ProtocolError, text: "protocol_error: the tool ended with signal: killed",
		},
		{
			name: "spec §4.6 no done and a non-zero exit", steps: []string{wet, "!exit 4"}, said: []string{"E: wet wood"},
			code: tool.ProtocolError, text: "protocol_error: the tool ended with exit status 4\nE: wet wood",
		},
		{
			name: "tools.md §2 exit 0 without done", steps: []string{hello}, said: []string{"hello"}, code: tool.ProtocolError,
			text: "protocol_error: the tool exited without a done event",
		},
		{
			name: "tools.md §2 exit 0 without a word", steps: []string{"!deaf"}, code: tool.ProtocolError,
			text: "protocol_error: the tool exited without a done event",
		},
		{
			name: "tools.md §2 after done the process has 2 s to exit", steps: []string{done, "!blocks"}, said: fine,
			code: tool.ProtocolError, text: "protocol_error: the tool did not exit within 2s of done",
		},
		{
			name: "tools.md §2 after done stdout is drained unread, and 2 s are all", steps: []string{done, "!floods"},
			said: fine,
			code: tool.ProtocolError, text: "protocol_error: the tool did not exit within 2s of done",
		},
		{
			name: "tools.md §2 SIGTERM, 2 s, SIGKILL", steps: []string{"!immortal", "garbage", "!blocks"},
			code: tool.ProtocolError, text: "protocol_error: the line is not a JSON object",
		},
		{
			name: "tools.md §1 timeout", steps: []string{"!blocks"},
			set: map[string]any{"timeout": "1s"}, code: tool.Timeout, text: "timeout: no result within 1s",
		},
		{
			name: "tools.md §2 output that is closed without done", steps: []string{hello, "!closes", "!blocks"},
			said: []string{"hello"},
			code: tool.ProtocolError, text: "protocol_error: the tool closed its output without a done event and did not exit",
		},
		{
			name:  "tools.md §5 a grandchild that holds the pipe does not hold the call, and is ended",
			steps: []string{"!child", hello, done}, said: []string{"hello", "fine"}, text: "fine",
		},
	}
	if os.Geteuid() != 0 { // root can read all
		all = append(all, clause{
			name: "spec §4.3 path MUST be readable by us", steps: []string{asset("a", "text/plain", "f"), done},
			said: []string{"refused: asset: path f: permission denied", "fine"}, text: "fine",
			prepare: func(t *testing.T, r *run) {
				if err := os.WriteFile(filepath.Join(r.workdir, "f"), nil, 0); err != nil {
					t.Fatal(err)
				}
			},
		})
	}
	return all
}

func TestConformance(t *testing.T) {
	t.Cleanup(func() { tooltest.NoChildren(t) }) // when all have run
	for _, c := range clauses() {
		t.Run(strings.ReplaceAll(c.name, "/", "∕"), func(t *testing.T) {
			t.Parallel()
			c.test(t)
		})
	}
}

func (c clause) test(t *testing.T) {
	d := script(t, c.steps...)
	for field, value := range c.set {
		d.Set(field, value)
	}
	r := mount(t, d)
	if c.prepare != nil {
		c.prepare(t, r)
	}
	if c.args == "" {
		c.args = "{}"
	}
	r.call(t.Context(), c.args)

	here := strings.NewReplacer("$W", r.workdir)
	var said, want []string
	for _, u := range r.log.Updates() {
		said = append(said, show(u))
		if (u.Warning != "") != (u.Warning == tool.InvalidEvent) || u.Warning != "" && (u.Patch != nil || u.Asset != nil) {
			t.Errorf("got %+v, want a refused event to change nothing", u)
		}
		if !json.Valid(u.Update) || !c.rewritten && !slices.Contains(c.steps, string(u.Update)) {
			t.Errorf("got update %s, want the event verbatim", u.Update)
		}
	}
	for _, s := range c.said {
		want = append(want, here.Replace(s))
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("updates: %s", diff)
	}
	code := ""
	if r.result.Error != nil {
		code = r.result.Error.Code
	}
	if r.result.OK != (code == "") || code != c.code || !strings.HasPrefix(r.result.Text, here.Replace(c.text)) {
		t.Errorf("got %+v, want code %q and %q", r.result, c.code, here.Replace(c.text))
	}
	if r.result.OK && string(r.result.Value) == "" {
		t.Error("want the done event as the result's value")
	}
}
