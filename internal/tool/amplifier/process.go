package amplifier

import (
	"context"
	"errors"
	"syscall"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/worker"
)

// request is one of the three things that a module can be asked
// (amplifier-protocols §2). All but the method belong to invoke.
type request struct {
	Method    string         `json:"method,omitzero"`
	Op        string         `json:"op,omitzero"`
	Args      jsontext.Value `json:"args,omitzero"`
	SessionID string         `json:"session_id,omitzero"`
}

const (
	methodHealth   = "health"
	methodDescribe = "describe"
	methodInvoke   = "invoke"
)

// flat is the request as one object. What health and describe are is in op,
// too; an operation of that name is told apart by the method (tools.md §4).
func (r request) flat() ([]byte, error) {
	if r.Method != methodInvoke {
		r.Op = r.Method
	}
	return jsonx.Marshal(r)
}

// params is the request where the method stands elsewhere.
func (r request) params() request {
	r.Method = ""
	return r
}

func (r request) rpc(id int64) ([]byte, error) {
	return jsonx.Marshal(struct {
		Version string  `json:"jsonrpc"`
		ID      int64   `json:"id"`
		Method  string  `json:"method"`
		Params  request `json:"params"`
	}{"2.0", id, r.Method, r.params()})
}

// process is a module over stdio.
type process struct {
	*worker.Conn[object]
	rpc bool
	log *zap.Logger

	nextID  int64 // the asker's, as greeted is
	greeted bool
}

func newProcess(p *proc.Process, rpc bool, log *zap.Logger) *process {
	m := &process{rpc: rpc, log: log}
	m.Conn = worker.NewConn(p, worker.Dialogue[object]{
		Who: "module", Code: tool.Internal, Decode: decode,
		Noise: "cannot be read", Noises: "cannot be read", Quote: true, Single: !rpc, Unasked: m.unasked,
	}, log)
	return m
}

func (m *process) unasked(o object) {
	m.log.Debug("module said something nobody asked for", zap.Stringer("message", o))
}

// exchange sends one request and waits for its reply. A flat module may greet with
// other lines than JSON before its first reply, as many as [worker.Conn] bears;
// after it, such a line is the reply, and wrong.
func (m *process) exchange(ctx context.Context, r request) (object, error) {
	m.nextID++
	id := m.nextID
	line, err := r.flat()
	if m.rpc {
		line, err = r.rpc(id)
	}
	if err != nil {
		return nil, tool.Faultf(tool.BadRequest, "%s: %v", r.Method, err)
	}
	var reply object
	err = m.Ask(ctx, append(line, '\n'), m.greeted && !m.rpc, func(o object) bool {
		if m.rpc && !o.answers(id) {
			m.unasked(o)
			return false
		}
		reply = o
		return true
	})
	m.greeted = true
	return reply, m.named(err)
}

// named tells a crash that only the kernel's shortage of memory, or somebody
// from outside, can have caused from others.
func (m *process) named(err error) error {
	var f *tool.Fault
	if !errors.As(err, &f) || f.Code != tool.Crashed {
		return err
	}
	if exit, ended := m.Exit(); ended && exit.Signal == syscall.SIGKILL && !exit.Stopped {
		f.Code = tool.OOM
		f.Message += ", most likely by the system for want of memory"
	}
	return f
}
