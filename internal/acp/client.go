package acp

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What a client of agents sends and reads. What an agent says is read leniently: a field
// of another shape is a reason to refuse the message, one that is not known never is.

// InitializeRequest opens a connection to an agent. No files and no terminals are offered:
// the agent has its own hands.
type InitializeRequest struct {
	ProtocolVersion int            `json:"protocolVersion"`
	Capabilities    ClientCan      `json:"clientCapabilities"`
	Client          Implementation `json:"clientInfo"`
}

// ClientCan are the capabilities of this client: it knows options that are true or false.
type ClientCan struct {
	Session struct {
		Options struct {
			Boolean struct{} `json:"boolean"`
		} `json:"configOptions"`
	} `json:"session"`
}

// AgentSaid is what an agent answers to initialize.
type AgentSaid struct {
	ProtocolVersion int             `json:"protocolVersion"`
	Agent           *Implementation `json:"agentInfo"`
	Capabilities    struct {
		LoadSession bool `json:"loadSession"`
		Prompt      struct {
			Image           bool `json:"image"`
			EmbeddedContext bool `json:"embeddedContext"`
		} `json:"promptCapabilities"`
		MCP struct {
			HTTP bool `json:"http"`
		} `json:"mcpCapabilities"`
		Session map[string]jsontext.Value `json:"sessionCapabilities"`
		Meta    jsontext.Value            `json:"_meta"`
	} `json:"agentCapabilities"`
}

// Can tells whether the agent has a capability of sessions, such as "resume".
func (a AgentSaid) Can(name string) bool {
	k := a.Capabilities.Session[name].Kind()
	return k == jsontext.KindBeginObject || k == jsontext.KindTrue
}

// Queues tells whether the agent takes a prompt while it works on another: it says
// promptQueueing somewhere in the _meta of its capabilities.
func (a AgentSaid) Queues() bool {
	var makers map[string]jsontext.Value
	if json.Unmarshal(a.Capabilities.Meta, &makers, jsontext.AllowDuplicateNames(true)) != nil {
		return false
	}
	for _, raw := range makers {
		var said struct {
			Queues jsontext.Value `json:"promptQueueing"`
		}
		if raw.Kind() == '{' && json.Unmarshal(raw, &said, jsontext.AllowDuplicateNames(true)) == nil &&
			said.Queues.Kind() == jsontext.KindTrue {
			return true
		}
	}
	return false
}

// OpenRequest is session/new, and with an id session/load and session/resume.
type OpenRequest struct {
	SessionID  string        `json:"sessionId,omitzero"`
	CWD        string        `json:"cwd"`
	MCPServers []ServerEntry `json:"mcpServers"`
}

// ServerEntry is an MCP server for an agent: a program, or with Type "http" an address.
type ServerEntry struct {
	Type    string
	Name    string
	Command string
	Args    []string
	Env     []Pair
	URL     string
	Headers []Pair
}

// MarshalJSON has the lists that the protocol wants, also where they are empty.
func (e ServerEntry) MarshalJSON() ([]byte, error) {
	if e.Type == "http" {
		return json.Marshal(struct {
			Type    string `json:"type"`
			Name    string `json:"name"`
			URL     string `json:"url"`
			Headers []Pair `json:"headers"`
		}{e.Type, e.Name, e.URL, e.Headers})
	}
	return json.Marshal(struct {
		Name    string   `json:"name"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Env     []Pair   `json:"env"`
	}{e.Name, e.Command, e.Args, e.Env})
}

// Offered is what an agent says in its answers to session/new, session/load and
// session/resume that can be chosen, and in the updates about it. Each is read by itself, as
// one that cannot be read is as good as none.
type Offered struct {
	Modes    jsontext.Value `json:"modes"`
	Models   jsontext.Value `json:"models"`
	Options  jsontext.Value `json:"configOptions"`
	Mode     jsontext.Value `json:"currentModeId"`
	Commands jsontext.Value `json:"availableCommands"`
}

// Choice is session/set_config_option, session/set_mode or session/set_model. A Value is a
// string, or with Type "boolean" true or false.
type Choice struct {
	SessionID string         `json:"sessionId"`
	OptionID  string         `json:"configId,omitzero"`
	Type      string         `json:"type,omitzero"`
	Value     jsontext.Value `json:"value,omitzero"`
	ModeID    string         `json:"modeId,omitzero"`
	ModelID   string         `json:"modelId,omitzero"`
}

// PromptRequest is session/prompt.
type PromptRequest struct {
	SessionID string         `json:"sessionId"`
	Prompt    []ContentBlock `json:"prompt"`
}

// PromptAnswer is what an agent answers to it.
type PromptAnswer struct {
	StopReason StopReason   `json:"stopReason"`
	Usage      *PromptUsage `json:"usage"`
}

// PromptUsage is what a prompt took, in tokens.
type PromptUsage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	CachedReadTokens  int64 `json:"cachedReadTokens"`
	CachedWriteTokens int64 `json:"cachedWriteTokens"`
}

// SessionOnly names a session.
type SessionOnly struct {
	SessionID string `json:"sessionId"`
}

// Heard is a session/update as a client reads it. Which fields there are goes by Kind; the
// whole update is in Raw.
type Heard struct {
	Kind      string         `json:"sessionUpdate"`
	MessageID string         `json:"messageId"`
	Content   jsontext.Value `json:"content"`
	Raw       jsontext.Value `json:"-"`
}

// ReadUpdate reads the parameters of session/update.
func ReadUpdate(params jsontext.Value) (sessionID string, u Heard, err error) {
	var n struct {
		SessionID string         `json:"sessionId"`
		Update    jsontext.Value `json:"update"`
	}
	if err := json.Unmarshal(params, &n, jsontext.AllowDuplicateNames(true)); err != nil {
		return "", u, err
	}
	err = json.Unmarshal(n.Update, &u, jsontext.AllowDuplicateNames(true))
	u.Raw = n.Update
	return n.SessionID, u, err
}

// Selected answers session/request_permission with one of its options, "" cancels.
func Selected(optionID string) any {
	type outcome struct {
		Outcome  string `json:"outcome"`
		OptionID string `json:"optionId,omitzero"`
	}
	out := outcome{"selected", optionID}
	if optionID == "" {
		out.Outcome = "cancelled"
	}
	return struct {
		Outcome outcome `json:"outcome"`
	}{out}
}
