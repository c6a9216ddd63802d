package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/format"
	"noused/internal/hookfile"
	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/regular"
	"noused/internal/trust"
)

const (
	maxOutput = 64 << 10 // bytes that all hooks of a point may print, for one call or text
	maxSaid   = 2 << 10  // of what a failure says
	objects   = 2        // the exit status
)

// Options are what Hooks need. All are required.
type Options struct {
	ConfigDir string // has what the user trusts
	Home      string
	Start     func(context.Context, proc.Command) (*proc.Process, error) // as the user's own tools are
	Confined  func(context.Context, proc.Sandbox, proc.Command) (*proc.Process, error)
	Environ   []string // of the user's own; Confined has one
}

// Hooks are those of the user, and of projects. Make it with New.
type Hooks struct {
	o       Options
	own     atomic.Pointer[[]hookfile.Hook]
	trusted atomic.Pointer[trustFile]
}

// New returns Hooks with the user's own.
func New(o Options, own []hookfile.Hook) *Hooks {
	h := &Hooks{o: o}
	h.Replace(own)
	return h
}

// Replace puts others in the place of the user's own, and returns those from before.
func (h *Hooks) Replace(own []hookfile.Hook) (before []hookfile.Hook) {
	if was := h.own.Swap(&own); was != nil {
		before = *was
	}
	return before
}

// Has reports whether any hook may have a say there; for a project it says so where the user
// trusts any of it, or where nobody can tell. It does not block.
func (h *Hooks) Has(on, folder, tool string) bool {
	t := h.known()
	_, trusted := t.folders[folder]
	return trusted || t.err != nil ||
		slices.ContainsFunc(*h.own.Load(), func(k hookfile.Hook) bool { return fits(k, on, tool) })
}

// Anywhere is Has for some folder.
func (h *Hooks) Anywhere(on string) bool {
	t := h.refresh()
	return len(t.folders) > 0 || t.err != nil ||
		slices.ContainsFunc(*h.own.Load(), func(k hookfile.Hook) bool { return k.On == on })
}

// at are the hooks that hook in there, the user's own first. The error says why nothing may
// pass.
func (h *Hooks) at(on, folder, tool string) ([]hookfile.Hook, error) {
	of, closed, err := h.project(folder)
	if !slices.Contains(closed, on) {
		err = nil // it was told when the run began
	}
	list := slices.Concat(*h.own.Load(), of)
	return slices.DeleteFunc(list, func(k hookfile.Hook) bool { return !fits(k, on, tool) }), err
}

// Input is what a hook gets. Fields that its point does not have are left out.
type Input struct {
	On        string         `json:"on"`
	SessionID string         `json:"session_id,omitzero"`
	Workdir   string         `json:"workdir,omitzero"`
	Tool      string         `json:"tool,omitzero"`
	Arguments jsontext.Value `json:"arguments,omitzero"`
	OK        *bool          `json:"ok,omitzero"`
	Result    *string        `json:"result,omitzero"`
	Prompt    *string        `json:"prompt,omitzero"`
	Output    *string        `json:"output,omitzero"`
	Event     jsontext.Value `json:"event,omitzero"`
}

// Guard asks the hooks of before_tool about a call: the zero Verdict where none objects, else
// one that denies. It blocks until all have answered, one has objected, or ctx ends.
func (h *Hooks) Guard(ctx context.Context, inv model.Invocation) model.Verdict {
	list, err := h.at(hookfile.BeforeTool, inv.Workdir, inv.Name)
	if err != nil {
		return model.Verdict{Decision: model.Deny, Code: model.Forbidden, Rule: "deny: hooks", Why: err.Error()}
	}
	for _, k := range list {
		left := maxOutput // of a hook that lets the call pass nothing is kept
		said, err := h.run(ctx, k, inv.Workdir, callInput(hookfile.BeforeTool, inv), &left)
		deny := model.Verdict{Decision: model.Deny, Code: model.Forbidden, Rule: fmt.Sprintf("deny: the hook %v", k)}
		switch {
		case err != nil:
			deny.Why = failed(k, err).Error()
			deny.Warning = deny.Why
			return deny
		case said.objects:
			deny.Why = fmt.Sprintf("the hook %v denies it: %s", k, said.text)
			return deny
		}
	}
	return model.Verdict{}
}

func callInput(on string, inv model.Invocation) Input {
	return Input{
		On: on, SessionID: inv.SessionID, Workdir: inv.Workdir, Tool: inv.Name, Arguments: jsontext.Value(inv.Arguments),
	}
}

// AfterTool adds to a call's result what hooks say of it. One that objects makes it a failed
// one. It returns why hooks failed: the result is as it is without them.
func (h *Hooks) AfterTool(ctx context.Context, inv model.Invocation, res model.ToolResult) (model.ToolResult,
	[]string,
) {
	var problems []string
	list, _ := h.at(hookfile.AfterTool, inv.Workdir, inv.Name)
	left := maxOutput
	for _, k := range list {
		in := callInput(hookfile.AfterTool, inv)
		in.OK, in.Result = &res.OK, &res.Text
		said, err := h.run(ctx, k, inv.Workdir, in, &left)
		switch {
		case err != nil:
			problems = append(problems, failed(k, err).Error())
			continue
		case said.text != "":
			res.Text = added(k, res.Text, said.text)
		}
		if said.objects {
			res.OK = false
			if res.Error == nil {
				res.Error = &model.ToolError{Code: model.HookObjects, Message: format.Clip(said.text, maxSaid)}
			}
		}
	}
	return res, problems
}

// added is a text with what a hook says behind it.
func added(h hookfile.Hook, text, said string) string {
	return strings.TrimLeft(fmt.Sprintf("%s\n\n[hook %s]\n%s", text, filepath.Base(h.Command[0]), said), "\n")
}

// OnPrompt returns a text with what hooks add to it. The error says which does not let it in,
// or has failed.
func (h *Hooks) OnPrompt(ctx context.Context, sessionID, folder, text string) (string, error) {
	list, err := h.at(hookfile.OnPrompt, folder, "")
	if err != nil {
		return "", err
	}
	left := maxOutput
	for _, k := range list {
		in := Input{On: hookfile.OnPrompt, SessionID: sessionID, Workdir: folder, Prompt: &text}
		said, err := h.run(ctx, k, folder, in, &left)
		switch {
		case err != nil:
			return "", failed(k, err)
		case said.objects:
			return "", fmt.Errorf("the hook %v: %s", k, said.text)
		case said.text != "":
			text = added(k, text, said.text)
		}
	}
	return text, nil
}

// OnStop returns what hooks that object to the end of a run say, "" where none does, and why
// hooks failed.
func (h *Hooks) OnStop(ctx context.Context, sessionID, folder, output string) (text string, problems []string) {
	list, _ := h.at(hookfile.OnStop, folder, "")
	left := maxOutput
	for _, k := range list {
		in := Input{On: hookfile.OnStop, SessionID: sessionID, Workdir: folder, Output: &output}
		said, err := h.run(ctx, k, folder, in, &left)
		switch {
		case err != nil:
			problems = append(problems, failed(k, err).Error())
		case said.objects:
			text = added(k, text, said.text)
		}
	}
	return text, problems
}

// Tell hands an event to a hook of on_event.
func (h *Hooks) Tell(ctx context.Context, k hookfile.Hook, event []byte) error {
	left := maxOutput
	_, err := h.run(ctx, k, "", Input{On: hookfile.OnEvent, Event: event}, &left)
	if err != nil {
		return failed(k, err)
	}
	return nil
}

// said is what a hook has to say.
type said struct {
	text    string
	objects bool
}

// run runs a hook once, which may print as much as is left. It blocks until nothing is left of
// the hook.
func (h *Hooks) run(ctx context.Context, k hookfile.Hook, folder string, in Input, left *int) (said, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.Timeout, fmt.Errorf("it took longer than its timeout of %v", k.Timeout))
	defer cancel()
	line, err := json.Marshal(in, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return said{}, err
	}
	p, err := h.start(ctx, k, folder)
	if err != nil {
		return said{}, err
	}
	_ = p.Send(append(line, '\n')) // the first in its queue always has room
	p.CloseInput()
	out, err := io.ReadAll(io.LimitReader(p, int64(*left)+1))
	long := len(out) > *left
	if long {
		p.Kill()
	}
	*left = max(0, *left-len(out))
	exit := p.Wait()
	text := strings.TrimSpace(strings.ToValidUTF8(string(out), "\uFFFD"))
	switch {
	case ctx.Err() != nil:
		return said{}, context.Cause(ctx)
	case long:
		return said{}, fmt.Errorf("it printed more than %d KiB, or those before it did with it", maxOutput>>10)
	case err != nil && !errors.Is(err, io.EOF):
		return said{}, err
	case exit.OK():
		return said{text: text}, nil
	case exit.Code == objects && exit.Signal == 0:
		if text == "" {
			text = strings.TrimSpace(p.Stderr(maxSaid))
		}
		if text == "" {
			text = "it objects, and does not say why"
		}
		return said{text, true}, nil
	}
	return said{}, errors.New(strings.TrimSpace(exit.String() + " " + strings.TrimSpace(p.Stderr(maxSaid))))
}

func (h *Hooks) start(ctx context.Context, k hookfile.Hook, folder string) (*proc.Process, error) {
	path, err := k.Command[0], error(nil)
	if strings.ContainsRune(path, filepath.Separator) {
		path = regular.Named(path, h.o.Home, k.Dir)
	}
	if k.Project != "" {
		path, err = exec.LookPath(path) // it is run in the sandbox
	} else {
		path, err = trust.LookPath(path, os.Getenv("PATH"))
	}
	if err != nil {
		return nil, err
	}
	c := proc.Command{Name: "the hook " + filepath.Base(k.Command[0]), Path: path, Args: k.Command}
	if k.Project == "" {
		c.Env = trust.Environ(h.o.Environ)
		return h.o.Start(ctx, c)
	}
	c.Dir = folder
	return h.o.Confined(ctx, proc.Sandbox{Name: c.Name, Workdir: folder, Cache: true}, c)
}
