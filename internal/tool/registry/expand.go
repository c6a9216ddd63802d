package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"noused/internal/model"
	"noused/internal/tool"
)

// Bounds of what servers may put into one text.
const (
	maxExpanded  = 256 << 10 // bytes of all of it
	maxResources = 16
	maxPictures  = 5 << 20 // bytes of one image
)

// Expand returns a text with what MCP servers have for it: in the place of
// /NAME.PROMPT and its arguments what the server makes of these, behind @NAME:URI
// what is there. A text that names no server is returned as it is. It waits for the
// servers it names, which are started for it, each within its timeout.
func (r *Registry) Expand(ctx context.Context, from model.Scope, text string) (model.Expanded, error) {
	e := expansion{r: r, from: from}
	if name, rest, ok := strings.Cut(strings.TrimPrefix(text, "/"), "."); ok && strings.HasPrefix(text, "/") {
		if m := e.server(name); m != nil {
			err := e.prompt(ctx, m, rest)
			return e.done(strings.TrimSpace(e.text.String()), err)
		}
	}
	seen := map[string]bool{}
	for _, word := range strings.Fields(text) {
		name, uri, ok := strings.Cut(strings.TrimPrefix(word, "@"), ":")
		if !ok || uri == "" || !strings.HasPrefix(word, "@") || seen[word] {
			continue
		}
		m := e.server(name)
		if m == nil {
			continue
		}
		if seen[word] = true; len(seen) > maxResources {
			return model.Expanded{}, fmt.Errorf("the text names more than %d resources", maxResources)
		}
		if err := e.resource(ctx, m, name, uri); err != nil {
			return model.Expanded{}, err
		}
	}
	return e.done(text+e.text.String(), nil)
}

// expansion is a text being expanded.
type expansion struct {
	r    *Registry
	from model.Scope
	text strings.Builder
	out  model.Expanded
}

func (e *expansion) done(text string, err error) (model.Expanded, error) {
	if err == nil && e.text.Len() > maxExpanded {
		err = fmt.Errorf("what the servers have for it is longer than %d KiB", maxExpanded>>10)
	}
	if err != nil {
		return model.Expanded{}, err
	}
	e.out.Text = text
	return e.out, nil
}

// server is the MCP server of a name that is seen from there, nil for none.
func (e *expansion) server(name string) *module {
	list := e.r.seen(e.from)
	i := slices.IndexFunc(list, func(m *module) bool { return m.desc.Name == name && m.desc.Protocol == tool.MCP })
	if i < 0 {
		return nil
	}
	return list[i]
}

// with has f use the server of a module, for the folder that it is asked from.
func (e *expansion) with(m *module, f func(tool.Host) error) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	p, leave, err := m.at(e.from.Workdir, "")
	if err != nil {
		return err
	}
	defer leave()
	return f(p.host)
}

// askServer asks the server of a module for texts.
func (e *expansion) askServer(m *module, f func(tool.Teller) ([]tool.Part, error)) (parts []tool.Part, err error) {
	err = e.with(m, func(h tool.Host) (err error) {
		teller, ok := h.(tool.Teller)
		if !ok {
			return errors.New("it has no prompts and no resources")
		}
		parts, err = f(teller)
		return err
	})
	return parts, err
}

// prompts are those of a module's server, which is asked for them where it was never
// heard.
func (e *expansion) prompts(ctx context.Context, m *module) (list []model.ServerPrompt, err error) {
	if list = m.prompts(); list != nil {
		return list, nil
	}
	err = e.with(m, func(h tool.Host) error {
		manifest, err := h.Describe(ctx)
		if err == nil {
			list = manifest.Prompts
		}
		return err
	})
	return list, err
}

// prompt has a server make a text of its prompt and what is typed behind its name.
func (e *expansion) prompt(ctx context.Context, m *module, typed string) error {
	name, rest := typed, ""
	if i := strings.IndexFunc(typed, unicode.IsSpace); i >= 0 {
		name, rest = typed[:i], strings.TrimSpace(typed[i:])
	}
	called := "/" + m.desc.Name + "." + name
	prompts, err := e.prompts(ctx, m)
	if err != nil {
		return fmt.Errorf("%.80s: %w", called, err)
	}
	i := slices.IndexFunc(prompts, func(p model.ServerPrompt) bool { return p.Name == name })
	switch {
	case len(prompts) == 0:
		return fmt.Errorf("%.80s: %s has no prompts", called, m.desc.Name)
	case i < 0:
		return fmt.Errorf("%.80s: %s has no such prompt, only %s", called, m.desc.Name, promptNames(prompts))
	}
	args, err := promptArguments(prompts[i].Arguments, rest)
	if err != nil {
		return fmt.Errorf("%.80s: %w", called, err)
	}
	parts, err := e.askServer(m, func(t tool.Teller) ([]tool.Part, error) { return t.Prompt(ctx, name, args) })
	if err != nil {
		return fmt.Errorf("%.80s: %w", called, err)
	}
	for _, p := range parts {
		if err := e.add(p, m.desc.Name); err != nil {
			return fmt.Errorf("%.80s: %w", called, err)
		}
	}
	return nil
}

func promptNames(list []model.ServerPrompt) string {
	var names []string
	for _, p := range list[:min(len(list), 20)] {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func (e *expansion) resource(ctx context.Context, m *module, name, uri string) error {
	parts, err := e.askServer(m, func(t tool.Teller) ([]tool.Part, error) { return t.Resource(ctx, uri) })
	if err == nil && len(parts) == 0 {
		err = errors.New("there is nothing")
	}
	for i := 0; err == nil && i < len(parts); i++ {
		if parts[i].URI == "" {
			parts[i].URI = uri
		}
		err = e.add(parts[i], name)
	}
	if err != nil {
		return fmt.Errorf("@%.200s: %w", name+":"+uri, err)
	}
	return nil
}

// add adds a part to the text, or to the images.
func (e *expansion) add(p tool.Part, server string) error {
	switch {
	case len(p.Data) > 0 && strings.HasPrefix(p.MediaType, "image/"):
		if len(p.Data) > maxPictures {
			return fmt.Errorf("the image has %d bytes, at most %d (%d MiB) are allowed", len(p.Data), maxPictures,
				maxPictures>>20)
		}
		if len(e.out.Images) == maxResources {
			return fmt.Errorf("there are more than %d images", maxResources)
		}
		e.out.Images = append(e.out.Images, model.Attachment{MediaType: p.MediaType, Name: p.URI, Data: p.Data})
		return nil
	case len(p.Data) > 0:
		return fmt.Errorf("it is neither text nor an image, but %.60q", p.MediaType)
	case len(p.Text)+e.text.Len() > maxExpanded:
		return fmt.Errorf("it is longer than %d KiB", maxExpanded>>10)
	case p.URI != "":
		fence := fenceFor(p.Text)
		fmt.Fprintf(&e.text, "\n\n%s:%s\n%s\n%s\n%s", server, p.URI, fence, strings.TrimSuffix(p.Text, "\n"), fence)
	case p.Assistant:
		fmt.Fprintf(&e.text, "\n\nAssistant: %s", p.Text)
	default:
		fmt.Fprintf(&e.text, "\n\n%s", p.Text)
	}
	return nil
}

// fenceFor is a fence that no line of a text can end.
func fenceFor(text string) string {
	longest, run := 2, 0
	for i := range len(text) {
		if run++; text[i] != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return strings.Repeat("`", longest+1)
}

// promptArguments are what is typed behind a prompt: NAME=VALUE words, "…" or '…'
// around what has spaces; the rest, as it stands, is the first argument that is not
// among them.
func promptArguments(known []model.PromptArgument, typed string) (map[string]string, error) {
	args := map[string]string{}
	for typed != "" {
		name, value, rest, ok := promptArgument(known, typed)
		if !ok {
			break
		}
		args[name], typed = value, strings.TrimSpace(rest)
	}
	if typed != "" {
		i := slices.IndexFunc(known, func(a model.PromptArgument) bool { _, given := args[a.Name]; return !given })
		if i < 0 {
			return nil, fmt.Errorf("it takes nothing more: %.60q", typed)
		}
		args[known[i].Name] = typed
	}
	for _, a := range known {
		if _, given := args[a.Name]; a.Required && !given {
			return nil, fmt.Errorf("%s=… is missing", a.Name)
		}
	}
	return args, nil
}

func promptArgument(known []model.PromptArgument, typed string) (name, value, rest string, ok bool) {
	name, behind, ok := strings.Cut(typed, "=")
	if !ok || !slices.ContainsFunc(known, func(a model.PromptArgument) bool { return a.Name == name }) {
		return "", "", typed, false
	}
	if behind != "" && (behind[0] == '"' || behind[0] == '\'') {
		if end := strings.IndexByte(behind[1:], behind[0]); end >= 0 {
			return name, behind[1 : 1+end], behind[2+end:], true
		}
	}
	if i := strings.IndexFunc(behind, unicode.IsSpace); i >= 0 {
		return name, behind[:i], behind[i:], true
	}
	return name, behind, "", true
}
