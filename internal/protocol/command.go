package protocol

// Since says how firmly a command is promised (wire-v1 §3).
type Since string

// Frozen is in the TUI's frozen list, Core in every v1 core, Added only ours.
const (
	Frozen Since = "frozen"
	Core   Since = "core"
	Added  Since = "added"
)

// Params is a command's decoded payload. A field is required when its tag has
// no omitzero; the tag wire:"added" marks what v1 does not freeze. The tags
// enum, min, max, type, items, alias and doc are for the schema only.
type Params interface{ validate() *Error }

// Reply is a response's payload, which knows the response type it goes under.
type Reply interface{ replyType() string }

// Def is one row of the command table, with the types of its payload and of
// its reply.
type Def[P Params, R Reply] struct{ name string }

// Name is the command's type on the wire.
func (d Def[P, R]) Name() string { return d.name }

// Row is a table row without its types, for documents and completeness checks.
type Row struct {
	Name    string
	Since   Since
	Summary string
	Params  Params
	Replies []Reply // one for each response type
	// Long commands may be answered when they finish, after the commands that were
	// sent behind them; all others are answered in the order in which they were
	// sent, and at once (wire-v1 §1).
	Long bool
}

var (
	table []Row
	rowOf = map[string]int{} // by name
)

// Table returns the sealed table of commands in the order of the contract.
func Table() []Row { return table }

func define[P Params, R Reply](name string, since Since, summary string, replies ...Reply) Def[P, R] {
	var p P
	if len(replies) == 0 {
		var r R
		replies = []Reply{r}
	}
	rowOf[name] = len(table)
	table = append(table, Row{Name: name, Since: since, Summary: summary, Params: p, Replies: replies})
	return Def[P, R]{name}
}

// defineLong defines a command that may be answered when it finishes.
func defineLong[P Params, R Reply](name string, since Since, summary string, replies ...Reply) Def[P, R] {
	d := define[P, R](name, since, summary, replies...)
	table[len(table)-1].Long = true
	return d
}

// Long reports that a command of that name may be answered when it finishes.
func Long(name string) bool {
	i, ok := rowOf[name]
	return ok && table[i].Long
}

// The command table: every command is one line of it.
var (
	Ping   = define[PingParams, Pong]("ping", Frozen, "Answers pong.")
	Prompt = defineLong[PromptParams, PromptReply]("prompt", Frozen, "Starts a run with a text.",
		PromptAccepted{}, PromptResult{})
	Steer = defineLong[SteerParams, InputAccepted]("steer", Frozen,
		"Queues a text that the active run gets before everything else.")
	FollowUp = defineLong[FollowUpParams, InputAccepted]("follow_up", Frozen,
		"Queues a text that is delivered when the run would otherwise end.")
	Abort = define[AbortParams, AbortAccepted]("abort", Frozen,
		"Aborts the run and hands back the queued texts.")
	SetActiveTools = define[SetActiveToolsParams, ToolsAccepted]("set_active_tools", Frozen,
		"Chooses the tools that a session offers to the model.")
	SetSteeringMode = define[SetModeParams, ModeAccepted]("set_steering_mode", Frozen,
		"Chooses whether queued steers are delivered one at a time or all at once.")
	SetFollowUpMode = define[SetModeParams, ModeAccepted]("set_follow_up_mode", Frozen,
		"Chooses whether queued follow-ups are delivered one at a time or all at once.")
	GetState    = define[GetStateParams, State]("get_state", Frozen, "Tells what a session and the daemon are doing.")
	GetMessages = define[GetMessagesParams, Messages]("get_messages", Frozen,
		"Lists a session's messages from its root to a leaf.")
	NewSession = define[NewSessionParams, Session]("new_session", Frozen,
		"Makes a session and makes it the active one.")
	SwitchSession = define[SwitchSessionParams, Session]("switch_session", Frozen, "Makes a session the active one.")
	BranchSession = define[BranchSessionParams, Branch]("branch_session", Frozen,
		"Copies a session up to its leaf, or to another entry, into a new one, and makes that the active one.")
	ExtensionCommand = defineLong[ExtensionCommandParams, ExtensionResult]("extension_command", Frozen,
		"Runs one tool operation without a model.")
	CallTool = defineLong[CallToolParams, ToolCalled]("call_tool", Added,
		"Calls a tool as a session's model does: rules are asked, and people where they say so; refused to the daemon's own "+
			"descendants that have no token of the session.")
	CompactSession = defineLong[CompactSessionParams, Compaction]("compact_session", Core,
		"Summarises the older part of a session.")
	SetLeaf = define[SetLeafParams, Leaf]("set_leaf", Core,
		"Goes back to an earlier message: the next prompt continues from there.")
	GetTree       = define[GetTreeParams, Tree]("get_tree", Core, "Lists every entry of a session with its parent.")
	ListSessions  = defineLong[ListSessionsParams, Sessions]("list_sessions", Added, "Lists sessions, newest first.")
	DeleteSession = define[DeleteSessionParams, SessionDeleted]("delete_session", Added,
		"Removes a session for ever; refused while it runs.")
	SearchSessions = defineLong[SearchSessionsParams, SearchResults]("search_sessions", Added,
		"Finds a text in the messages and summaries of all sessions.")
	ListTools = defineLong[ListToolsParams, Tools]("list_tools", Added,
		"Lists the tools and whether they are active and healthy.")
	SetModel = defineLong[SetModelParams, ModelAccepted]("set_model", Added,
		"Chooses the model that answers in a session, from its next call on.")
	SetAgent = define[SetAgentParams, AgentAccepted]("set_agent", Added,
		"Chooses what makes a session's turns, as long as nothing was said there; refused to the daemon's own descendants.")
	SetAgentOption = defineLong[SetAgentOptionParams, AgentOptionAccepted]("set_agent_option", Added,
		"Chooses the value of an option that the session's hosted agent has; starts the agent if need be.")
	ReloadTools = define[ReloadToolsParams, ToolsReloaded]("reload_tools", Added,
		"Reads the tool descriptors again; calls that run are not disturbed.")
	ListModels = defineLong[ListModelsParams, Models]("list_models", Added,
		"Lists the models that could answer prompts; asks servers only if told to.")
	GetSystem = defineLong[GetSystemParams, System]("get_system", Added,
		"Tells what a session's model is told before the conversation.")
	ListSkills = defineLong[ListSkillsParams, Skills]("list_skills", Added,
		"Lists the skills; with a name, what that one says.")
	ListAgents = define[ListAgentsParams, Agents]("list_agents", Added,
		"Lists the hosted agents that sessions can be made for, and where their programs are.")
	Withdraw = define[WithdrawParams, Withdrawn]("withdraw", Added,
		"Takes a queued text back, before it is delivered.")
	SetTitle = define[SetTitleParams, TitleAccepted]("set_title", Added, "Gives a session another title.")
	MarkRead = define[MarkReadParams, MarkedRead]("mark_read", Added,
		"Says that a session has been seen up to now.")
	Expand = defineLong[ExpandParams, Expanded]("expand", Added,
		"Puts into a text what MCP servers have for it: their prompts, as /NAME.PROMPT, and resources, as @NAME:URI.")
	GetUsage = defineLong[GetUsageParams, UsageReport]("get_usage", Added,
		"Tells how many tokens the model calls of all sessions took, and what they cost.")
	Approve = define[ApproveParams, ApproveAccepted]("approve", Added,
		"Answers the question whether something may be done; refused to the daemon's own descendants.")
	SetApprovalMode = define[SetApprovalModeParams, ApprovalModeAccepted]("set_approval_mode", Added,
		"Chooses whether a session asks, allows or denies approvals; refused to the daemon's own descendants.")
	GetChanges = defineLong[GetChangesParams, Changes]("get_changes", Added,
		"Tells what a session's turns have changed in its folder; refused to the daemon's own descendants.")
	Rewind = defineLong[RewindParams, Rewound]("rewind", Added,
		"Takes back what a session did since a message, or tells what it would; refused to the daemon's own descendants.")
	UndoRewind = defineLong[UndoRewindParams, Rewound]("undo_rewind", Added,
		"Puts back what a rewind took back; refused to the daemon's own descendants.")
	Prune = defineLong[PruneParams, Pruned]("prune", Added,
		"Removes now what [retention] says, or tells what it would; refused to the daemon's own descendants.")
	Shutdown = define[ShutdownParams, ShutdownAccepted]("shutdown", Added,
		"Stops the daemon as SIGTERM does, or has it start anew; refused to the daemon's own descendants.")
)
