// Package narratoria runs tools that speak the Narratoria tool protocol
// (Specification 001, version "0"): one process per call, one JSON line in,
// events as JSON lines out, a done event and exit status 0 at the end.
//
// Concurrency properties: a host keeps no process and no state between calls;
// any number may run at once. A call reads its tool in the caller's goroutine,
// so that a progress function that blocks slows the tool down.
//
// It refuses to guess: a line that breaks the protocol ends the call, and an
// event that breaks its own rules changes nothing and is reported. It applies
// no patch and opens no asset but to see that it can be read.
package narratoria

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/tool"
)

const (
	// exitGrace is how long a tool has to exit after done (tools.md §2).
	exitGrace = 2 * time.Second
	// shownStderr is how much of stderr goes into a failure's text, in bytes; its
	// details have all that is kept.
	shownStderr = 4 << 10
	keptStderr  = 64 << 10
	// These bound what a call remembers of its tool's events.
	maxAssets = 10_000
	maxErrors = 20
	maxMade   = 100
	maxSaid   = 4 << 10 // bytes of one text
)

// uiEvents are the ui_event names that clients of this daemon act on. All
// others get a placeholder (narratoria §4.4).
var uiEvents = []string{"notify"}

// viewers are the media types that clients of this daemon can show. An asset
// of any other is registered all the same (narratoria §4.3).
var viewers = []string{
	"application/json", "application/pdf",
	"audio/mpeg", "audio/ogg", "audio/wav",
	"image/gif", "image/jpeg", "image/png", "image/svg+xml", "image/webp",
	"text/csv", "text/html", "text/markdown", "text/plain",
	"video/mp4", "video/webm",
}

type host struct {
	desc       *tool.Descriptor
	supervisor *proc.Supervisor
	log        *zap.Logger
	manifest   *tool.Manifest
}

// Dialect makes the host of a narratoria tool. It is a [tool.Dialect].
func Dialect(d *tool.Descriptor, s *proc.Supervisor, log *zap.Logger) tool.Host {
	return &host{desc: d, supervisor: s, log: log, manifest: &tool.Manifest{Operations: d.Operations}}
}

// Describe returns the descriptor's operations, and an error while the
// program cannot be found. It does not block.
func (h *host) Describe(context.Context) (*tool.Manifest, error) {
	_, err := h.desc.Command()
	return h.manifest, err
}

// Close has nothing to end: a process belongs to its call.
func (h *host) Close(context.Context) {}

// Call runs the tool once (narratoria §2, §5).
func (h *host) Call(ctx context.Context, op string, inv model.Invocation,
	progress func(model.ToolUpdate),
) model.ToolResult {
	ctx, cancel := tool.WithTimeout(ctx, h.desc.Timeout)
	defer cancel()
	cmd, err := h.desc.Command()
	if err != nil {
		return tool.Failure(err)
	}
	input, err := request(h.desc.Name, op, inv)
	if err != nil {
		return tool.Failure(tool.Faultf(tool.BadRequest, "arguments: %v", err))
	}
	p, err := tool.Start(ctx, h.supervisor, cmd)
	if err != nil {
		return tool.Failure(err)
	}
	defer func() { // for a progress function that panics
		p.Kill()
		p.Wait()
	}()
	p.Send(input) // the first in its queue always has room
	p.CloseInput()

	c := &call{desc: h.desc, progress: progress, assets: make(map[[sha256.Size]byte]bool)}
	fault := c.read(ctx, p)
	if fault != nil {
		p.Stop()
	}
	exit := p.Finish(exitGrace)
	stderr := p.Stderr(keptStderr)
	r := c.result(ctx, fault, exit)
	if !r.OK {
		c.attach(&r, exit, stderr, p.Stderr(shownStderr))
	}
	h.report(op, inv.ID, r, c.errors, exit, stderr)
	return r
}

// report logs what people who run the daemon want to know of a call: its
// failure, and the errors that the tool spoke of (narratoria §4.5).
func (h *host) report(op, id string, r model.ToolResult, errs []string, exit proc.Exit, stderr string) {
	fields := []zap.Field{zap.String("operation", op), zap.String("tool_call_id", id), zap.Stringer("exit", exit)}
	if len(errs) > 0 {
		fields = append(fields, zap.Strings("errors", errs))
	}
	if stderr != "" {
		fields = append(fields, zap.String("stderr", stderr))
	}
	switch {
	case r.Error != nil:
		h.log.Warn("tool failed", append(fields, zap.String("code", r.Error.Code), zap.String("error", r.Error.Message))...)
	case len(errs) > 0:
		h.log.Warn("tool reported errors", fields...)
	case stderr != "":
		h.log.Debug("tool wrote to stderr", fields...)
	}
}

// request is the line a tool gets (narratoria §6), with the input's own keys
// at top level too, where real tools look for them.
func request(name, op string, inv model.Invocation) ([]byte, error) {
	var line map[string]jsontext.Value
	if err := jsonx.Unmarshal(inv.Arguments, &line); err != nil {
		return nil, err
	}
	for key, value := range map[string]string{"requestId": inv.ID, "tool": name, "operation": op} {
		text, err := jsonx.Marshal(value, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return nil, err
		}
		line[key] = text
	}
	line["input"] = jsontext.Value(inv.Arguments)
	text, err := jsonx.Marshal(line, jsonx.Deterministic(true))
	return append(text, '\n'), err
}

// call is what is known of a running call.
type call struct {
	desc     *tool.Descriptor
	progress func(model.ToolUpdate)
	assets   map[[sha256.Size]byte]bool // by the hash of their id, as an id may be long
	made     []string                   // lines about assets, for the model
	images   []string                   // paths of those that a model can see
	errors   []string                   // error events
	done     *event
}

// read handles each line as it arrives until done, the end of the output, or
// the end of ctx. A broken protocol is a fault.
func (c *call) read(ctx context.Context, p *proc.Process) *tool.Fault {
	for {
		line, err := p.Next()
		var long *protocol.LineTooLongError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &long):
			return tool.Faultf(tool.ProtocolError, "%v", err)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return tool.Faultf(tool.ProtocolError, "read the tool's output: %v", err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := c.handleLine(p, line); err != nil {
			return tool.Faultf(tool.ProtocolError, "%v", err)
		}
		if c.done != nil {
			return nil
		}
	}
}

// handleLine handles a line. An error means that it breaks the protocol.
func (c *call) handleLine(p *proc.Process, line []byte) error {
	defer p.Turn(line)()
	ev, err := decode(line)
	if err == nil {
		err = c.handle(ev)
	}
	var invalid *invalidEvent
	if errors.As(err, &invalid) {
		c.progress(model.ToolUpdate{Delta: invalid.Error(), Update: []byte(ev.Raw), Warning: tool.InvalidEvent})
		return nil
	}
	return err
}

// handle passes a valid event on; what only the file system knows to be wrong
// is an *invalidEvent.
func (c *call) handle(ev *event) error {
	u := model.ToolUpdate{Update: []byte(ev.Raw)}
	switch ev.Type {
	case typeLog:
		u.Delta = ev.Message
	case typeStatePatch:
		u.Patch = []byte(ev.Patch)
	case typeAsset:
		path, err := c.checkAsset(ev)
		if err != nil {
			return err
		}
		u.Asset = &model.Asset{
			ID: ev.AssetID, Kind: ev.Kind, MediaType: ev.MediaType, Path: path,
			Tool: c.desc.Name, Supported: viewable(ev.MediaType), Metadata: []byte(ev.Metadata),
		}
		u.Delta = ev.Kind + " " + path
		c.assets[sha256.Sum256([]byte(ev.AssetID))] = true
		if tool.Visible(ev.MediaType) && len(c.images) < maxMade {
			c.images = append(c.images, path)
		}
		if len(c.made) < maxMade {
			c.made = append(c.made, format.Clip(fmt.Sprintf("asset %s (%s): %s", ev.AssetID, ev.MediaType, path), maxSaid))
		}
	case typeUIEvent:
		u.Delta = ev.Name
		if !slices.Contains(uiEvents, ev.Name) {
			u.Delta = "unsupported ui_event: " + ev.Name
		}
	case typeError:
		u.Delta = ev.ErrorCode + ": " + ev.ErrorDetail
		if c.errors = append(c.errors, format.Clip(u.Delta, maxSaid)); len(c.errors) > maxErrors {
			c.errors = c.errors[1:]
		}
	case typeDone:
		c.done = ev
		u.Delta = ev.Summary
	}
	c.progress(u)
	return nil
}

// checkAsset returns the asset's path, from the tool's working directory.
func (c *call) checkAsset(ev *event) (string, error) {
	if c.assets[sha256.Sum256([]byte(ev.AssetID))] {
		return "", &invalidEvent{ev.Type, fmt.Sprintf("assetId %q is used twice", ev.AssetID)}
	}
	if len(c.assets) == maxAssets {
		return "", &invalidEvent{ev.Type, fmt.Sprintf("more than %d assets in one call", maxAssets)}
	}
	path := ev.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.desc.Workdir, path)
	}
	path = filepath.Clean(path)
	if err := readable(path); err != nil {
		return "", &invalidEvent{ev.Type, fmt.Sprintf("path %s: %v", ev.Path, err)}
	}
	return path, nil
}

// readable does not hang on a FIFO and does not take a directory for a file.
func readable(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return errors.Unwrap(err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return nil
}

func viewable(mediaType string) bool { return slices.Contains(viewers, tool.MediaType(mediaType)) }

// result decides how the call ended (narratoria §4.6, §5.3): well only with
// done.ok and exit status 0.
func (c *call) result(ctx context.Context, fault *tool.Fault, exit proc.Exit) model.ToolResult {
	switch {
	case fault != nil:
		return tool.Failure(fault)
	case ctx.Err() != nil && (c.done == nil || exit.Stopped):
		return tool.Failure(tool.Interrupted(ctx))
	case c.done != nil && exit.Stopped:
		return model.Failed(tool.ProtocolError, fmt.Sprintf("the tool did not exit within %v of done", exitGrace))
	case exit.Stopped:
		return model.Failed(tool.ProtocolError, "the tool closed its output without a done event and did not exit")
	case !exit.OK():
		return model.Failed(tool.ProtocolError, "the tool ended with "+exit.String())
	case c.done == nil:
		return model.Failed(tool.ProtocolError, "the tool exited without a done event")
	}
	r := model.ToolResult{OK: true, Value: []byte(c.done.Raw)}
	text := c.done.Summary
	if !c.done.OK {
		if text == "" && len(c.errors) > 0 {
			text = c.errors[len(c.errors)-1]
		}
		if text == "" {
			text = "the tool reported a failure"
		}
		r = model.Failed(tool.ToolFailed, text)
		r.Value = []byte(c.done.Raw)
		text = r.Text
	} else if text == "" {
		text = "done"
	}
	r.Text = strings.Join(slices.Concat([]string{text}, c.said(text), c.made), "\n")
	r.Images = c.images
	return r
}

// said are the error events that text does not have already.
func (c *call) said(text string) []string {
	return slices.DeleteFunc(slices.Clone(c.errors), func(e string) bool { return strings.Contains(text, e) })
}

// attach puts what explains a failure into its text and its details.
func (c *call) attach(r *model.ToolResult, exit proc.Exit, stderr, shown string) {
	if r.Error.Code != tool.ToolFailed {
		for _, e := range c.errors {
			r.Text += "\n" + e
		}
		if c.done != nil && c.done.Summary != "" {
			r.Text += "\nsummary: " + c.done.Summary
		}
	}
	if shown != "" {
		r.Text += "\nstderr:\n" + shown
	}
	details := struct {
		Exit   string   `json:"exit"`
		Stderr string   `json:"stderr,omitzero"`
		Errors []string `json:"errors,omitzero"`
	}{exit.String(), stderr, c.errors}
	if text, err := jsonx.Marshal(details); err == nil {
		r.Error.Details = []byte(text)
	}
}
