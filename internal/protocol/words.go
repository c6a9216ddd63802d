package protocol

// The words that wire-v1 §3 and §4 give to what happens. Journals have the same
// words (docs/journal.md), so none of them ever changes.

// OwnAgent is the name of the daemon's own loop among agents.
const OwnAgent = "noused"

// RunState says what a session does.
type RunState string

// The states of a session. A run is aborting from the abort until its agent_end.
const (
	StateIdle     RunState = "idle"
	StateRunning  RunState = "running"
	StateAborting RunState = "aborting"
)

// StopReason says why a run, a turn or an assistant message ended.
type StopReason string

// Runs end with StopCompleted, turns with StopEnd or StopSteered, messages with
// StopEnd, StopToolCalls or StopLength, as a model's do; each of the three also
// with StopAborted or StopError.
const (
	StopCompleted StopReason = "completed"
	StopEnd       StopReason = "end"
	StopSteered   StopReason = "steered"
	StopToolCalls StopReason = "tool_calls"
	StopLength    StopReason = "length"
	StopAborted   StopReason = "aborted"
	StopError     StopReason = "error"
)

// Kind says how a text reaches its run.
type Kind string

// The kinds of a text. A prompt starts a run and never waits in a queue.
const (
	KindPrompt   Kind = "prompt"
	KindSteer    Kind = "steer"
	KindFollowUp Kind = "follow_up"
)

// Mode says how many waiting texts of a kind one turn takes.
type Mode string

// ModeOneAtATime takes the oldest, ModeAll the whole queue.
const (
	ModeOneAtATime Mode = "one-at-a-time"
	ModeAll        Mode = "all"
)

// Wait says what a run waits for a person to give; "" is nothing.
type Wait string

// A run waits for the answer to a question, or for a model that can be asked.
const (
	WaitApproval Wait = "approval"
	WaitModel    Wait = "model"
)

// Trigger says what a compaction was made for.
type Trigger string

// A compaction is asked for by a client, or made between two turns since the
// context is nearly full, or since the model refused the request for its length.
const (
	TriggerManual    Trigger = "manual"
	TriggerThreshold Trigger = "threshold"
	TriggerOverflow  Trigger = "overflow"
)

// NotRun is why a tool call was not run: the user steered before it, or the run was aborted.
type NotRun string

// Reasons why a tool call was not run.
const (
	NotRunSteered NotRun = "steered"
	NotRunAborted NotRun = "aborted"
)

// Codes of status events.
const (
	StatusAbortRequested  Code = "abort_requested"
	StatusSteerQueued     Code = "steer_queued"
	StatusFollowUpQueued  Code = "follow_up_queued"
	StatusRunResumed      Code = "run_resumed"
	StatusLeafSet         Code = "leaf_set"
	StatusCompacting      Code = "compacting"
	StatusCompacted       Code = "compacted"
	StatusJournalRepaired Code = "journal_repaired"
	StatusInputWithdrawn  Code = "input_withdrawn"
	StatusTitleSet        Code = "title_set"
	StatusMarkedRead      Code = "marked_read"
	StatusToolsChanged    Code = "tools_changed"   // an MCP server has other tools now
	StatusModelMissing    Code = "model_missing"   // the run waits until its model can be asked
	StatusSettingChanged  Code = "setting_changed" // get_state has it: a mode, the model or the active tools
	StatusJobEnded        Code = "job_ended"       // a command in the background; get_state has its exit code
	StatusSessionDeleted  Code = "session_deleted"
	StatusOperationOutput Code = "operation_output" // what an extension_command says while it runs

	StatusChangesUnavailable Code = "changes_unavailable" // what a turn changes is not recorded
	StatusRewindRecovered    Code = "rewind_recovered"    // one that was interrupted was finished, or taken back

	StatusApprovalRequested Code = "approval_requested"
	StatusApprovalResolved  Code = "approval_resolved"
)

// Codes of warning events. A tool's refused events bring codes of their own.
const (
	WarningEventsDropped     Code = "events_dropped"
	WarningRequestRepaired   Code = "request_repaired"
	WarningModelFallback     Code = "model_fallback"
	WarningHookFailed        Code = "hook_failed"
	WarningEmptyAnswer       Code = "empty_answer"
	WarningAnswerUnfit       Code = "answer_unfit" // it is asked for again
	WarningCompactionFailed  Code = "compaction_failed"
	WarningContextFailed     Code = "context_failed"
	WarningSkillLeftOut      Code = "skill_left_out"
	WarningStatePatchInvalid Code = "state_patch_invalid"
	WarningStateTooLarge     Code = "state_too_large"
	WarningAssetsTooLarge    Code = "assets_too_large"
	WarningRuleNotKept       Code = "rule_not_kept"
	WarningRuleUnused        Code = "rule_unused" // a pattern of the policy fits no tool
	// MCP servers have not yet said what they can do, or an extension says nothing
	WarningToolsNotReady Code = "tools_not_ready"
)

// Codes of runs that end in error, beside those of responses.
const (
	Refused    Code = "refused" // the model, or its provider's filter, does not want to answer
	StepLimit  Code = "step_limit"
	CrashLoop  Code = "crash_loop"
	OverBudget Code = "budget" // a limit of config.toml, or of the prompt, was reached
	// AnswerUnfit: the answer does not fit the prompt's output_schema
	AnswerUnfit Code = "answer_unfit"
	// KeyRefused: the provider refuses the key, or there is none
	KeyRefused Code = "key_refused"
	// AgentFailed: the hosted agent cannot be started, or ends again and again
	AgentFailed Code = "agent_failed"
	// AgentCut: the daemon ended, and resume of the hosted agent is "stop"
	AgentCut Code = "agent_cut"
)
