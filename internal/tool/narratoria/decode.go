package narratoria

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

// Event types (narratoria §3).
const (
	typeLog        = "log"
	typeStatePatch = "state_patch"
	typeAsset      = "asset"
	typeUIEvent    = "ui_event"
	typeError      = "error"
	typeDone       = "done"
)

var eventTypes = []string{typeLog, typeStatePatch, typeAsset, typeUIEvent, typeError, typeDone}

// maxDepth is how deep a line may nest.
const maxDepth = tool.MaxDepth

// event is a decoded line. Which fields are set depends on Type.
type event struct {
	Type string
	Raw  jsontext.Value // the whole object

	Level, Message         string // log
	Patch                  jsontext.Value
	AssetID, Kind          string
	MediaType, Path        string
	Metadata               jsontext.Value
	Name                   string // ui_event
	ErrorCode, ErrorDetail string
	OK                     bool // done
	Summary                string
}

// invalidEvent is an event of a known type that breaks its own rules. The call
// goes on without it (tools.md §2); any other error of decode ends it.
type invalidEvent struct {
	Type   string
	Reason string
}

func (e *invalidEvent) Error() string { return e.Type + ": " + e.Reason }

// wire keeps every value as it came, so that a wrong type is this event's
// fault and not the line's.
type wire struct {
	Version      jsontext.Value `json:"version"`
	Type         jsontext.Value `json:"type"`
	Level        jsontext.Value `json:"level"`
	Message      jsontext.Value `json:"message"`
	Fields       jsontext.Value `json:"fields"`
	Patch        jsontext.Value `json:"patch"`
	AssetID      jsontext.Value `json:"assetId"`
	Kind         jsontext.Value `json:"kind"`
	MediaType    jsontext.Value `json:"mediaType"`
	Path         jsontext.Value `json:"path"`
	Metadata     jsontext.Value `json:"metadata"`
	Event        jsontext.Value `json:"event"`
	Payload      jsontext.Value `json:"payload"`
	ErrorCode    jsontext.Value `json:"errorCode"`
	ErrorMessage jsontext.Value `json:"errorMessage"`
	Details      jsontext.Value `json:"details"`
	OK           jsontext.Value `json:"ok"`
	Summary      jsontext.Value `json:"summary"`
}

// decode reads one line (narratoria §2.3, §3, §4). The line is copied. Unknown
// fields are ignored, as are requestId and timestamp, whatever they are: only
// one call ever hears the process, and no rule of an event is about them.
func decode(line []byte) (*event, error) {
	var w wire
	raw, err := tool.DecodeObject(bytes.Clone(line), &w)
	switch {
	case errors.Is(err, tool.ErrTooDeep):
		return nil, fmt.Errorf("the line nests deeper than %d levels", maxDepth)
	case err != nil:
		return nil, fmt.Errorf("the line is %w", err)
	}
	if v, ok := tool.Text(w.Version); !ok || v != "0" {
		return nil, fmt.Errorf(`version is %s, want "0"`, tool.Shorten(w.Version))
	}
	kind, ok := tool.Text(w.Type)
	if !ok || !slices.Contains(eventTypes, kind) {
		return nil, fmt.Errorf("unknown event type %s", tool.Shorten(w.Type))
	}
	ev := &event{Type: kind, Raw: jsontext.Value(raw)}
	if reason := ev.fill(&w); reason != "" {
		return ev, &invalidEvent{kind, reason}
	}
	return ev, nil
}

// fill sets the fields of the event's type and says what is wrong with them.
func (ev *event) fill(w *wire) string {
	switch ev.Type {
	case typeLog: // §4.1
		ev.Level, _ = tool.Text(w.Level)
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, ev.Level) {
			return "level is " + tool.Shorten(w.Level) + ", want debug, info, warn or error"
		}
		return first(need("message", w.Message, &ev.Message), optional("fields", w.Fields, nil))
	case typeStatePatch: // §4.2
		if w.Patch.Kind() != '{' {
			return "patch is " + tool.Shorten(w.Patch) + ", want an object"
		}
		ev.Patch = jsontext.Value(w.Patch)
		return ""
	case typeAsset: // §4.3
		if reason := first(
			need("assetId", w.AssetID, &ev.AssetID), need("kind", w.Kind, &ev.Kind),
			need("mediaType", w.MediaType, &ev.MediaType), need("path", w.Path, &ev.Path),
			optional("metadata", w.Metadata, &ev.Metadata),
		); reason != "" {
			return reason
		}
		t, _, err := mime.ParseMediaType(ev.MediaType)
		if major, minor, ok := strings.Cut(t, "/"); err != nil || !ok || major == "" || minor == "" {
			return fmt.Sprintf("mediaType %q is no MIME type", ev.MediaType)
		}
		return ""
	case typeUIEvent: // §4.4
		return first(need("event", w.Event, &ev.Name), optional("payload", w.Payload, nil))
	case typeError: // §4.5
		return first(need("errorCode", w.ErrorCode, &ev.ErrorCode),
			need("errorMessage", w.ErrorMessage, &ev.ErrorDetail), optional("details", w.Details, nil))
	default: // done, §4.6
		switch w.OK.Kind() {
		case 't', 'f':
			ev.OK = w.OK.Kind() == 't'
		default:
			return "ok is " + tool.Shorten(w.OK) + ", want true or false"
		}
		if s, ok := tool.Text(w.Summary); ok {
			ev.Summary = s
		} else if w.Summary != nil && w.Summary.Kind() != 'n' {
			return "summary is " + tool.Shorten(w.Summary) + ", want a string"
		}
		return ""
	}
}

func first(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}

func need(name string, v jsontext.Value, dst *string) string {
	s, ok := tool.Text(v)
	if !ok || s == "" {
		return name + " is " + tool.Shorten(v) + ", want a non-empty string"
	}
	*dst = s
	return ""
}

func optional(name string, v jsontext.Value, dst *jsontext.Value) string {
	switch v.Kind() {
	case 0, 'n':
	case '{':
		if dst != nil {
			*dst = jsontext.Value(v)
		}
	default:
		return name + " is " + tool.Shorten(v) + ", want an object"
	}
	return ""
}
