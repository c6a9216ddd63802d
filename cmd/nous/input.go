package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// inputHelp is said in the help of the commands that take a text.
const inputHelp = `The arguments are the text. If standard input is a pipe or a file, what it holds
follows after a blank line. Without arguments, or with -, standard input is the
whole text. A terminal, a device or a socket adds nothing to the arguments.

A pipe is read to its end. In a loop that reads its lines from standard input,
add </dev/null.`

// maxText is how long a text may be, in bytes of JSON: it goes to the daemon on
// one line, which has more on it.
const maxText = protocol.DefaultMaxLine - 64<<10

// readText joins the arguments and standard input as inputHelp says. It blocks
// until the end of what is read.
func (a *app) readText(args []string) (string, error) {
	alone := len(args) == 0 || len(args) == 1 && args[0] == "-"
	var parts []string
	if text := strings.Join(args, " "); !alone && text != "" {
		parts = append(parts, text)
	}
	if alone && !(len(args) == 0 && plain.IsTerminal(a.in)) || !alone && a.inputFollows() {
		text, err := a.readInput()
		if err != nil {
			return "", err
		}
		if text != "" {
			parts = append(parts, text)
		}
	}
	if alone && len(parts) == 0 {
		return "", cmdline.Errorf("there is no text: give it as arguments or on standard input")
	}
	return checkText(strings.Join(parts, "\n\n"))
}

// inputFollows tells whether standard input is read where there is a text
// already. Only of a pipe and of a file it is sure that they are meant for nous
// and have an end: a socket may be what another program started nous with, and
// nobody writes to it.
func (a *app) inputFollows() bool {
	f, ok := a.in.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if info.Mode()&os.ModeSocket != 0 {
		a.Notef("standard input is a socket: it is not added to the text")
	}
	return info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0
}

// silence is how long standard input may take before nous says what it waits for.
const silence = 3 * time.Second

// readInput is standard input to its end, without the last line's end.
func (a *app) readInput() (string, error) {
	defer a.tellAfter(silence, "waiting for the end of standard input, which is a part of the text")()
	data, err := io.ReadAll(io.LimitReader(a.in, maxText+1))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(data) > maxText {
		return "", cmdline.Errorf("standard input has more than the %d bytes that a text may have", maxText)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// tellAfter writes a line to standard error unless what it returns is called
// within a time.
func (a *app) tellAfter(wait time.Duration, line string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		select {
		case <-time.After(wait):
			a.Notef("%s", line)
		case <-done:
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// checkText refuses what cannot be said on the wire.
func checkText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", cmdline.Errorf("the text is not valid UTF-8")
	}
	if text == "" {
		return "", cmdline.Errorf("the text is empty")
	}
	const longest = 6 // bytes of JSON that a byte may become
	if len(text) > maxText/longest {
		if quoted, err := jsontext.AppendQuote(nil, text); err != nil || len(quoted) > maxText {
			return "", cmdline.Errorf("the text is too long: it has %d bytes as JSON, and may have %d", len(quoted), maxText)
		}
	}
	return text, nil
}

// calledPrompt is how a text begins that a server may make, namedResource how a
// word looks that may be a server's resource.
var (
	calledPrompt  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[^\s/]+(\.\S|\s|$)`) })
	namedResource = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|\s)@[^\s:@/]+:\S`) })
)

// expanded is a text with what MCP servers have for it, and images that go with
// it. A daemon that knows none leaves it as it is.
func (a *app) expanded(ctx context.Context, scope protocol.Scope, text string, images []protocol.AttachmentParams) (
	string, []protocol.AttachmentParams, error,
) {
	if !strings.ContainsAny(text, "/@") || !calledPrompt().MatchString(text) && !namedResource().MatchString(text) {
		return text, images, nil
	}
	r, err := request(ctx, a, protocol.Expand, protocol.ExpandParams{Scope: scope, Text: text})
	switch {
	case errors.Is(err, client.ErrUnsupported):
		return text, images, nil
	case err != nil:
		return "", nil, err
	case strings.TrimSpace(r.Text) == "":
		return "", nil, fmt.Errorf("the server made an empty text of %.60q", text)
	}
	return r.Text, append(images, r.Attachments...), nil
}

// rawFlag is for commands that print whole texts.
func (a *app) rawFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.Raw, "raw", false, "print texts as they are, with what could drive a terminal")
}
