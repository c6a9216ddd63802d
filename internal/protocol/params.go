package protocol

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Scope names the session a command is for; absent, the active one.
type Scope struct {
	SessionID string `json:"session_id,omitzero" wire:"added" doc:"absent: the active session"`
}

// PingParams is the payload of ping.
type PingParams struct{}

// Pong answers ping.
type Pong struct {
	Message string `json:"message"`
	Version string `json:"version,omitzero" wire:"added" doc:"the daemon's own, as get_state tells it"`
	PID     int    `json:"pid,omitzero" wire:"added" doc:"the daemon's process, as get_state tells it"`
}

// appendTo is for pings that come many at a time: encoding is most of the work.
func (p Pong) appendTo(out []byte) []byte {
	out, _ = jsontext.AppendQuote(append(out, `{"message":`...), p.Message)
	if p.Version != "" {
		out, _ = jsontext.AppendQuote(append(out, `,"version":`...), p.Version)
	}
	if p.PID != 0 {
		out = strconv.AppendInt(append(out, `,"pid":`...), int64(p.PID), 10)
	}
	return append(out, '}')
}

// PromptParams is the payload of prompt. Wait defaults to true. What a prompt
// to a running session does is StreamingBehavior: absent it is refused,
// "steer" or "follow_up" queues it.
type PromptParams struct {
	Scope
	Text              string       `json:"text" min:"1"`
	Wait              *bool        `json:"wait,omitzero" doc:"answer when the run ends; default true"`
	LeafID            string       `json:"leaf_id,omitzero" doc:"continue from this entry"`
	StreamingBehavior Kind         `json:"streaming_behavior,omitzero" wire:"added" enum:"steer,follow_up" doc:"queue as this while a run is active"`
	Approvals         ApprovalMode `json:"approvals,omitzero" wire:"added" enum:"ask,deny" doc:"of the run that it starts; deny: what would be asked is denied, and nobody waits; default ask"`

	IdempotencyKey string `json:"idempotency_key,omitzero" wire:"added" doc:"at most 256 bytes; the same key again within 24 h answers the same and does nothing"`

	Attachments []AttachmentParams `json:"attachments,omitzero" wire:"added" doc:"images to show with the text, at most 16"`

	// The run that it starts keeps them over a restart of the daemon.
	OutputSchema  jsontext.Value `json:"output_schema,omitzero" wire:"added" doc:"JSON Schema of at most 256 KiB that the run's answer, as JSON, has to fit; it is asked for three times at most; refused while a run is active"`
	MaxCost       float64        `json:"max_cost,omitzero" wire:"added" min:"0" doc:"US dollars that the run may cost; calls of models count whose prices are known; it ends with budget"`
	As            string         `json:"as,omitzero" wire:"added" doc:"the named agent, of list_skills, that makes the run: its instructions, with its tools alone; refused while a run is active"`
	MaxModelCalls int            `json:"max_model_calls,omitzero" wire:"added" min:"1" doc:"calls of the model that the run may make; it ends with budget"`
}

// AttachmentParams is an image to show with a text: a file on the daemon's
// machine or the image itself, exactly one of the two. The daemon makes a copy
// before it accepts the text and looks at neither again. What kind of image it
// is, its first bytes say; a MediaType that is given must say the same. Name is
// for people, at most 255 bytes; absent, it is the last part of Path.
type AttachmentParams struct {
	Path      string `json:"path,omitzero" doc:"a file of at most 5 MiB; a relative path starts from the session's workdir"`
	Data      string `json:"data,omitzero" doc:"the image in base64, at most 5 MiB of it decoded; the command's line has a limit of its own"`
	MediaType string `json:"media_type,omitzero" enum:"image/png,image/jpeg,image/gif,image/webp" doc:"absent: as the image's first bytes say"`
	Name      string `json:"name,omitzero" doc:"for people; absent: the last part of path"`
}

// ExpandParams is the payload of expand.
type ExpandParams struct {
	Scope
	Text string `json:"text" min:"1"`
}

// PromptAccepted answers a prompt with wait false, or one that was queued.
type PromptAccepted struct {
	Command   string `json:"command"`
	RunID     string `json:"run_id"`
	SessionID string `json:"session_id"`
	InputID   string `json:"input_id" wire:"added"`
}

// PromptResult answers a prompt with wait true when its run has ended. Events
// holds whole event envelopes.
type PromptResult struct {
	Output          string           `json:"output" doc:"text of the run's last assistant message"`
	Events          []jsontext.Value `json:"events" doc:"every event of the run, in order"`
	EventsTruncated bool             `json:"events_truncated,omitzero" wire:"added" doc:"events of the run are missing: the later ones where they were too many, the earlier ones where the daemon no longer had them"`
	SessionID       string           `json:"session_id"`
	RunID           string           `json:"run_id"`
	Release         func()           `json:"-"` // as in Response
}

// PromptReply is either answer to prompt; exactly one is set.
type PromptReply struct {
	Accepted *PromptAccepted
	Result   *PromptResult
}

// MarshalJSONTo encodes the one that is set.
func (r PromptReply) MarshalJSONTo(enc *jsontext.Encoder) error {
	if r.Result != nil {
		return json.MarshalEncode(enc, r.Result)
	}
	return json.MarshalEncode(enc, r.Accepted)
}

// UnmarshalJSONFrom tells the two apart by the result's required output.
func (r *PromptReply) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var probe struct {
		Output *string `json:"output"`
	}
	if err := json.Unmarshal(value, &probe); err != nil {
		return err
	}
	if probe.Output != nil {
		return json.Unmarshal(value, &r.Result)
	}
	return json.Unmarshal(value, &r.Accepted)
}

// SteerParams is the payload of steer.
type SteerParams struct {
	Scope
	Text           string `json:"text" min:"1"`
	IfIdle         Kind   `json:"if_idle,omitzero" wire:"added" enum:"prompt" doc:"without an active run, start one with the text"`
	IdempotencyKey string `json:"idempotency_key,omitzero" wire:"added"`

	Attachments []AttachmentParams `json:"attachments,omitzero" wire:"added" doc:"images to show with the text, at most 16"`
}

// FollowUpParams is the payload of follow_up.
type FollowUpParams SteerParams

// InputAccepted answers steer and follow_up.
type InputAccepted struct {
	Command   string `json:"command"`
	RunID     string `json:"run_id"`
	SessionID string `json:"session_id" wire:"added"`
	InputID   string `json:"input_id" wire:"added"`
}

// AbortParams is the payload of abort.
type AbortParams struct {
	Scope
	RunID string `json:"run_id,omitzero" doc:"refuse unless this run is the active one"`
}

// AbortAccepted answers abort with the texts it takes out of the queues.
type AbortAccepted struct {
	Command   string           `json:"command"`
	RunID     string           `json:"run_id"`
	Discarded []DiscardedInput `json:"discarded" wire:"added"`
}

// DiscardedInput is an accepted text that will not be delivered.
type DiscardedInput struct {
	InputID string `json:"input_id"`
	Kind    Kind   `json:"kind" enum:"steer,follow_up"`
	Text    string `json:"text"`
}

// SetActiveToolsParams is the payload of set_active_tools.
type SetActiveToolsParams struct {
	Scope
	Tools []string `json:"tools" doc:"operation or module names; [] means none"`
}

// ToolsAccepted answers set_active_tools; Count is the number of operations
// now active.
type ToolsAccepted struct {
	Command string `json:"command"`
	Count   int    `json:"count"`
}

// SetModeParams is the payload of set_steering_mode and set_follow_up_mode.
type SetModeParams struct {
	Scope
	Mode Mode `json:"mode" enum:"one-at-a-time,all"`
}

// ModeAccepted answers set_steering_mode and set_follow_up_mode.
type ModeAccepted struct {
	Command string `json:"command"`
	Mode    Mode   `json:"mode" enum:"one-at-a-time,all"`
}

// GetStateParams is the payload of get_state.
type GetStateParams struct {
	Scope
	Daemon bool `json:"daemon,omitzero" wire:"added" doc:"report the daemon alone, and how it is doing: no session is read or made; not with session_id"`
}

// GetSystemParams is the payload of get_system.
type GetSystemParams struct{ Scope }

// ListSkillsParams is the payload of list_skills.
type ListSkillsParams struct {
	Scope
	Workdir string `json:"workdir,omitzero" wire:"added" doc:"absolute path: those of that folder, which needs no session; not with session_id"`
	Name    string `json:"name,omitzero" doc:"only this skill, and its text; refused if there is none"`
}

// ListAgentsParams is the payload of list_agents.
type ListAgentsParams struct{}

// GetMessagesParams is the payload of get_messages.
type GetMessagesParams struct {
	Scope
	LeafID string `json:"leaf_id,omitzero" doc:"end at this entry; absent: the session's leaf"`
	Limit  *int   `json:"limit,omitzero" wire:"added" min:"1" max:"1000" doc:"only the newest so many; absent: all"`
	// After is the cursor of a page: see Messages.More.
	After *string `json:"after,omitzero" wire:"added" doc:"only a page, of about 4 MiB: the entries behind this one, the oldest first, limit of them at most; empty: from the root"`
	Whole bool    `json:"whole,omitzero" wire:"added" doc:"with everything that compactions stand for: each stands where it was made, behind that; default false"`
}

// NewSessionParams is the payload of new_session. Activate defaults to true.
type NewSessionParams struct {
	Title    string `json:"title,omitzero" wire:"added"`
	Workdir  string `json:"workdir,omitzero" wire:"added" doc:"absolute path of the folder that the session lives in; it must exist and may be entered; default: the daemon's"`
	Activate *bool  `json:"activate,omitzero" wire:"added" doc:"make it the active session; default true"`
	Agent    string `json:"agent,omitzero" wire:"added" doc:"the hosted agent that makes the session's turns, of list_agents; default: noused, the daemon's own"`
	// MCPServers are for this session alone, and end with it.
	MCPServers []MCPServer `json:"mcp_servers,omitzero" wire:"added" doc:"MCP servers for this session alone; refused to processes that the daemon has started"`
}

// MCPServer is a program, or the URL of a server that runs elsewhere.
type MCPServer struct {
	Name    string            `json:"name" min:"1"`
	Command string            `json:"command,omitzero" doc:"a program, or an absolute path"`
	Args    []string          `json:"args,omitzero"`
	Env     map[string]string `json:"env,omitzero"`
	URL     string            `json:"url,omitzero" doc:"of a server over streamable HTTP, in place of a command"`
	Headers map[string]string `json:"headers,omitzero"`
}

// SwitchSessionParams is the payload of switch_session.
type SwitchSessionParams struct {
	SessionID string `json:"session_id" min:"1"`
}

// BranchSessionParams is the payload of branch_session. ParentID is an alias
// of SessionID.
type BranchSessionParams struct {
	SessionID string `json:"session_id" alias:"parent_id" doc:"the session to branch from"`
	ParentID  string `json:"parent_id,omitzero" doc:"alias of session_id"`
	LeafID    string `json:"leaf_id,omitzero" wire:"added" doc:"branch at this entry; absent: the session's leaf"`
	Workdir   string `json:"workdir,omitzero" wire:"added" doc:"absolute path of the folder that the new session lives in; default: the parent's"`
	Activate  *bool  `json:"activate,omitzero" wire:"added" doc:"make it the active session; default true"`
}

// Parent is the session to branch from.
func (p BranchSessionParams) Parent() string {
	if p.SessionID != "" {
		return p.SessionID
	}
	return p.ParentID
}

// ExtensionCommandParams is the payload of extension_command.
type ExtensionCommandParams struct {
	Scope
	Name    string         `json:"name" min:"1" doc:"an operation's name"`
	Payload jsontext.Value `json:"payload,omitzero" type:"object" doc:"the arguments"`
	Phase   string         `json:"phase,omitzero" wire:"added" enum:"setup,verify,cleanup"`
	Note    string         `json:"note,omitzero" wire:"added" doc:"with it the result joins the conversation: the session goes on from a message of the user, this text and the result below it. Refused while a run is active"`

	OutputID string `json:"output_id,omitzero" wire:"added" doc:"a name of the client's choice, at most 100 bytes: what the operation says while it runs is told in status events operation_output with this output_id"`
}

// CallToolParams is the payload of call_tool. With a Token the call is one of the hosted
// agent that makes the session's turn; without one it is a run of its own, which waits
// until the session is idle.
type CallToolParams struct {
	Scope
	Token     string         `json:"token,omitzero" doc:"of a hosted agent, for its own session"`
	Name      string         `json:"name" min:"1" doc:"a tool's name"`
	Arguments jsontext.Value `json:"arguments,omitzero" type:"object"`
	Client    string         `json:"client,omitzero" doc:"who calls, for people; at most 100 bytes"`
	OutputID  string         `json:"output_id,omitzero" doc:"a name of the client's choice, at most 100 bytes: what the tool says while it runs is also told in status events operation_output with this output_id"`
}

// CompactSessionParams is the payload of compact_session.
type CompactSessionParams struct {
	Scope
	Instruction string `json:"instruction,omitzero" doc:"what the summary should mind"`
}

// SetLeafParams is the payload of set_leaf.
type SetLeafParams struct {
	Scope
	LeafID string `json:"leaf_id" min:"1"`
}

// GetTreeParams is the payload of get_tree.
type GetTreeParams struct{ Scope }

// ListSessionsParams is the payload of list_sessions.
type ListSessionsParams struct {
	Limit  *int   `json:"limit,omitzero" min:"1" max:"1000" doc:"at most so many; default 50"`
	Before string `json:"before,omitzero" doc:"only sessions older than this session_id"`

	Workdir string `json:"workdir,omitzero" doc:"absolute path: only sessions of exactly that folder"`
}

// DeleteSessionParams is the payload of delete_session. There is no default:
// the active session has to be named, too.
type DeleteSessionParams struct {
	SessionID string `json:"session_id" min:"1"`
	Children  bool   `json:"children,omitzero" wire:"added" doc:"its child sessions, and theirs, are deleted before it; without that a session that has any is refused with has_children"`
}

// SearchSessionsParams is the payload of search_sessions. Text is looked for as
// it is; only upper and lower case are the same.
type SearchSessionsParams struct {
	Text  string `json:"text" min:"1"`
	Limit *int   `json:"limit,omitzero" min:"1" max:"1000" doc:"at most so many matches; default 50"`
}

// ListToolsParams is the payload of list_tools.
type ListToolsParams struct {
	Scope
	Daemon bool `json:"daemon,omitzero" wire:"added" doc:"those that a new session in the daemon's folder has: no session is read or made; not with session_id"`

	Callable bool   `json:"callable,omitzero" wire:"added" doc:"only those that call_tool can call now, for those who may call them"`
	Token    string `json:"token,omitzero" wire:"added" doc:"as in call_tool"`
}

// SetModelParams is the payload of set_model. Model is PROVIDER[/NAME] as the
// daemon's --model has it, or "default" for the daemon's own. A key only goes to
// the server that it is configured for: another BaseURL gets none.
type SetModelParams struct {
	Scope
	Model         string `json:"model" min:"1" doc:"PROVIDER[/NAME], or default"`
	BaseURL       string `json:"base_url,omitzero" doc:"another server of the same kind; it gets no key unless it is configured"`
	ContextWindow int64  `json:"context_window,omitzero" min:"1000" max:"10000000" doc:"tokens that the model can read; absent: as configured or known"`
	Effort        string `json:"effort,omitzero" enum:"none,minimal,low,medium,high,xhigh,max" doc:"how hard the model is to think; absent: as configured, for another model than the daemon's own as it does by itself"`
}

// ModelAccepted answers set_model with the model that is now chosen.
type ModelAccepted struct {
	Command string    `json:"command"`
	Model   ModelInfo `json:"model"`
}

// SetAgentParams is the payload of set_agent.
type SetAgentParams struct {
	Scope
	Agent string `json:"agent" min:"1" doc:"of list_agents, or noused, the daemon's own"`
}

// AgentAccepted answers set_agent.
type AgentAccepted struct {
	Command string `json:"command"`
	Agent   string `json:"agent"`
}

// SetAgentOptionParams is the payload of set_agent_option.
type SetAgentOptionParams struct {
	Scope
	ID    string `json:"id" min:"1" doc:"of agent_options in get_state"`
	Value string `json:"value" min:"1" doc:"one of the option's values; of a boolean true or false"`
}

// AgentOptionAccepted answers set_agent_option with the value that the agent has now.
type AgentOptionAccepted struct {
	Command string `json:"command"`
	ID      string `json:"id"`
	Value   string `json:"value"`
}

// WithdrawParams is the payload of withdraw.
type WithdrawParams struct {
	Scope
	InputID string `json:"input_id" min:"1"`
}

// Withdrawn answers withdraw with the text, which will not be delivered.
type Withdrawn struct {
	Command   string `json:"command"`
	InputID   string `json:"input_id"`
	Kind      Kind   `json:"kind" enum:"steer,follow_up"`
	Text      string `json:"text"`
	SessionID string `json:"session_id"`
}

// SetTitleParams is the payload of set_title.
type SetTitleParams struct {
	Scope
	Title string `json:"title" min:"1" doc:"one line of at most 200 characters, none of them a control character"`
}

// TitleAccepted answers set_title.
type TitleAccepted struct {
	Command string `json:"command"`
	Title   string `json:"title"`
}

// MarkReadParams is the payload of mark_read.
type MarkReadParams struct{ Scope }

// MarkedRead answers mark_read.
type MarkedRead struct {
	Command string `json:"command"`
}

// ReloadToolsParams is the payload of reload_tools.
type ReloadToolsParams struct{}

// ListModelsParams is the payload of list_models.
type ListModelsParams struct {
	SessionID string `json:"session_id,omitzero" wire:"added" doc:"of a session with a hosted agent: the models that the agent offers; it is started if need be"`

	Probe bool `json:"probe,omitzero" doc:"ask the servers that are known and those that may run on this machine; default false: nothing is contacted"`
	Saved bool `json:"saved_keys,omitzero" wire:"added" doc:"with probe: ask with the keys of credentials.toml, also where a variable of the daemon's environment has another, which is used otherwise"`
}

func (Pong) replyType() string                { return "pong" }
func (PromptAccepted) replyType() string      { return "accepted" }
func (PromptResult) replyType() string        { return "result" }
func (InputAccepted) replyType() string       { return "accepted" }
func (AbortAccepted) replyType() string       { return "accepted" }
func (AgentOptionAccepted) replyType() string { return "accepted" }
func (ToolsAccepted) replyType() string       { return "accepted" }
func (ModeAccepted) replyType() string        { return "accepted" }
func (ModelAccepted) replyType() string       { return "accepted" }
func (AgentAccepted) replyType() string       { return "accepted" }
func (Withdrawn) replyType() string           { return "accepted" }
func (TitleAccepted) replyType() string       { return "accepted" }
func (MarkedRead) replyType() string          { return "accepted" }
func (r PromptReply) replyType() string {
	if r.Result != nil {
		return r.Result.replyType()
	}
	return PromptAccepted{}.replyType()
}
