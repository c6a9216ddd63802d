package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	MaxImage      = 5 << 20 // bytes of all pasted images that go with a text
	maxKinds      = 4 << 10 // bytes of the list of what the clipboard holds
	ClipboardTime = 10 * time.Second
)

// clipboard is a program that shows what the clipboard holds.
type clipboard struct {
	needs string   // a variable that has to be set, of its desktop
	kinds []string // the command that lists the kinds; nil: it has images only
	get   []string // the one that writes an image of the kind that is put behind
}

var clipboards = []clipboard{
	{"WAYLAND_DISPLAY", []string{"wl-paste", "--list-types"}, []string{"wl-paste", "--no-newline", "--type"}},
	{
		"DISPLAY",
		[]string{"xclip", "-selection", "clipboard", "-o", "-t", "TARGETS"},
		[]string{"xclip", "-selection", "clipboard", "-o", "-t"},
	},
	{"", nil, []string{"pngpaste", "-"}},
}

// imageKinds are those that a daemon takes, best first.
var imageKinds = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

var (
	errNoClipboard = errors.New("nothing here shows nous the clipboard's images (it asks wl-paste, xclip or pngpaste); " +
		"/image PATH takes a file along")
	errNoImage = errors.New("the clipboard holds no image; text is pasted by the terminal's own key")
)

// ClipboardImage is the image in the clipboard of the desktop, of at most
// maxImage bytes.
func ClipboardImage(ctx context.Context, getenv func(string) string) (string, error) {
	for _, c := range clipboards {
		if _, err := exec.LookPath(c.get[0]); err != nil || c.needs != "" && getenv(c.needs) == "" {
			continue
		}
		get := c.get
		if c.kinds != nil {
			kinds, err := output(ctx, c.kinds, maxKinds)
			if err != nil {
				return "", errNoImage // an empty clipboard is an error to these programs
			}
			i := slices.IndexFunc(imageKinds, func(kind string) bool { return slices.Contains(strings.Fields(kinds), kind) })
			if i < 0 {
				return "", errNoImage
			}
			get = append(slices.Clip(get), imageKinds[i])
		}
		data, err := output(ctx, get, MaxImage)
		if err == nil && data == "" || c.kinds == nil && err != nil && ctx.Err() == nil {
			err = errNoImage
		}
		return data, err
	}
	return "", errNoClipboard
}

// copiers are the programs that take a text for the clipboard, each where its variable is set.
var copiers = []struct {
	needs string
	args  []string
}{
	{"WAYLAND_DISPLAY", []string{"wl-copy"}},
	{"DISPLAY", []string{"xclip", "-selection", "clipboard"}},
	{"", []string{"pbcopy"}},
	{"TMUX", []string{"tmux", "load-buffer", "-w", "-"}},
}

// copyTime bounds each of them.
const copyTime = 2 * time.Second

// Copy gives a text to the clipboard's programs that are there, and names those that took it.
// It blocks until they have, no longer than copyTime for each.
func Copy(ctx context.Context, getenv func(string) string, text string) (took []string) {
	for _, c := range copiers {
		if _, err := exec.LookPath(c.args[0]); err != nil || c.needs != "" && getenv(c.needs) == "" {
			continue
		}
		if copyWith(ctx, c.args, text) == nil {
			took = append(took, c.args[0])
		}
	}
	return took
}

// copyWith ends with copyTime. What a program leaves running to serve the clipboard goes on:
// it has none of our pipes but the text.
func copyWith(ctx context.Context, args []string, text string) error {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(text)
	return cmd.Run()
}

// output is what a program writes, at most so many bytes. It ends with ctx, and
// all that it has started.
func output(ctx context.Context, args []string, most int64) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(out, most+1))
	if int64(len(text)) > most {
		err = fmt.Errorf("the clipboard holds more than %d bytes", most)
	}
	if err != nil {
		_ = cmd.Cancel()
	}
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("%s: %w", args[0], ended)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s did not answer within %v", args[0], ClipboardTime)
	}
	return string(text), err
}
