package slash

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/format"
	"noused/internal/protocol"
)

// maxShell is how much of a shell line's output is shown that stays out of the
// conversation, in bytes.
const maxShell = 32 << 10

// shellLine tells a line for the shell, "!COMMAND" or "!!COMMAND", from a text.
// A space before the mark makes it a text.
func shellLine(text string) (line string, ok bool) {
	if rest, ok := strings.CutPrefix(text, "!!"); ok {
		return "/bash-aside " + strings.TrimSpace(rest), true
	}
	if rest, ok := strings.CutPrefix(text, "!"); ok {
		return "/bash " + strings.TrimSpace(rest), true
	}
	return "", false
}

// runShell runs a line with the session's bash, and the conversation goes on
// with the line and its output.
func runShell(ctx context.Context, p Place, line string) Outcome {
	if p.Running() {
		return Failed(
			errors.New("a run is active, and its order would break: !!COMMAND runs beside it, !COMMAND when it is over"))
	}
	r, err := shell(ctx, p, line, ShellNote(line))
	switch {
	case err != nil:
		return Failed(err)
	case r.MessageID == "":
		return Outcome{
			Info:  shown(line, r) + "\n\nThis core is an older one: the output does not join the conversation.",
			Stays: true,
		}
	}
	return Outcome{}
}

// ShellNote is what the message begins with by which the conversation has a line and its output.
func ShellNote(line string) string { return "I ran this in the shell:\n\n$ " + line }

// runShellAside is runShell without the conversation.
func runShellAside(ctx context.Context, p Place, line string) Outcome {
	r, err := shell(ctx, p, line, "")
	if err != nil {
		return Failed(err)
	}
	return Outcome{Info: shown(line, r), Stays: true}
}

// shell runs a line on a connection of its own, whose end ends the line, too.
func shell(ctx context.Context, p Place, line, note string) (r protocol.ExtensionResult, err error) {
	args, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		return r, err
	}
	defer func() {
		if ctx.Err() != nil {
			err = errors.New("$ " + line + ": stopped")
		}
	}()
	conn, err := p.Site.Daemon.Commands(ctx)
	if err != nil {
		return r, err
	}
	c := client.New(conn)
	defer c.Close()
	r, err = client.Call(ctx, c, protocol.ExtensionCommand, protocol.ExtensionCommandParams{
		Scope: p.Scope(), Name: "bash",
		Payload: args, Note: note, OutputID: p.OutputID,
	})
	var wire *protocol.Error
	if errors.As(err, &wire) && wire.Code == protocol.CommandRejected &&
		strings.HasPrefix(wire.Message, string(protocol.ExtensionNotFound)) {
		err = errors.New("this daemon has no tool bash, which runs shell lines")
	}
	return r, err
}

// shown is a line and the end of its output.
func shown(line string, r protocol.ExtensionResult) string {
	o := ShellOutput{Line: line}
	o.Add(r.Result)
	return o.String()
}

// ShellOutput is a line for the shell and the end of what it has said so far.
type ShellOutput struct {
	Line string
	end  string
	over int // bytes that are not in end
}

// Add takes in what the line says next.
func (o *ShellOutput) Add(text string) {
	o.end += text
	if over := len(o.end) - maxShell; over > 0 {
		all := len(o.end)
		o.end = format.CutStart(o.end, maxShell)
		o.over += all - len(o.end)
	}
}

func (o *ShellOutput) String() string {
	text := "$ " + o.Line + "\n"
	if o.over > 0 {
		text += fmt.Sprintf("(%d bytes before)\n", o.over)
	}
	return text + o.end
}
