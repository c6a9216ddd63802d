// Package mcpfile reads and edits the files that name MCP servers: the user's own
// mcp.json, a project's .mcp.json, and those of other programs, to take servers
// from. It remembers which project's file the user trusts.
//
// Concurrency: it keeps nothing. Its functions may be called from any goroutine;
// of two that change one file at a time, in any process, the later one waits.
//
// It refuses to start anything, to know the tools of the daemon, and to guess: an
// entry that is not clear is an error that says where it is, and costs no other
// entry anything.
package mcpfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"noused/internal/regular"
)

// Names of files in the user's configuration folder, and in a project's.
const (
	Name        = "mcp.json"
	ProjectName = ".mcp.json"
)

// Bounds of a file: bytes, how deep it nests, and servers; and of a name, in bytes.
const (
	maxFile    = 1 << 20
	maxDepth   = 100
	maxServers = 256
	maxName    = 64
)

// CwdSession stands for the folder of the session that a server is started for.
const CwdSession = "session"

// Server is an entry: a program with its arguments, or the URL of a server that
// runs elsewhere. Values are as they are written, variables and all.
type Server struct {
	Name    string            `json:"-"`
	Command string            `json:"command,omitzero"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitzero"`
	Type    string            `json:"type,omitzero"` // "", stdio or http
	URL     string            `json:"url,omitzero"`
	Headers map[string]string `json:"headers,omitzero"`
	// Cwd is where the program starts: "" for an empty folder, CwdSession, or a path,
	// meant from the file's folder.
	Cwd string `json:"cwd,omitzero"`

	Timeout      string   `json:"timeout,omitzero"`
	Trust        string   `json:"trust,omitzero"`
	Tools        []string `json:"tools,omitzero"`
	Disabled     bool     `json:"disabled,omitzero"`
	Sandbox      string   `json:"sandbox,omitzero"`
	SandboxWrite []string `json:"sandbox_write,omitzero"`

	// Place is where the file has the entry.
	Place Place `json:"-"`
	// Ignored are fields of other programs, which do nothing here.
	Ignored []string `json:"-"`
}

// Place is a place in a file: Line counts from 1, Pointer is a JSON pointer.
type Place struct {
	File    string
	Line    int
	Pointer string
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return strings.TrimSuffix(fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Pointer), ": ")
}

// Error is what is wrong with an entry, or with a whole file.
type Error struct {
	Place
	Server string // "" for the file
	Reason string
}

func (e *Error) Error() string { return e.Place.String() + ": " + e.Reason }

// File is what a file says. Servers and Errors are in its order.
type File struct {
	Path    string
	Servers []Server
	Errors  []*Error // of entries that are left out
}

// Server returns the entry of that name.
func (f *File) Server(name string) (Server, bool) {
	i := slices.IndexFunc(f.Servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return Server{}, false
	}
	return f.Servers[i], true
}

// Read reads the user's own file. It may be a link; one that is missing has no
// servers. The error is an [*Error], or the system's.
func Read(path string) (*File, error) {
	text, err := regular.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{Path: path}, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// ReadProject returns the text of a project's file, which a stranger may have
// written: it must be a regular file of this user, and no link. Nil: the folder has
// none.
func ReadProject(folder string) ([]byte, error) {
	text, err := regular.ReadOwn(Project(folder), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return append([]byte{}, text...), nil
}

// Project is the path of a project's file.
func Project(folder string) string { return filepath.Join(folder, ProjectName) }

// Hash is that of a file's text, by which it is trusted.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Parse reads a file's text, JSON with comments and trailing commas.
func Parse(path string, text []byte) (*File, error) {
	f := &File{Path: path}
	root, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	p := &parser{file: f, text: text}
	object, ok := root.Value.(*hujson.Object)
	if !ok {
		return nil, &Error{Place: p.at(root, ""), Reason: "want an object with the key mcpServers"}
	}
	for _, m := range object.Members {
		if key := name(m); slices.Contains(keys, key) {
			if err := p.servers(m.Value, jsontext.Pointer("").AppendToken(key)); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// keys are those that hold the servers.
var keys = []string{"mcpServers", "servers"}

// parse makes a tree of a text that nests no deeper than it may.
func parse(path string, text []byte) (hujson.Value, error) {
	if deeper(text, maxDepth) {
		return hujson.Value{}, &Error{Place: Place{File: path}, Reason: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	root, err := hujson.Parse(text)
	if err != nil { // a comment may end with the file
		if with, again := hujson.Parse(append(slices.Clone(text), '\n')); again == nil {
			return with, nil
		}
		return root, &Error{Place: Place{File: path}, Reason: "not valid JSON: " + strings.TrimPrefix(err.Error(),
			"hujson: ")}
	}
	return root, nil
}

// deeper tells, before a text is parsed, whether it nests deeper than that.
func deeper(text []byte, most int) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > most {
				return true
			}
		case '}', ']':
			depth--
		case '"':
			i = closing(text, i)
		case '/':
			i = comment(text, i)
		}
	}
	return false
}

// closing is where the string ends that begins at i.
func closing(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// comment is where a comment ends that may begin at i.
func comment(text []byte, i int) int {
	if i+1 == len(text) {
		return i
	}
	end := map[byte]string{'/': "\n", '*': "*/"}[text[i+1]]
	if end == "" {
		return i
	}
	n := bytes.Index(text[i+2:], []byte(end))
	if n < 0 {
		return len(text)
	}
	return i + 1 + n + len(end)
}

type parser struct {
	file *File
	text []byte
}

// at is the place of a value.
func (p *parser) at(v hujson.Value, pointer jsontext.Pointer) Place {
	return Place{File: p.file.Path, Line: 1 + bytes.Count(p.text[:v.StartOffset], []byte("\n")), Pointer: string(pointer)}
}

// name is a member's, whatever it is written like.
func name(m hujson.ObjectMember) string {
	literal, _ := m.Name.Value.(hujson.Literal)
	return literal.String()
}

func (p *parser) servers(v hujson.Value, at jsontext.Pointer) error {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		return &Error{Place: p.at(v, at), Reason: "want an object with a server for each name"}
	}
	for _, m := range object.Members {
		if len(p.file.Servers)+len(p.file.Errors) == maxServers {
			return &Error{Place: p.at(m.Name, at), Reason: fmt.Sprintf("more than %d servers", maxServers)}
		}
		s, problem := p.server(m, at.AppendToken(name(m)))
		if problem == nil {
			problem = p.twice(s)
		}
		if problem == nil {
			p.file.Servers = append(p.file.Servers, s)
			continue
		}
		problem.Server = name(m)
		p.file.Errors = append(p.file.Errors, problem)
	}
	return nil
}

func (p *parser) twice(s Server) *Error {
	if first, ok := p.file.Server(s.Name); ok {
		return &Error{Place: s.Place, Reason: fmt.Sprintf("the name is taken by line %d", first.Place.Line)}
	}
	return nil
}

// server reads an entry.
func (p *parser) server(m hujson.ObjectMember, at jsontext.Pointer) (s Server, _ *Error) {
	s.Name, s.Place = name(m), p.at(m.Name, at)
	bad := func(v hujson.Value, at jsontext.Pointer, reason string) (Server, *Error) {
		return s, &Error{Place: p.at(v, at), Reason: reason}
	}
	if err := CheckName(s.Name); err != nil {
		return bad(m.Name, at, err.Error())
	}
	object, ok := m.Value.Value.(*hujson.Object)
	if !ok {
		return bad(m.Value, at, "want an object")
	}
	seen := map[string]hujson.Value{"": m.Value}
	for _, field := range object.Members {
		key := name(field)
		if _, twice := seen[key]; twice {
			return bad(field.Name, at.AppendToken(key), "is there twice")
		}
		seen[key] = field.Value
		to := s.field(key)
		if to == nil {
			s.Ignored = append(s.Ignored, key)
			continue
		}
		value := field.Value.Clone()
		value.Standardize()
		if err := json.Unmarshal(value.Pack(), to); err != nil {
			return bad(field.Value, at.AppendToken(key), readable(err))
		}
	}
	if key, reason := s.check(); reason != "" {
		v, pointer := m.Value, at
		if there, ok := seen[key]; ok && key != "" {
			v, pointer = there, at.AppendToken(key)
		}
		return bad(v, pointer, reason)
	}
	return s, nil
}

// readable is what the decoder says in the file's words.
func readable(err error) string {
	var s *json.SemanticError
	if !errors.As(err, &s) || s.GoType == nil {
		return err.Error()
	}
	want := map[string]string{
		"string": "a string", "bool": "true or false", "slice": "an array of strings",
		"map": "an object of strings",
	}
	return fmt.Sprintf("want %s, got %s", want[s.GoType.Kind().String()], s.JSONKind)
}

// field is where a field of an entry goes, nil for one that is not ours.
func (s *Server) field(key string) any {
	switch key {
	case "command":
		return &s.Command
	case "args":
		return &s.Args
	case "env":
		return &s.Env
	case "type", "transport":
		return &s.Type
	case "url":
		return &s.URL
	case "headers":
		return &s.Headers
	case "cwd":
		return &s.Cwd
	case "timeout":
		return &s.Timeout
	case "trust":
		return &s.Trust
	case "tools":
		return &s.Tools
	case "disabled":
		return &s.Disabled
	case "sandbox":
		return &s.Sandbox
	case "sandbox_write":
		return &s.SandboxWrite
	}
	return nil
}

// useInstead is what to do about a server that speaks the transport of 2024.
const useInstead = `sse is not spoken: give the server's streamable HTTP URL with "type": "http", or run a bridge as command, such as npx mcp-remote URL`

// Check says what is wrong with a server that no file has. The error begins with the
// field.
func (s Server) Check() error {
	if err := CheckName(s.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	field, reason := s.check()
	switch {
	case reason == "":
		return nil
	case field == "":
		return errors.New(reason)
	}
	return fmt.Errorf("%s: %s", field, reason)
}

// check returns what is wrong with an entry, and the field.
func (s *Server) check() (field, reason string) {
	switch s.Type {
	case "", "stdio", "http":
	case "streamable-http", "streamableHttp":
		s.Type = "http"
	case "sse":
		return "type", useInstead
	default:
		return "type", fmt.Sprintf("got %.40q, want stdio or http", s.Type)
	}
	switch {
	case s.Command == "" && s.URL == "":
		return "", "want a command, or a url"
	case s.Command != "" && s.URL != "":
		return "url", "there is a command too: want one of the two"
	case s.URL != "" && s.Type == "stdio":
		return "type", "a server with a url is of type http"
	case s.Command != "" && s.Type == "http":
		return "type", "a server of type http has a url, and no command"
	case s.URL != "" && !webAddress(s.URL):
		return "url", fmt.Sprintf("got %.80q, want one that begins with https:// or http://", s.URL)
	case s.Command == "" && s.Sandbox != "":
		return "sandbox", "a server with a url runs elsewhere, and cannot be put in a sandbox"
	}
	return s.options()
}

// webAddress is false for a URL that cannot be one of streamable HTTP, whatever its
// variables are.
func webAddress(url string) bool {
	scheme, _, ok := strings.Cut(url, "://")
	return strings.ContainsAny(scheme, "${") || ok &&
		(strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

func (s *Server) options() (field, reason string) {
	if s.Timeout != "" {
		if d, err := time.ParseDuration(s.Timeout); err != nil || d <= 0 {
			return "timeout", fmt.Sprintf("got %.40q, want a time such as 30s or 5m", s.Timeout)
		}
	}
	switch {
	case !slices.Contains([]string{"", "all", "none"}, s.Trust):
		return "trust", fmt.Sprintf("got %.40q, want all or none", s.Trust)
	case !slices.Contains([]string{"", "none", "workdir"}, s.Sandbox):
		return "sandbox", fmt.Sprintf("got %.40q, want none or workdir", s.Sandbox)
	}
	return "", ""
}

// CheckName says why a server cannot have that name: its tools are NAME.tool.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name is longer than %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !inName(r) }):
		return fmt.Errorf("the name %q may have letters of English, digits, - and _ only: %s would do", name, Rename(name))
	}
	return nil
}

func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// Rename is a name that a server can have, made of one that it cannot.
func Rename(name string) string {
	name = strings.Map(func(r rune) rune {
		if inName(r) {
			return r
		}
		return '-'
	}, name)
	if name = strings.Trim(name[:min(len(name), maxName)], "-"); name == "" {
		return "server"
	}
	return name
}
