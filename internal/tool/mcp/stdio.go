package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

const (
	// maxNoise is how many lines of a process that are no messages are logged.
	maxNoise = 10
	// keptStderr is how much of stderr goes into a fault's details, in bytes.
	keptStderr = 64 << 10
)

// spawner starts a server as a child process.
type spawner struct {
	desc *tool.Descriptor
	s    *proc.Supervisor
	log  *zap.Logger
}

func (s *spawner) dial(_ context.Context, l *link) (wire, error) {
	cmd, err := s.desc.Command()
	if err != nil {
		return nil, err
	}
	p, err := tool.Start(context.Background(), s.s, cmd)
	if err != nil {
		return nil, err
	}
	return &pipe{p: p, inbox: newInbox(l, p.Exited()), log: s.log, dead: make(chan struct{})}, nil
}

func (*spawner) waiting() string { return "" }

// pipe is a child process as the SDK's transport and connection. It stands in
// front of the SDK: what is no message does not reach it.
type pipe struct {
	p     *proc.Process
	inbox *inbox
	log   *zap.Logger

	noise int // lines

	mu    sync.Mutex
	ready bool        // the handshake is done
	why   *tool.Fault // we ended it

	dead chan struct{}
	exit proc.Exit // once dead
}

// Connect is [sdk.Transport].
func (p *pipe) Connect(context.Context) (sdk.Connection, error) { return p, nil }

// SessionID is [sdk.Connection].
func (p *pipe) SessionID() string { return "" }

// Read returns the next message that is the SDK's to answer. It belongs to the
// SDK's one reader, and ends the process where it fails.
func (p *pipe) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := p.p.Next()
		if err != nil {
			return nil, p.finish(err)
		}
		msg, err := p.decodeLine(line)
		switch {
		case err != nil:
			return nil, p.finish(err)
		case msg != nil:
			return msg, nil
		}
	}
}

// decodeLine makes a message of a line, nil where it is not the SDK's.
func (p *pipe) decodeLine(line []byte) (jsonrpc.Message, error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, nil
	}
	done := p.p.Turn(line)
	defer func() { done() }()
	if line[0] != '{' {
		p.skip(line, nil)
		return nil, nil
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		p.skip(line, err)
		return nil, nil
	}
	taken := done
	done = func() {}
	return p.inbox.receive(msg, len(line), taken)
}

// skip passes over a line that is no message.
func (p *pipe) skip(line []byte, err error) {
	p.inbox.pace(len(line))
	if p.noise++; p.noise > maxNoise {
		return
	}
	p.log.Warn("server wrote a line that is no message", zap.ByteString("line", line[:min(len(line), 200)]),
		zap.Error(err))
}

// Write sends a message, and waits while the server does not read.
func (p *pipe) Write(ctx context.Context, msg jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("cannot be sent: %w", err)
	}
	p.inbox.expect(ctx, msg)
	err = p.p.Write(ctx, append(line, '\n'))
	p.inbox.sent(msg)
	return err
}

// finish ends the process after the last of its messages, and is the error of all
// that the SDK still waits for.
func (p *pipe) finish(err error) error {
	var long *protocol.LineTooLongError
	var fault *tool.Fault
	switch {
	case errors.As(err, &fault):
	case errors.As(err, &long):
		fault = tool.Faultf(tool.ProtocolError, "%v", err)
	case !errors.Is(err, io.EOF):
		fault = tool.Faultf(tool.ProtocolError, "read the server's output: %v", err)
	}
	if fault != nil {
		p.stop(fault)
	}
	p.exit = p.p.Finish(worker.ExitGrace)
	if stderr := p.p.Stderr(keptStderr); stderr != "" {
		p.log.Debug("server's stderr", zap.Stringer("exit", p.exit), zap.String("stderr", stderr))
	}
	close(p.dead)
	return io.EOF
}

// Close is the SDK's way to end it.
func (p *pipe) Close() error {
	p.mu.Lock()
	ready := p.ready
	p.mu.Unlock()
	if !ready {
		p.p.Stop()
	}
	p.close(context.Background())
	return nil
}

func (p *pipe) established() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = true
}

func (p *pipe) stop(why *tool.Fault) {
	p.mu.Lock()
	if p.why == nil {
		p.why = why
	}
	p.mu.Unlock()
	p.p.Stop()
}

func (p *pipe) close(ctx context.Context) {
	p.p.CloseInput()
	go func() { // ends with the process
		timer := time.NewTimer(worker.ExitGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			p.p.Stop()
		case <-ctx.Done():
			p.p.Kill()
		case <-p.dead:
			return
		}
		select {
		case <-ctx.Done():
			p.p.Kill()
		case <-p.dead:
		}
	}()
}

func (p *pipe) ended() <-chan struct{} { return p.dead }

func (p *pipe) epitaph() *tool.Fault {
	p.mu.Lock()
	why := p.why
	p.mu.Unlock()
	f := tool.Fault{Code: tool.Crashed, Message: fmt.Sprintf("the server ended before it answered: %v", p.exit)}
	if why != nil {
		f = *why
	}
	stderr := p.p.Stderr(keptStderr)
	if last := lastLine(stderr); last != "" && f.Code == tool.Crashed {
		f.Message += ": " + last
	}
	details := struct {
		Exit   string `json:"exit"`
		Stderr string `json:"stderr,omitzero"`
	}{p.exit.String(), stderr}
	if text, err := jsonx.Marshal(details); err == nil {
		f.Details = text
	}
	return &f
}

// lastLine is the last line of a text that says something, shortened.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	const most = 200
	return format.Clip(line, most)
}
