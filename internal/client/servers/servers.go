// Package servers is what nous knows of MCP servers and hooks without running them: what the files of
// a user and of a project say, what the daemon adds, and the text by which a person judges a
// project's files before trusting them.
//
// Its functions may be called from any goroutine. They read files, and refuse to change one and to
// decide who is trusted.
package servers

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/client/plain"
	"noused/internal/mcpfile"
	"noused/internal/protocol"
)

// stateDisabled is what the daemon does not know of.
const stateDisabled = "disabled"

// Row is a server, as the files and the daemon have it.
type Row struct {
	protocol.ServerInfo
	Runs  string   `json:"runs,omitzero"` // the command line, or the URL
	File  string   `json:"file,omitzero"`
	Line  int      `json:"line,omitzero"`
	Named []string `json:"tool_names,omitzero"`

	Entry mcpfile.Server `json:"-"` // nothing where no file has it
}

// View is all that is known of servers from a folder.
type View struct {
	Servers  []Row
	Problems []string // of files
	Notes    []string
}

// Find puts together what the files say that a folder sees, and what the daemon knows; its tools
// are zero where none runs.
func Find(configDir, dir string, tools protocol.Tools) (v View) {
	for _, info := range tools.Servers {
		if info.Workdir == "" || info.Workdir == dir {
			v.Servers = append(v.Servers, Row{ServerInfo: info})
		}
	}
	own, err := mcpfile.Read(filepath.Join(configDir, mcpfile.Name))
	v.addFile("", protocol.ServerInfo{State: "configured"}, own, err)
	text, err := mcpfile.ReadProject(dir)
	switch {
	case err != nil:
		v.problem(err)
	case text != nil:
		project, err := mcpfile.Parse(mcpfile.Project(dir), text)
		v.addFile(dir, projectState(configDir, dir, text), project, err)
	}
	for i, s := range v.Servers {
		for _, t := range tools.Tools {
			if name, ok := strings.CutPrefix(t.Name, s.Name+"."); ok && t.Protocol == "mcp" {
				v.Servers[i].Named = append(v.Servers[i].Named, name)
			}
		}
	}
	slices.SortStableFunc(v.Servers, func(x, y Row) int { return strings.Compare(x.Name, y.Name) })
	return v
}

func projectState(configDir, dir string, text []byte) protocol.ServerInfo {
	info := protocol.ServerInfo{
		State: "untrusted", Message: "nous mcp trust shows what it runs and asks you",
		Workdir: dir,
	}
	if ok, _ := mcpfile.Trusted(configDir, dir, mcpfile.Hash(text)); ok {
		info.State, info.Message = "configured", ""
	}
	return info
}

// addFile adds what a file says: to a server that the daemon knows its place, and of
// others the entry with the state that it has then.
func (v *View) addFile(workdir string, otherwise protocol.ServerInfo, f *mcpfile.File, err error) {
	if err != nil {
		v.problem(err)
		return
	}
	for _, s := range f.Servers {
		if s.Disabled {
			otherwise := otherwise
			otherwise.State, otherwise.Message = stateDisabled, ""
			v.add(s, workdir, otherwise)
			continue
		}
		v.add(s, workdir, otherwise)
	}
	for _, err := range f.Errors {
		v.problem(err)
		v.add(mcpfile.Server{Name: err.Server, Place: err.Place}, workdir,
			protocol.ServerInfo{State: "failed", Message: err.Reason, Workdir: workdir})
	}
}

func (v *View) add(s mcpfile.Server, workdir string, otherwise protocol.ServerInfo) {
	i := slices.IndexFunc(v.Servers, func(l Row) bool {
		return l.Name == s.Name && (l.Workdir == workdir || l.Workdir == "")
	})
	if i < 0 {
		otherwise.Name = s.Name
		i, v.Servers = len(v.Servers), append(v.Servers, Row{ServerInfo: otherwise})
	}
	l := &v.Servers[i]
	if l.Workdir != workdir || l.File != "" {
		return // the user's own is the one that is used
	}
	l.File, l.Line, l.Entry = s.Place.File, s.Place.Line, s
	if s.Command != "" || s.URL != "" {
		l.Runs = Runs(s)
	}
	for _, field := range s.Ignored {
		v.Notes = append(v.Notes, fmt.Sprintf("%s: %s does nothing here", s.Place, plain.OneLine(field, 40)))
	}
}

func (v *View) problem(err error) { v.Problems = append(v.Problems, err.Error()) }

// promptWords are a server's prompts, as they are written in a text.
func (s Row) promptWords() string {
	names := make([]string, len(s.Prompts))
	for i, p := range s.Prompts {
		names[i] = "/" + s.Name + "." + p.Name
	}
	return strings.Join(names, ", ")
}

// OfSession are the servers of a file as one session alone has them. lookup is for ${VAR}.
func OfSession(file *mcpfile.File, lookup func(string) (string, bool)) ([]protocol.MCPServer, error) {
	list := []protocol.MCPServer{}
	for _, s := range file.Servers {
		if s.Disabled {
			continue
		}
		if s.Cwd != "" || s.Timeout != "" || s.Trust != "" || s.Tools != nil || s.Sandbox != "" || s.SandboxWrite != nil {
			return nil, fmt.Errorf("%s: cwd, timeout, trust, tools and sandbox cannot be said of a "+
				"server of one session; nous mcp add keeps one that has them", s.Place)
		}
		s, err := s.Expand(lookup)
		if err != nil {
			return nil, err
		}
		list = append(list, protocol.MCPServer{
			Name: s.Name, Command: s.Command, Args: s.Args, Env: s.Env, URL: s.URL, Headers: s.Headers,
		})
	}
	return list, nil
}
