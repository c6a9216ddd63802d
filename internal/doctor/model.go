package doctor

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/model/credentials"
	"noused/internal/model/wire"
	"noused/internal/tool"
)

// model looks whether there is the model that answers prompts. A server is
// asked for the list of its models, a provider module is not started.
func (e *exam) model(ctx context.Context) {
	if file := filepath.Join(filepath.Dir(e.ServersFile), credentials.EnvironmentName); e.ServersFile != "" {
		if _, err := os.Stat(file); err == nil {
			e.private(Model, file, "is where keys of model providers stand")
		}
	}
	own := e.Provider
	if own != "offline" && own != "" {
		own += "/" + e.ModelName
	}
	if e.running != "" && e.running != own {
		e.warn(Model,
			"nous models --probe asks the daemon's server with the daemon's key; or restart the daemon with what is meant",
			"the running daemon has %s, started with other variables or flags than this check, which has %s", e.running, own)
		return
	}
	switch e.Provider {
	case "":
		e.warn(Model, "nous setup chooses one", "no model is chosen: prompts are refused")
	case "offline":
		e.ok(Model, "offline: it is built in and needs nothing")
	case "module":
		for _, d := range e.found {
			if d.Kind == tool.KindProvider && d.Name == e.ModelName {
				e.ok(Model, "module/%s: %s describes it; it was not started", d.Name, d.File)
				return
			}
		}
		e.fail(Model, "put its descriptor into "+few(e.ToolsDirs)+", or choose another model with --model",
			"module/%s: no usable descriptor in the tools directories has this name and kind provider", e.ModelName)
	default:
		e.server(ctx, e.Provider+"/"+e.ModelName)
	}
}

// server asks a provider over HTTP for its models.
func (e *exam) server(ctx context.Context, model string) {
	names, err := e.Models(ctx)
	var said *wire.Error
	answered := errors.As(err, &said) && said.Status != 0
	switch {
	case ctx.Err() != nil:
	case err == nil && wire.Lists(names, e.ModelName):
		tokens, whence := e.Window()
		e.ok(Model, "%s: its server answers and has the model, which reads %d tokens, says %s", model, tokens, whence)
	case err == nil && len(names) == 0:
		e.warn(Model, "have the server load one, or ollama pull it", "%s: its server answers, but has no models", model)
	case err == nil:
		near := strings.Join(wire.Nearest(names, e.ModelName), ", ")
		e.warn(Model, "correct the name if it is wrong; nous models --probe lists all that it has",
			"%s: its server answers, but does not list it; the nearest it has: %s", model, near)
	case answered && (said.Status == http.StatusUnauthorized || said.Status == http.StatusForbidden):
		fix := "nous login " + e.Provider + " saves another"
		if e.KeyVariable != "" {
			fix += "; " + e.KeyVariable + " in the daemon's environment comes first"
		}
		e.fail(Model, fix, "%s: its server wants a key that it knows: %v", model, err)
	case answered && (said.Status == http.StatusTooManyRequests || said.Status >= http.StatusInternalServerError):
		e.warn(Model, "try again later", "%s: its server answers with a failure of its own: %v", model, err)
	case answered:
		e.warn(Model, "check base_url (most end in /v1); if it is right, this server cannot list its models",
			"%s: its server answers, but does not tell which models it has: %v", model, err)
	case said != nil:
		e.fail(Model, "start the server or connect the network, or correct base_url", "%s: its server cannot be reached: %v",
			model, err)
	default:
		e.fail(Model, "nous setup, or correct the configuration; prompts are refused until then", "%s: %v", model, err)
	}
}
