package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"noused/internal/buildinfo"
	"noused/internal/form"
	"noused/internal/mcpfile"
	"noused/internal/model"
	"noused/internal/oauth"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/check"
	"noused/internal/tool/mcp"
)

const (
	// conformanceLogins is how often somebody logs in for one scenario.
	conformanceLogins = 3
	// conformanceClient is the client id metadata document that the suite knows.
	conformanceClient = "https://conformance-test.local/client-metadata.json"
)

// conformance plays one scenario of the official conformance suite for MCP clients
// with the host that the daemon has: it lists the server's tools and calls each of
// them once, logs in where the server wants that, and accepts forms as they are.
type conformance struct {
	server string
	client oauth.Client
	logins *oauth.Store
	host   tool.Host
	left   int // logins
	log    io.Writer
}

// runConformance plays the scenario of the server at that address.
func runConformance(ctx context.Context, server string, log io.Writer) error {
	dir, err := os.MkdirTemp("", "noused-conformance")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d, err := tool.ServerDescriptor(mcpfile.Server{Name: "conformance", URL: server}, "", dir, dir, os.Environ())
	if err != nil {
		return err
	}
	c := &conformance{
		server: server, logins: oauth.Open(dir), left: conformanceLogins, log: log,
		client: suiteClient(os.Getenv("MCP_CONFORMANCE_CONTEXT")),
	}
	supervisor := proc.NewSupervisor(selfPath, zap.NewNop())
	defer supervisor.Close()
	c.host = mcp.Dialect(mcp.Options{Version: buildinfo.Version(), OutputDir: dir, Logins: c.logins})(d, supervisor,
		zap.NewNop())
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		c.host.Close(ctx)
	}()
	return c.play(ctx)
}

// suiteClient is the client that a scenario says it knows.
func suiteClient(context string) oauth.Client {
	var given struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	if json.Unmarshal([]byte(context), &given) != nil || given.ID == "" {
		return oauth.Client{ID: conformanceClient}
	}
	return oauth.Client{ID: given.ID, Secret: given.Secret}
}

func (c *conformance) play(ctx context.Context) error {
	var m *tool.Manifest
	err := c.loggedIn(ctx, func() (err error) {
		m, err = c.host.Describe(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("list the tools: %w", err)
	}
	for _, op := range m.Operations {
		if err := c.loggedIn(ctx, func() error { return c.call(ctx, op) }); err != nil {
			return fmt.Errorf("call %s: %w", op.Name, err)
		}
	}
	return nil
}

// loggedIn does something, and logs in and does it again where the server wants
// that.
func (c *conformance) loggedIn(ctx context.Context, do func() error) error {
	for {
		err := do()
		var f *tool.Fault
		if !errors.As(err, &f) || f.Code != tool.NeedsLogin || c.left == 0 {
			return err
		}
		c.left--
		_, _ = fmt.Fprintln(c.log, "logging in:", f.Message)
		if _, err := c.logins.Login(ctx, oauth.Login{Server: c.server, Client: c.client, Show: c.say}); err != nil {
			return fmt.Errorf("log in: %w", err)
		}
	}
}

// say is a browser whose user says yes to everything.
func (c *conformance) say(page string) {
	resp, err := http.Get(page)
	if err != nil {
		_, _ = fmt.Fprintln(c.log, "the browser:", err)
		return
	}
	_ = resp.Body.Close()
}

func (c *conformance) call(ctx context.Context, op tool.Operation) error {
	args, err := check.Sample(op.Params)
	if err != nil {
		return err
	}
	r := c.host.Call(ctx, op.Name, model.Invocation{
		ToolCall: model.ToolCall{ID: "call-" + op.Name, Name: op.Name, Arguments: []byte(args)}, Allowed: true, Ask: accept,
	}, func(model.ToolUpdate) {})
	if r.OK {
		_, _ = fmt.Fprintln(c.log, op.Name+":", r.Text)
		return nil
	}
	return tool.Faultf(r.Error.Code, "%s", r.Error.Message)
}

// accept accepts a form unchanged, with the defaults that it has.
func accept(_ context.Context, q model.Question) (model.Answer, error) {
	f, err := form.Parse(q.Schema)
	if err != nil {
		return model.Answer{}, err
	}
	content, err := f.Fill(nil)
	return model.Answer{Action: model.Accept, Content: []byte(content)}, err
}
