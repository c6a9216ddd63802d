package protocol

import (
	"os"
	"path/filepath"
	"strconv"
)

// MaxSocketPath is the longest path that a Unix socket can have, in bytes.
const MaxSocketPath = 107

// DefaultSocket is where the command socket is unless somebody says otherwise
// (wire-v1 §8).
func DefaultSocket(getenv func(string) string) string {
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "noused", "noused.sock")
	}
	return filepath.Join("/tmp", "noused-"+strconv.Itoa(os.Getuid()), "noused.sock")
}

// OtherSocket is the DefaultSocket of a daemon whose environment differs in that it has,
// or has not, the system's XDG_RUNTIME_DIR: one that was started by ssh or cron, say. "":
// the folder is one of somebody's choosing, which stands for itself.
func OtherSocket(getenv func(string) string) string {
	usual := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	switch getenv("XDG_RUNTIME_DIR") {
	case "":
	case usual:
		usual = ""
	default:
		return ""
	}
	return DefaultSocket(func(string) string { return usual })
}

// AgentSocket is the command socket for hosted agents that belongs to a command socket.
func AgentSocket(path string) string { return path + ".agents" }

// TokenVariable has the token that nous mcp serve shows the daemon.
const TokenVariable = "NOUS_SESSION_TOKEN"

// EventSocket is the event socket that belongs to a command socket.
func EventSocket(path string) string { return path + ".events" }
