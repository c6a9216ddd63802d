package bridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/acp"
	"noused/internal/jsonschema"
)

// schema is the official one, by the name of a definition. Without it nothing is
// checked.
type schema map[string]*jsonschema.Schema

// results are the definitions of what answers a method.
var results = map[string]string{
	acp.Initialize: "InitializeResponse", acp.SessionNew: "NewSessionResponse", acp.SessionLoad: "LoadSessionResponse",
	acp.SessionResume: "ResumeSessionResponse", acp.SessionList: "ListSessionsResponse",
	acp.SessionDelete: "DeleteSessionResponse",
	acp.SessionPrompt: "PromptResponse", acp.SetMode: "SetSessionModeResponse",
	acp.SetConfigOption: "SetSessionConfigOptionResponse",
	acp.Steer:           "ExtResponse",
}

// calls are those of what the bridge says by itself.
var calls = map[string]string{
	acp.SessionUpdate: "SessionNotification", acp.CreateElicitation: "CreateElicitationRequest",
	acp.RequestPermission: "RequestPermissionRequest", acp.CancelRequest: "CancelRequestNotification",
}

// check holds a line of the bridge's against the schema.
func (s schema) check(t testing.TB, m message, answers string, raw []byte) {
	if s == nil {
		return
	}
	name, value := calls[m.Method], m.Params
	switch {
	case m.Error != nil:
		name, value = "Error", nil
		value, _ = json.Marshal(m.Error)
	case m.Method == "":
		name, value = results[answers], m.Result
	}
	def := s[name]
	if def == nil {
		t.Errorf("no definition fits the line %.300s", raw)
		return
	}
	v, err := jsonschema.Decode(value)
	if err == nil {
		err = def.Check(v)
	}
	if err != nil {
		t.Errorf("not as %s says: %v\n%.1000s", name, err, raw)
	}
}

var (
	fetch    sync.Once
	fetched  schema
	fetchErr error
)

// official is the schema of the official package, which is fetched into the user's
// cache once. Where it cannot be had the log says that nothing is held against it.
func official(t testing.TB) schema {
	t.Helper()
	fetch.Do(func() { fetched, fetchErr = readSchema() })
	if fetchErr != nil {
		t.Logf("NOT CHECKED against the official schema: %v", fetchErr)
	}
	return fetched
}

func readSchema() (schema, error) {
	dir, err := sdk()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "@agentclientprotocol", "sdk", "schema", "v1",
		"schema.json"))
	if err != nil {
		return nil, err
	}
	var whole struct {
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	out := schema{}
	for _, name := range append([]string{"Error"}, namesOf(results, calls)...) {
		one, err := json.Marshal(map[string]any{"$ref": "#/$defs/" + name, "$defs": whole.Defs})
		if err != nil {
			return nil, err
		}
		if out[name], err = jsonschema.Compile(one); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

func namesOf(maps ...map[string]string) (list []string) {
	for _, m := range maps {
		for _, v := range m {
			list = append(list, v)
		}
	}
	return list
}

// npmPatience is how long npm may take, all in all.
const npmPatience = time.Minute

// sdk is the official client. It is fetched once at most, also where that fails.
var sdk = sync.OnceValues(func() (string, error) { return npmPackage("sdk") })

// npmPackage installs what testdata/NAME pins, if it is not there yet, and returns
// where. There has to be npm and a registry.
func npmPackage(name string) (string, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return "", errors.New("there is no npm")
	}
	// acpx's lock is not the same on every machine; its versions are exact.
	names, install := []string{"package.json", "package-lock.json"}, "ci"
	if name == "editors" {
		names, install = names[:1], "install"
	}
	files := make([][]byte, len(names))
	for i, file := range names {
		var err error
		if files[i], err = os.ReadFile(filepath.Join("testdata", name, file)); err != nil {
			return "", err
		}
	}
	cache := filepath.Join(os.TempDir(), fmt.Sprintf("noused-npm-%d", os.Getuid()))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	installed := filepath.Join(cache, fmt.Sprintf("%s-%x", name, sha256.Sum256(files[len(files)-1]))[:len(name)+17])
	if _, err := os.Stat(installed); err == nil {
		return installed, nil
	}
	dir, err := os.MkdirTemp(cache, "fetching-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i, file := range names {
		if err := os.WriteFile(filepath.Join(dir, file), files[i], 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), npmPatience)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", install, "--no-audit", "--no-fund", "--fetch-retries", "0", "--fetch-timeout",
		"20000")
	npm.Dir, npm.WaitDelay = dir, time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(dir, installed); err != nil {
		if _, err := os.Stat(installed); err != nil {
			return "", err
		}
	}
	return installed, nil
}
