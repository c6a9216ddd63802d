package machine

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// tmuxTime bounds how long tmux may take to name an option.
const tmuxTime = 2 * time.Second

// Tmux looks at the options that the screen needs of the tmux it runs in; nil outside of
// one.
func Tmux(ctx context.Context) (all []Finding) {
	if os.Getenv("TMUX") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tmuxTime)
	defer cancel()
	for _, o := range []struct{ option, without string }{
		{"focus-events", "nous cannot tell whether you look at it, and rings although you do"},
		{"set-clipboard", "/copy reaches tmux's buffer, and not the clipboard"},
	} {
		cmd := exec.CommandContext(ctx, "tmux", "show-options", "-sv", o.option)
		cmd.WaitDelay = time.Second
		said, err := cmd.Output()
		switch value := strings.TrimSpace(string(said)); {
		case err != nil:
			return append(all, Finding{"warn", "tmux", "it does not say what its options are: " + err.Error(), ""})
		case value == "off":
			all = append(all, Finding{
				"warn", "tmux", o.option + " is off: " + o.without,
				"in ~/.tmux.conf: set -s " + o.option + " on",
			})
		default:
			all = append(all, Finding{"ok", "tmux", o.option + " is " + value, ""})
		}
	}
	return all
}
