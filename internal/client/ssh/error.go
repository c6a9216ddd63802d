package ssh

import (
	"fmt"
	"strings"
	"time"

	"noused/internal/client"
	"noused/internal/format"
	"noused/internal/protocol"
)

// Error says why there is no connection to a host, or none any more.
type Error struct {
	Host  string
	What  string        // one sentence
	Said  string        // what ssh, or the far nous, said last; several lines, or ""
	Next  string        // what to do, or ""
	Code  protocol.Code // of the far proxy's last line, or ""
	Shown bool          // Said was written to Options.Show
	Lost  bool          // there was a connection: it is a client.ErrLost, too
}

func (e *Error) Error() string {
	text := e.Host + ": " + e.What
	if e.Said != "" {
		text += ": " + strings.ReplaceAll(e.Said, "\n", "; ")
	}
	return text
}

// Unwrap returns client.ErrLost where there was a connection.
func (e *Error) Unwrap() error {
	if e.Lost {
		return client.ErrLost
	}
	return nil
}

// failure is the line that a proxy ends with.
type failure struct {
	OK     *bool           `json:"ok"`
	Type   string          `json:"type"`
	Error  *protocol.Error `json:"error"`
	Socket string          `json:"socket"`
}

// CodeNoDaemon is what a proxy says that has found no daemon.
const CodeNoDaemon protocol.Code = "no_daemon"

func (f failure) is() bool { return f.OK != nil && !*f.OK && f.Type == "" && f.Error != nil }

// maxSaid is how many bytes of a far machine's words are shown.
const maxSaid = 2 << 10

// of says what it means at a host, in one line that is not long.
func (f failure) of(host string, lost bool) error {
	f.Error.Message, f.Error.Code = oneLine(f.Error.Message), protocol.Code(oneLine(string(f.Error.Code)))
	f.Socket = oneLine(f.Socket)
	if f.Error.Code == CodeNoDaemon && !lost {
		at := host
		if f.Socket != "" {
			at += ":" + f.Socket
		}
		return &client.NoDaemonError{Socket: at, Err: f.Error}
	}
	return &Error{Host: host, What: f.Error.Message, Code: f.Error.Code, Lost: lost}
}

func oneLine(text string) string { return format.Line(format.Cut(text, maxSaid)) }

// try is what shows by itself what is wrong.
func (o Options) try() string {
	if len(o.SSH) == 0 {
		return "try: ssh " + o.Host
	}
	return "try: ssh " + strings.Join(o.SSH, " ")
}

// changedKey stands in what ssh says of a key that is not the one it knows.
const changedKey = "REMOTE HOST IDENTIFICATION HAS CHANGED"

// aboutKey is what says something in ssh's banner about such a key, and how the known one is
// removed.
func aboutKey(banner string) (said, next string) {
	var kept []string
	for line := range strings.Lines(banner) {
		line = strings.Trim(line, "@ \t\r\n")
		switch {
		case strings.HasPrefix(line, "ssh-keygen "):
			next = "if you know that it has a new key: " + line
		case strings.Contains(line, changedKey), strings.HasPrefix(line, "SHA256:"), strings.HasPrefix(line, "Offending "):
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n"), next
}

// ended says how an ssh that said no hello has ended.
func ended(o Options, p *process, noise string) *Error {
	said := p.words.String()
	e := &Error{Host: o.Host, Said: strings.TrimSpace(noise + "\n" + said)}
	nous := o.Nous
	if nous == "" {
		nous = "nous"
	}
	try := o.try()
	switch status := p.status(); {
	case status == 255 && strings.Contains(said, changedKey):
		e.Said, e.Next = aboutKey(said)
		e.What = "ssh does not go on, as the key of the host is not the one that it knows: it may be another machine"
	case status == 255:
		e.What, e.Next = "ssh has failed", try
	case status == 127, status == 126, strings.Contains(strings.ToLower(said), "command not found"):
		e.What = fmt.Sprintf("there is no %s that can be run", nous)
		e.Next = fmt.Sprintf(
			"install noused there, or say where nous is: nous = \"/path/of/nous\" in [hosts.%s] of ~/.config/nous/config.toml",
			o.Host)
	case status == 2 && strings.Contains(said, `"proxy"`):
		e.What, e.Next = fmt.Sprintf("%s is too old there: it has no proxy", nous), "update noused there"
	case status < 0:
		e.What = fmt.Sprintf("ssh was ended (%v)", p.err)
	default:
		e.What, e.Next = fmt.Sprintf("%s proxy has ended with status %d and said no hello", nous, status), try
	}
	return e
}

// lost says how a connection that stood has ended. It waits for ssh's end, within limits.
func (t *trunk) lost(err error) error {
	select {
	case <-t.p.exited:
	case <-time.After(toldEnd):
		return &Error{Host: t.o.Host, What: fmt.Sprintf("the connection broke: %v", err), Lost: true}
	}
	e := &Error{Host: t.o.Host, What: "ssh has ended", Said: t.p.words.String(), Lost: true}
	if t.p.err != nil {
		e.What += fmt.Sprintf(" (%v)", t.p.err)
	}
	return e
}

var (
	errEndless = fmt.Errorf("a line of more than %d MiB came", maxPassed>>20)
	errFull    = fmt.Errorf("nous holds %d MiB of what came from other machines, and takes no more before it is read",
		maxHeld>>20)
	errLong = fmt.Errorf(
		"the answer has more than %d MiB, the most that nous takes from another machine in one: log in there for it",
		maxLine>>20)
)
