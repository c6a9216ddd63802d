package protocol

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Session answers new_session and switch_session.
type Session struct {
	SessionID string `json:"session_id"`
	Active    bool   `json:"active"`
}

// Branch answers branch_session; SessionID is the new one.
type Branch struct {
	SessionID string `json:"session_id"`
	ParentID  string `json:"parent_id"`
	Active    bool   `json:"active"`
}

// PendingCounts are the lengths of the two queues.
type PendingCounts struct {
	Steer    int `json:"steer"`
	FollowUp int `json:"follow_up"`
}

// State answers get_state.
type State struct {
	RunState      RunState      `json:"run_state" enum:"idle,running,aborting"`
	RunID         string        `json:"run_id" doc:"empty while idle"`
	SessionID     string        `json:"session_id"`
	SteeringMode  Mode          `json:"steering_mode" enum:"one-at-a-time,all"`
	FollowUpMode  Mode          `json:"follow_up_mode" enum:"one-at-a-time,all"`
	PendingCounts PendingCounts `json:"pending_counts"`

	Daemon       DaemonInfo     `json:"daemon" wire:"added"`
	Title        string         `json:"title,omitzero" wire:"added"`
	LeafID       string         `json:"leaf_id,omitzero" wire:"added" doc:"the entry that the session goes on from"`
	LastSeq      uint64         `json:"last_seq" wire:"added" doc:"number of the newest event"`
	Model        ModelInfo      `json:"model" wire:"added"`
	Context      ContextInfo    `json:"context" wire:"added" doc:"how much of the model's context the session fills"`
	Workdir      string         `json:"workdir" wire:"added" doc:"the folder that relative paths start from"`
	Agent        string         `json:"agent" wire:"added" doc:"what makes the session's turns: a hosted agent, or noused, the daemon's own loop"`
	Parent       *Parent        `json:"parent,omitzero" wire:"added" doc:"of a child session: the call that it was made for"`
	Background   []ChildRun     `json:"background,omitzero" wire:"added" doc:"runs of children in the background that the session was not told the end of"`
	As           string         `json:"as,omitzero" wire:"added" doc:"the named agent that makes the run; absent while idle"`
	SystemFiles  []string       `json:"system_files,omitzero" wire:"added" doc:"the files that the model learns of before the conversation: AGENTS.md or CLAUDE.md, and skills"`
	ActiveTools  []string       `json:"active_tools" wire:"added"`
	Queued       QueuedTexts    `json:"queued" wire:"added"`
	SessionState jsontext.Value `json:"session_state" wire:"added" type:"object" doc:"what tools have patched together"`
	Assets       []AssetInfo    `json:"assets" wire:"added"`
	Usage        Usage          `json:"usage" wire:"added" doc:"of the whole session"`
	Runs         []RunInfo      `json:"runs" wire:"added" doc:"every session with an active run"`
	LastRun      *LastRun       `json:"last_run,omitzero" wire:"added" doc:"how the session's latest run ended"`
	Jobs         []JobInfo      `json:"jobs" wire:"added" doc:"the session's commands in the background, the oldest first"`
	Partial      *Partial       `json:"partial,omitzero" wire:"added" doc:"the assistant message being streamed"`
	Turn         *TurnInfo      `json:"turn,omitzero" wire:"added" doc:"the turn that is under way"`

	ApprovalMode     ApprovalMode `json:"approval_mode" wire:"added" enum:"ask,auto,deny"`
	PendingApprovals []Approval   `json:"pending_approvals" wire:"added" doc:"of all sessions, the oldest first"`
	ReadOnly         string       `json:"read_only,omitzero" wire:"added" doc:"why the session can only be read: a newer version of noused wrote it"`

	AgentCommands []AgentCommand `json:"agent_commands,omitzero" wire:"added" doc:"what a prompt to the hosted agent may begin with, behind a slash, as far as it has said since it was started"`
	AgentOptions  []AgentOption  `json:"agent_options,omitzero" wire:"added" doc:"what set_agent_option chooses, as far as the hosted agent has said since it was started"`

	Health
	// ApprovalsIncomplete is only there for a while after a start.
	ApprovalsIncomplete bool `json:"approvals_incomplete,omitzero" wire:"added" doc:"sessions are still being read that may have asked something, too: ask again, or wait for their events"`
}

// AgentCommand is a command of a hosted agent's own.
type AgentCommand struct {
	Name        string `json:"name" doc:"without the slash"`
	Description string `json:"description"`
	Hint        string `json:"hint,omitzero" doc:"what may stand behind it"`
}

// AgentOption is something to choose that a hosted agent has.
type AgentOption struct {
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	Description string       `json:"description,omitzero"`
	Category    string       `json:"category,omitzero" doc:"mode, model, model_config, thought_level, or the agent's own"`
	Value       string       `json:"value" doc:"that is chosen"`
	Values      []AgentValue `json:"values" doc:"true and false of a boolean"`
	Truncated   bool         `json:"truncated,omitzero" doc:"the agent has more values than are listed, and takes them"`
}

// AgentValue is one value of an AgentOption.
type AgentValue struct {
	Value       string `json:"value"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
}

// JobInfo is a command in the background. ExitCode is that of one that has ended by
// itself; a job of a daemon that has ended was stopped with it.
type JobInfo struct {
	ID         string `json:"id"`
	Command    string `json:"command" doc:"its beginning, at most 1 KiB"`
	Status     string `json:"status" enum:"running,exited,stopped"`
	ExitCode   *int   `json:"exit_code,omitzero"`
	OutputPath string `json:"output_path" doc:"the file of what it prints"`
}

// DaemonInfo says which daemon answers.
type DaemonInfo struct {
	Version   string    `json:"version"`
	Epoch     string    `json:"epoch" doc:"made anew at every start; seq counts within it"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Log       string    `json:"log,omitzero" wire:"added" doc:"the file that it logs to, or stderr"`
}

// ModelInfo says which model answers prompts.
type ModelInfo struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
	BaseURL  string `json:"base_url,omitzero" doc:"the server, where set_model named one"`
	Effort   string `json:"effort,omitzero" wire:"added" doc:"how hard it is to think, where anybody chose"`
}

// ContextInfo counts tokens: those that the next request has in about, and
// those that the model can read; a Window of 0 is not known, and has no end.
type ContextInfo struct {
	Tokens int64 `json:"tokens"`
	Window int64 `json:"window"`
	Tools  int64 `json:"tools" wire:"added" doc:"about how many tokens the definitions of tools take in a request, as they are sent"`
}

// QueuedTexts are the accepted texts that wait for delivery.
type QueuedTexts struct {
	Steer    []string      `json:"steer"`
	FollowUp []string      `json:"follow_up"`
	Inputs   []QueuedInput `json:"inputs" wire:"added" doc:"all of them, in the order in which they will be delivered"`
}

// QueuedInput is an accepted text that withdraw takes back.
type QueuedInput struct {
	InputID string `json:"input_id"`
	Kind    Kind   `json:"kind" enum:"steer,follow_up"`
	Text    string `json:"text"`
}

// AssetInfo is a file that a tool made known.
type AssetInfo struct {
	AssetID   string         `json:"asset_id"`
	Kind      string         `json:"kind"`
	MediaType string         `json:"media_type"`
	Path      string         `json:"path"`
	Tool      string         `json:"tool"`
	Supported bool           `json:"supported"`
	Metadata  jsontext.Value `json:"metadata,omitzero" type:"object"`
}

// RunInfo is an active run.
type RunInfo struct {
	SessionID string   `json:"session_id"`
	RunID     string   `json:"run_id"`
	RunState  RunState `json:"run_state" enum:"running,aborting"`

	Title      string   `json:"title,omitzero" wire:"added" doc:"of the session; with daemon"`
	WaitingFor Wait     `json:"waiting_for,omitzero" wire:"added" enum:"approval,model" doc:"as in list_sessions; with daemon"`
	Working    *Working `json:"working,omitzero" wire:"added" doc:"as in list_sessions; with daemon"`
}

// LastRun says how a run ended, as its agent_end did.
type LastRun struct {
	RunID      string     `json:"run_id"`
	StopReason StopReason `json:"stop_reason" enum:"completed,aborted,error"`
	Error      *RunError  `json:"error,omitzero"`
	As         string     `json:"as,omitzero" wire:"added" doc:"the named agent that made it"`
}

// TurnInfo is a turn that has begun and not ended, as its turn_start told it.
type TurnInfo struct {
	TurnID   string   `json:"turn_id"`
	Kind     Kind     `json:"kind" enum:"prompt,steer,follow_up"`
	InputIDs []string `json:"input_ids" doc:"the texts that it delivers"`
}

// Partial is the text of a message so far.
type Partial struct {
	MessageID string `json:"message_id"`
	Text      string `json:"text"`
}

// System answers get_system: the text as it is sent to the model. A session whose
// model was not asked yet learns of its surroundings as they are now.
type System struct {
	SessionID string   `json:"session_id"`
	Text      string   `json:"text"`
	Files     []string `json:"files" doc:"those that the text is from, or names"`
	LeftOut   []string `json:"left_out" doc:"files that cannot be used, each with the reason"`
}

// Skills answers list_skills, the nearest first.
type Skills struct {
	Skills   []Skill       `json:"skills"`
	Commands []FileCommand `json:"commands,omitzero" doc:"left out where a skill was asked for by name; expand makes a text of /NAME ARGUMENTS"`
	Named    []NamedAgent  `json:"named_agents,omitzero" wire:"added" doc:"left out where a skill was asked for by name; prompt takes one as its as"`
	LeftOut  []string      `json:"left_out" doc:"files that cannot be used, each with the reason"`
}

// Agents answers list_agents. The daemon's own loop is not among them.
type Agents struct {
	Agents []AgentInfo `json:"agents"`
}

// AgentInfo is an agent that sessions can be made for.
type AgentInfo struct {
	Name      string   `json:"name"`
	Command   []string `json:"command" doc:"the program and its arguments"`
	Found     bool     `json:"found" doc:"the program is there"`
	Path      string   `json:"path,omitzero" doc:"where the program is"`
	Problem   string   `json:"problem,omitzero" doc:"why it cannot be started"`
	Install   string   `json:"install,omitzero" doc:"the line that installs it"`
	SignIn    string   `json:"sign_in,omitzero" doc:"the line that signs in"`
	SignedIn  *bool    `json:"signed_in,omitzero" wire:"added" doc:"whether it is signed in; absent where nobody can tell"`
	Default   bool     `json:"default,omitzero" doc:"sessions that name no agent are made for it"`
	Sandboxed bool     `json:"sandboxed" doc:"it runs in the sandbox of tools; else as the user, and what it does without asking is not ours to stop"`
}

// NamedAgent is a way to make a run: a file has instructions for it, and which tools it calls.
type NamedAgent struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitzero"`
	Path        string   `json:"path,omitzero" doc:"its file; left out of one that is built in"`
	Tools       []string `json:"tools,omitzero" doc:"all that it calls; left out: what the session has"`
	Model       string   `json:"model,omitzero" doc:"PROVIDER/NAME; left out: the session's"`
	Agent       string   `json:"agent,omitzero" doc:"the hosted agent that makes its turns"`
}

// FileCommand is a text that is kept in a file, to be sent in the place of its name.
type FileCommand struct {
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Path        string `json:"path"`
}

// Skill is instructions for one kind of task.
type Skill struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Path        string `json:"path" doc:"its SKILL.md; relative paths in the text start at its folder"`
	Text        string `json:"text,omitzero" doc:"what the file says, where the skill was asked for by name; at most 64 KiB"`
}

// Messages answers get_messages. Each entry is a Message or a
// CompactionEntry, told apart by type.
type Messages struct {
	SessionID string           `json:"session_id"`
	Messages  []jsontext.Value `json:"messages" items:"Message,CompactionEntry"`
	LeafID    string           `json:"leaf_id,omitzero" wire:"added"`
	More      bool             `json:"more,omitzero" wire:"added" doc:"others follow this page: ask for those after its last entry, with this leaf_id"`
	Runs      []EndedRun       `json:"runs,omitzero" wire:"added" doc:"the runs of these messages that have ended in this session, in the order of their messages"`
	Encoded   []jsontext.Value `json:"-"` // what Runs has, where Runs is empty
	Release   func()           `json:"-"` // as in Response
}

// EndedRun says of a run what its agent_end did. Its DurationMS is in
// milliseconds.
type EndedRun struct {
	RunID      string     `json:"run_id"`
	StopReason StopReason `json:"stop_reason" enum:"completed,aborted,error"`
	Turns      int        `json:"turns"`
	Usage      Usage      `json:"usage"`
	DurationMS int64      `json:"duration_ms"`
	Error      *RunError  `json:"error,omitzero"`
}

// Message is one entry of get_messages.
type Message struct {
	Type        string            `json:"type" enum:"message"`
	ID          string            `json:"id"`
	ParentID    string            `json:"parent_id,omitzero"`
	Role        string            `json:"role" enum:"user,assistant,tool"`
	Text        string            `json:"text"`
	Attachments []Attachment      `json:"attachments,omitzero" doc:"images that were sent with the text, or that the model is shown with a tool's result"`
	Thinking    string            `json:"thinking,omitzero" doc:"what the model thought before it said the text"`
	RunID       string            `json:"run_id"`
	TurnKind    Kind              `json:"turn_kind" enum:"prompt,steer,follow_up"`
	CreatedAt   time.Time         `json:"created_at"`
	ToolCalls   []ToolCall        `json:"tool_calls,omitzero"`
	StopReason  StopReason        `json:"stop_reason,omitzero"`
	Usage       *Usage            `json:"usage,omitzero"`
	Model       string            `json:"model,omitzero"`
	ToolCallID  string            `json:"tool_call_id,omitzero"`
	ToolName    string            `json:"tool_name,omitzero"`
	OK          *bool             `json:"ok,omitzero"`
	Outputs     map[string]string `json:"outputs,omitzero"`
	DurationMS  int64             `json:"duration_ms,omitzero" wire:"added" doc:"of the tool call, as its tool_end told it"`
	NotRun      NotRun            `json:"not_run,omitzero" wire:"added" enum:"steered,aborted" doc:"of a tool call that was not run: why"`
	InputID     string            `json:"input_id,omitzero" wire:"added" doc:"of a user's message: the accepted text that it is"`
	Child       *ChildRun         `json:"child,omitzero" wire:"added" doc:"of a message that nobody has sent: the child session in the background whose end it tells"`
}

// CompactionEntry stands in get_messages for the entries it summarises.
type CompactionEntry struct {
	Type             string    `json:"type" enum:"compaction"`
	ID               string    `json:"id"`
	ParentID         string    `json:"parent_id,omitzero"`
	Role             string    `json:"role,omitzero" enum:"assistant" wire:"added"`
	Text             string    `json:"text,omitzero" wire:"added" doc:"the summary, for clients that know messages only"`
	Summary          string    `json:"summary"`
	FirstKeptEntryID string    `json:"first_kept_entry_id"`
	CreatedAt        time.Time `json:"created_at"`
	RunID            string    `json:"run_id,omitzero" wire:"added" doc:"the run that it happened in; absent: in none"`
	TokensBefore     int64     `json:"tokens_before,omitzero" wire:"added" doc:"the context's, about, before the summary"`
	TokensAfter      int64     `json:"tokens_after,omitzero" wire:"added" doc:"and with it; absent in older journals"`
}

// ExtensionResult answers extension_command.
type ExtensionResult struct {
	OK      bool              `json:"ok" wire:"added"`
	Result  string            `json:"result" wire:"added"`
	Outputs map[string]string `json:"outputs,omitzero" wire:"added"`
	Value   jsontext.Value    `json:"value,omitzero" wire:"added" doc:"the operation's own result as it came"`
	Error   *ToolError        `json:"error,omitzero" wire:"added"`

	MessageID string `json:"message_id,omitzero" wire:"added" doc:"of the message that keeps the result, where the command has a note"`
}

// ToolCalled answers call_tool, also where the call was denied or has failed.
type ToolCalled struct {
	ToolCallID string            `json:"tool_call_id"`
	OK         bool              `json:"ok"`
	Result     string            `json:"result" doc:"the text for the model"`
	Outputs    map[string]string `json:"outputs,omitzero"`
	Value      jsontext.Value    `json:"value,omitzero" doc:"the tool's own result as it came"`
	Error      *ToolError        `json:"error,omitzero"`
	Images     []ToolImage       `json:"images,omitzero" doc:"what of the result is for the eye"`
}

// ToolImage is an image of a tool's result, in base64.
type ToolImage struct {
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// UnmarshalJSONFrom takes a result that does not say whether the operation succeeded, as
// those of other v1 cores may not, for one that did, unless there is an error.
func (r *ExtensionResult) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain ExtensionResult
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var said struct {
		OK *bool `json:"ok"`
	}
	if err := errors.Join(json.Unmarshal(value, (*plain)(r)), json.Unmarshal(value, &said)); err != nil {
		return err
	}
	r.OK = r.OK || said.OK == nil && r.Error == nil
	return nil
}

// Compaction answers compact_session.
type Compaction struct {
	SessionID        string  `json:"session_id"`
	Summary          string  `json:"summary"`
	FirstKeptEntryID string  `json:"first_kept_entry_id"`
	TokensBefore     int64   `json:"tokens_before"`
	TokensAfter      int64   `json:"tokens_after,omitzero" wire:"added"`
	Trigger          Trigger `json:"trigger" enum:"manual,threshold,overflow"`
}

// Leaf answers set_leaf.
type Leaf struct {
	SessionID string `json:"session_id"`
	LeafID    string `json:"leaf_id"`
}

// Tree answers get_tree.
type Tree struct {
	SessionID string `json:"session_id"`
	LeafID    string `json:"leaf_id"`
	Nodes     []Node `json:"nodes"`
}

// Node is one entry of a session's tree, without its full text.
type Node struct {
	ID       string `json:"id"`
	ParentID string `json:"parent_id" doc:"empty on a root"`
	Role     string `json:"role" enum:"user,assistant,tool,compaction"`
	Snippet  string `json:"snippet"`
}

// Sessions answers list_sessions.
type Sessions struct {
	Sessions        []SessionInfo `json:"sessions"`
	ActiveSessionID string        `json:"active_session_id,omitzero" wire:"added" doc:"the daemon's active session; absent: none has been made yet"`
}

// SessionInfo is one line of list_sessions.
type SessionInfo struct {
	SessionID string    `json:"session_id"`
	Title     string    `json:"title"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Messages  int       `json:"messages"`
	RunState  RunState  `json:"run_state" enum:"idle,running,aborting"`
	ParentID  string    `json:"parent_id,omitzero"`
	Parent    *Parent   `json:"parent,omitzero" wire:"added" doc:"of a child session: the call that it was made for"`
	Usage     Usage     `json:"usage,omitzero" wire:"added" doc:"of the whole session; absent where it is nothing"`

	Workdir        string     `json:"workdir" wire:"added" doc:"the folder that the session lives in"`
	WaitingFor     Wait       `json:"waiting_for" wire:"added" enum:",approval,model" doc:"what the run waits for a person to give; empty: nothing"`
	LastStopReason StopReason `json:"last_stop_reason" wire:"added" enum:",completed,aborted,error" doc:"how the run ended that ended last; empty: none has"`
	Unread         bool       `json:"unread" wire:"added" doc:"a run has ended since mark_read"`
	Model          ModelInfo  `json:"model" wire:"added" doc:"what answers its prompts"`
	Agent          string     `json:"agent" wire:"added" doc:"what makes its turns: a hosted agent, or noused, the daemon's own loop"`
	LastText       string     `json:"last_text,omitzero" wire:"added" doc:"the last line of the latest answer, in at most 120 characters; of one that is being streamed the last line so far"`
	Working        *Working   `json:"working,omitzero" wire:"added" doc:"what its run is doing; absent while it is idle, or was not taken up again yet"`
}

// Parent is the call of the tool agent that a child session was made for.
type Parent struct {
	SessionID  string `json:"session_id"`
	RunID      string `json:"run_id"`
	ToolCallID string `json:"tool_call_id"`
}

// ChildRun is the run of a child session in the background.
type ChildRun struct {
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
}

// Working says what a run is doing. ToolName is that of the call that runs, ""
// while the model answers.
type Working struct {
	RunID     string    `json:"run_id"`
	StartedAt time.Time `json:"started_at" doc:"when the run began"`
	ToolName  string    `json:"tool_name,omitzero" doc:"the tool that runs; absent while the model answers"`
	Since     time.Time `json:"since" doc:"when that call began, or the model was asked"`
}

// SessionDeleted answers delete_session once the session is gone from the disk.
type SessionDeleted struct {
	SessionID string `json:"session_id"`
}

// SearchResults answers search_sessions: of the newest session first, within a
// session in the order in which they were said. Truncated: there are more.
type SearchResults struct {
	Matches   []SearchMatch `json:"matches"`
	Truncated bool          `json:"truncated"`
}

// SearchMatch is one message or compaction that holds the text. Snippet is the
// line it stands on for the first time, in at most 160 characters.
type SearchMatch struct {
	SessionID string    `json:"session_id"`
	Title     string    `json:"title"`
	EntryID   string    `json:"entry_id"`
	Role      string    `json:"role" enum:"user,assistant,tool,compaction"`
	Snippet   string    `json:"snippet"`
	CreatedAt time.Time `json:"created_at"`
}

// Tools answers list_tools.
type Tools struct {
	Tools   []ToolInfo   `json:"tools"`
	Servers []ServerInfo `json:"servers" wire:"added" doc:"MCP servers that the session sees, by name"`
}

// ServerInfo is an MCP server, whose tools are NAME.tool.
type ServerInfo struct {
	Name    string `json:"name"`
	State   string `json:"state" enum:"configured,starting,ready,failed,untrusted,needs_login"`
	Message string `json:"message,omitzero" doc:"why it is in that state, where there is more to say"`
	Workdir string `json:"workdir,omitzero" doc:"the folder that the server is for; absent for the user's own servers, which every session sees"`
	Tools   int    `json:"tools" doc:"how many it has said it has"`

	Prompts []ServerPrompt `json:"prompts,omitzero" doc:"texts that it makes for people: /NAME.PROMPT in expand"`
	LeftOut []string       `json:"left_out,omitzero" doc:"tools of it that cannot be used, each with the reason"`
}

// ServerPrompt is a text that an MCP server makes of some arguments.
type ServerPrompt struct {
	Name        string           `json:"name"`
	Description string           `json:"description,omitzero"`
	Arguments   []PromptArgument `json:"arguments,omitzero"`
}

// PromptArgument is one of them.
type PromptArgument struct {
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Required    bool   `json:"required,omitzero"`
}

// Expanded answers expand.
type Expanded struct {
	Text        string             `json:"text" doc:"for a prompt, a steer or a follow-up"`
	Attachments []AttachmentParams `json:"attachments,omitzero" doc:"images that go with it"`
}

func (Expanded) replyType() string { return "expanded" }

// ToolInfo is one operation that a model may call.
type ToolInfo struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Protocol    string         `json:"protocol"`
	Active      bool           `json:"active"`
	Healthy     bool           `json:"healthy"`
	Problem     string         `json:"problem,omitzero" doc:"why it is not healthy"`
	ReadOnly    bool           `json:"read_only,omitzero" wire:"added" doc:"the tool says that it changes nothing"`
	Unheard     bool           `json:"unheard,omitzero" wire:"added" doc:"it is not healthy as it has not said yet what it can do"`
	Params      jsontext.Value `json:"params" type:"object" doc:"JSON Schema of the arguments"`
}

// ToolsReloaded answers reload_tools with the modules that are new, changed and
// gone. Errors name the descriptors that cannot be used, file and field, and what is wrong with
// the configuration or waits for a restart.
type ToolsReloaded struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	Errors  []string `json:"errors"`
}

// Models answers list_models: the daemon's own model first. Truncated: a server
// that was asked has more models than are reported.
type Models struct {
	Models    []ListedModel `json:"models"`
	Truncated bool          `json:"truncated"`
}

// ListedModel is one model that could answer prompts, or with an empty Name a
// vendor whose models are not known. Source is where it is known from: "config",
// what the daemon was started with; "environment", a vendor whose key is set;
// "module", a provider module; "built-in"; "server", which was asked and has it; "agent", a hosted one offers it.
// BaseURL has no user, password or query.
type ListedModel struct {
	Model     string `json:"model" doc:"PROVIDER/NAME as --model takes it; PROVIDER alone for offline, and for a vendor whose models are not known"`
	Provider  string `json:"provider"`
	Name      string `json:"name"`
	BaseURL   string `json:"base_url,omitzero" doc:"of providers over HTTP"`
	Source    string `json:"source" enum:"config,environment,module,built-in,server,agent"`
	Default   bool   `json:"default" doc:"the daemon's own"`
	Reachable *bool  `json:"reachable,omitzero" doc:"absent: nobody was asked"`
	Problem   string `json:"problem,omitzero" doc:"why it is not usable, or may not be"`
	Refused   bool   `json:"key_refused,omitzero" wire:"added" doc:"the server answers, and takes no such key"`
	NoCredit  bool   `json:"no_credit,omitzero" wire:"added" doc:"the server answers, and says that nothing is left to pay with"`

	KeyVariable string `json:"key_variable,omitzero" wire:"added" doc:"the variable of the daemon's environment that its key is from; absent: it has none, or a saved one"`
}

func (Session) replyType() string         { return "session" }
func (Branch) replyType() string          { return "session" }
func (State) replyType() string           { return "state" }
func (System) replyType() string          { return "system" }
func (Skills) replyType() string          { return "skills" }
func (Agents) replyType() string          { return "agents" }
func (Messages) replyType() string        { return "messages" }
func (ExtensionResult) replyType() string { return "extension_result" }
func (ToolCalled) replyType() string      { return "tool_result" }
func (Compaction) replyType() string      { return "compaction" }
func (Leaf) replyType() string            { return "leaf" }
func (Tree) replyType() string            { return "tree" }
func (Sessions) replyType() string        { return "sessions" }
func (SessionDeleted) replyType() string  { return "session_deleted" }
func (SearchResults) replyType() string   { return "search_results" }
func (Tools) replyType() string           { return "tools" }
func (ToolsReloaded) replyType() string   { return "tools_reloaded" }
func (Models) replyType() string          { return "models" }
