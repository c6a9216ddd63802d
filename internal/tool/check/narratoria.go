package check

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
	"noused/internal/tool"
)

// The clauses of narratoria-tool-protocol-001 and, where it is silent, the
// daemon's own.
var (
	nJSON = &clause{
		"narratoria §2.2", "every line of stdout is one JSON object",
		"print events only to stdout, one object a line; text for people goes to stderr",
	}
	nUTF8 = &clause{"narratoria §2.3", "stdout is UTF-8", "encode as UTF-8, whatever the locale says"}
	nLong = &clause{
		"tools.md Limits", "no line is longer than max_output",
		"write large data to a file and announce it as an asset, or raise max_output",
	}
	nVersion = &clause{
		"narratoria §3", `version is the string "0" in every event`,
		`put "version":"0" into every event: a string, not the number 0`,
	}
	nType = &clause{
		"narratoria §3, §5.2", "every type is log, state_patch, asset, ui_event, error or done",
		"use these types only; what is yours goes into further fields",
	}
	nOptions = &clause{
		"narratoria §3", "requestId is the one of the call, timestamp is ISO 8601, where they are given",
		"echo requestId as it came, write timestamps like 2026-01-31T12:00:00Z, or leave both out",
	}
	nLog = &clause{
		"narratoria §4.1", "log has a level and a message",
		"level is debug, info, warn or error; message is a string that is not empty; fields, if any, an object",
	}
	nPatch = &clause{
		"narratoria §4.2", "state_patch has a patch that is an object",
		`send {"patch":{…}}; a value to be removed is null in it`,
	}
	nAsset = &clause{
		"narratoria §4.3", "asset has assetId, kind, mediaType and path",
		"all four are strings; mediaType is a MIME type like image/png",
	}
	nUnique = &clause{"narratoria §4.3", "every assetId is used once in a call", "give each asset an id of its own"}
	nFile   = &clause{
		"narratoria §4.3", "the file of every asset can be read",
		"write the file before its event; a relative path starts at the working directory",
	}
	nUI = &clause{
		"narratoria §4.4", "ui_event has an event",
		"event is a string that is not empty; payload, if any, an object",
	}
	nError = &clause{
		"narratoria §4.5", "error has errorCode and errorMessage",
		"both are strings that are not empty; details, if any, an object",
	}
	nDone    = &clause{"narratoria §4.6", "done has ok, true or false", "ok is a boolean; summary, if any, a string"}
	nOneDone = &clause{
		"narratoria §4.6", "there is exactly one done",
		"print one done as the last event, of failures too: catch what goes wrong and say ok:false",
	}
	nLast = &clause{"narratoria §4.6", "nothing comes after done", "print done last, and end"}
	nExit = &clause{
		"narratoria §5.3", "the exit status is 0",
		"exit with 0 whenever done was said; a failure of the operation is done with ok:false",
	}
	nTime = &clause{
		"tools.md Limits",
		"the call ends within its timeout, whether stdin is read to its end or not at all",
		"do not wait for more than one line and the end of stdin; or raise timeout",
	}
	nPrompt = &clause{"tools.md Limits", "the process exits within 2s after done", "flush, and exit right after done"}
	nFuture = &clause{
		"narratoria §8", "unknown fields of the input are tolerated",
		"read the fields you know and leave the rest alone",
	}
	nLeft = &clause{
		"tools.md Limits", "nothing is left running",
		"wait for your children before you exit, and start no daemons",
	}
)

var narratoriaClauses = []*clause{
	nJSON, nUTF8, nLong, nVersion, nType, nOptions, nLog, nPatch, nAsset, nUnique, nFile, nUI, nError, nDone,
	nOneDone, nLast, nExit, nTime, nPrompt, nFuture, nLeft,
}

// maxAssets bounds the ids that are compared with each other.
const maxAssets = 10_000

// iso8601 accepts the extended and the basic form.
var iso8601 = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d{4}-?\d\d-?\d\d([T ]\d\d(:?\d\d(:?\d\d([.,]\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?$`)
})

// narration reads what one call says. It runs nothing; readable tells whether
// a file can be read.
type narration struct {
	*sheet
	requestID string
	readable  func(path string) error

	assets map[string]bool
	done   int
}

func (n *narration) line(line []byte) {
	if !n.test(nUTF8, ifNot(utf8.Valid(line), quote(line))) {
		return
	}
	ev, ok := object(line)
	if n.done > 0 {
		n.fail(nLast, "%s", quote(line))
		if kind, _ := tool.Text(ev["type"]); kind == "done" {
			n.done++
			n.fail(nOneDone, "a second one: %s", quote(line))
		}
		return
	}
	if !n.test(nJSON, ifNot(ok, quote(line))) {
		return
	}
	version, _ := tool.Text(ev["version"])
	n.test(nVersion, ifNot(version == "0", quote(line)))
	kind, _ := tool.Text(ev["type"])
	n.event(kind, ev, quote(line))
	n.test(nOptions, n.options(ev))
}

func (n *narration) options(ev map[string]jsontext.Value) string {
	if v, ok := ev["requestId"]; ok {
		if id, isText := tool.Text(v); !isText || id != n.requestID {
			return fmt.Sprintf("requestId is %s, the call's was %q", quote(tool.Shorten(v)), n.requestID)
		}
	}
	if v, ok := ev["timestamp"]; ok {
		if s, isText := tool.Text(v); !isText || !iso8601().MatchString(s) {
			return "timestamp is " + quote(tool.Shorten(v))
		}
	}
	return ""
}

func (n *narration) event(kind string, ev map[string]jsontext.Value, said string) {
	switch kind {
	case "log":
		n.test(nLog, first(needLevel(ev), needText(ev, "message"), mayObject(ev, "fields")))
	case "state_patch":
		n.test(nPatch, needObject(ev, "patch"))
	case "asset":
		n.asset(ev)
	case "ui_event":
		n.test(nUI, first(needText(ev, "event"), mayObject(ev, "payload")))
	case "error":
		n.test(nError, first(needText(ev, "errorCode"), needText(ev, "errorMessage"), mayObject(ev, "details")))
	case "done":
		n.done++
		n.test(nDone, first(needBool(ev, "ok"), mayText(ev, "summary")))
	default:
		n.fail(nType, "%s", said)
		return
	}
	n.hold(nType)
}

func (n *narration) asset(ev map[string]jsontext.Value) {
	id, _ := tool.Text(ev["assetId"])
	media, _ := tool.Text(ev["mediaType"])
	path, _ := tool.Text(ev["path"])
	reason := first(needText(ev, "assetId"), needText(ev, "kind"), needText(ev, "mediaType"), needText(ev, "path"),
		mayObject(ev, "metadata"))
	if reason == "" {
		t, _, err := mime.ParseMediaType(media)
		if major, minor, ok := strings.Cut(t, "/"); err != nil || !ok || major == "" || minor == "" {
			reason = fmt.Sprintf("mediaType is %q", quote(media))
		}
	}
	if !n.test(nAsset, reason) {
		return
	}
	n.test(nUnique, ifNot(!n.assets[id], fmt.Sprintf("%q came twice", quote(id))))
	if n.assets == nil {
		n.assets = make(map[string]bool)
	}
	if len(n.assets) < maxAssets {
		n.assets[id] = true
	}
	if err := n.readable(path); err != nil {
		n.fail(nFile, "%s", quote(err.Error()))
		return
	}
	n.hold(nFile)
}

// callEnd is how a call ended. err is what kept its output from being read.
type callEnd struct {
	ending
	err            error
	overtime, late bool // not done in time; not gone in time after done
}

func (n *narration) end(e callEnd) {
	var long *protocol.LineTooLongError
	tooLong := errors.As(e.err, &long)
	switch {
	case tooLong:
		n.fail(nLong, "%v: %s", e.err, quote(long.Prefix))
	case e.err != nil:
		n.fail(nJSON, "%s", quote(e.err.Error()))
	default:
		n.hold(nLong)
	}
	n.test(nTime, ifNot(!e.overtime, "still running; it was stopped"))
	switch {
	case n.done == 1:
		n.hold(nOneDone)
		n.hold(nLast)
		n.test(nPrompt, ifNot(!e.late, "still running; it was stopped"))
	case n.done == 0 && e.overtime:
		n.skip(nOneDone, "the call did not end")
	case n.done == 0 && tooLong:
		n.skip(nOneDone, "the output could not be read to its end")
	case n.done == 0:
		n.fail(nOneDone, "the process ended without one: %v", e.ending)
	}
	switch {
	case e.exit.Stopped:
		n.skip(nExit, "the process had to be stopped")
	case e.exit.OK():
		n.hold(nExit)
	default:
		n.fail(nExit, "%v", e.ending)
	}
	n.test(nLeft, strings.Join(e.left, ", "))
}

// completed reports whether the call came to its end by the rules.
func (n *narration) completed() bool {
	return n.done == 1 && !n.failed(nExit) && !n.failed(nTime) && !n.failed(nPrompt)
}

func ifNot(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}

func (r *runner) narratoria(ctx context.Context) ([]Finding, error) {
	if _, err := r.desc.Command(); err != nil {
		return nil, err
	}
	targets, err := r.targets(r.desc.Operations, nil)
	if err != nil {
		return nil, err
	}
	if targets == nil {
		return newSheet(narratoriaClauses).findings("", uncalled), nil
	}
	var all []Finding
	for _, t := range targets {
		if t.args == nil {
			all = append(all, newSheet(narratoriaClauses).findings(t.name, t.reason)...)
			continue
		}
		said, err := r.narrate(ctx, t, nil)
		if err != nil {
			return nil, err
		}
		if !said.completed() {
			said.skip(nFuture, "the plain call failed already")
		} else if again, err := r.narrate(ctx, t, jsontext.Value(`{"since":"a later version","list":[1,null]}`)); err != nil {
			return nil, err
		} else {
			said.test(nFuture, ifNot(again.completed(), "a call with one more field beside input failed: "+again.reason()))
		}
		all = append(all, said.findings(t.name, "no such event came")...)
	}
	return all, nil
}

// reason is what was seen of the first clause that failed.
func (n *narration) reason() string {
	for _, f := range n.findings("", "") {
		if f.Status == Fail {
			return f.Seen
		}
	}
	return "it did not come to its end"
}

// request is the line that a call gets (tools.md §2): the envelope, and the
// input's own keys beside it.
func (r *runner) request(t target, future jsontext.Value) ([]byte, error) {
	fields, ok := object(t.args)
	if !ok {
		return nil, errors.New("arguments are not a JSON object")
	}
	line := make(map[string]any)
	for name, v := range fields {
		line[name] = v
	}
	if future != nil {
		line["x_future"] = jsontext.Value(future)
	}
	line["requestId"], line["tool"], line["operation"] = requestID, r.desc.Name, t.name
	line["input"] = jsontext.Value(t.args)
	text, err := jsonx.Marshal(line, jsonx.Deterministic(true))
	return append(text, '\n'), err
}

const requestID = "check-1"

// narrate makes one call and reads it.
func (r *runner) narrate(ctx context.Context, t target, future jsontext.Value) (*narration, error) {
	line, err := r.request(t, future)
	if err != nil {
		return nil, err
	}
	n := &narration{sheet: newSheet(narratoriaClauses), requestID: requestID, readable: r.readable}
	c, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	_ = c.proc.Send(line) // a program may have ended without reading
	c.proc.CloseInput()
	var end callEnd
	deadline := time.NewTimer(r.desc.Timeout)
	defer deadline.Stop()
	var exit <-chan time.Time // since done
	for reading := true; reading; {
		select {
		case line, ok := <-c.lines:
			if reading = ok; !ok {
				break
			}
			before := n.done
			if n.line(line); n.done > before && before == 0 {
				deadline.Stop()
				exit = time.After(exitTime)
			}
		case <-deadline.C:
			end.overtime = true
			c.proc.Stop()
		case <-exit:
			end.late, exit = true, nil
			c.proc.Stop()
		}
	}
	end.err = c.err
	switch { // the output may have ended before the process
	case end.overtime || end.late || end.err != nil:
		end.ending = c.finish(0)
	case n.done > 0:
		end.ending = c.finish(exitTime)
		end.late = end.exit.Stopped
	default:
		end.ending = c.finish(exitTime)
		end.overtime = end.exit.Stopped
	}
	n.end(end)
	return n, nil
}

func (r *runner) readable(path string) error {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.desc.Workdir, path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // opening it might block
		return fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
