package protocol

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// One payload of each kind with every field set, and the small ones that
// clients and daemon send most.

var sampleTime = time.Date(2026, 2, 12, 0, 0, 0, 123456000, time.UTC)

func ptr[T any](v T) *T { return &v }

func sampleParams() []Params {
	scope := Scope{SessionID: "ses-1"}
	images := []AttachmentParams{{Path: "shot.png"}, {Data: "iVBORw0KGgo=", MediaType: "image/png", Name: "a sketch"}}
	return []Params{
		PingParams{},
		PromptParams{Text: "hello"},
		PromptParams{
			Scope: scope, Text: "hello", Wait: ptr(false), LeafID: "msg-1", StreamingBehavior: "steer",
			IdempotencyKey: "k1", Attachments: images,
		},
		SteerParams{Text: "no, this way"},
		SteerParams{Scope: scope, Text: "no, this way", IfIdle: "prompt", IdempotencyKey: "k2", Attachments: images},
		FollowUpParams{Scope: scope, Text: "then this", IfIdle: "prompt", IdempotencyKey: "k3"},
		AbortParams{},
		AbortParams{Scope: scope, RunID: "run-1"},
		SetActiveToolsParams{Tools: []string{}},
		SetActiveToolsParams{Scope: scope, Tools: []string{"read", "git.log"}},
		SetModeParams{Scope: scope, Mode: "one-at-a-time"},
		SetModeParams{Mode: "all"},
		GetStateParams{},
		GetStateParams{Scope: scope},
		GetStateParams{Daemon: true},
		GetMessagesParams{Scope: scope, LeafID: "msg-1"},
		NewSessionParams{},
		NewSessionParams{Title: "a title", Workdir: "/src", Activate: ptr(false)},
		NewSessionParams{MCPServers: []MCPServer{
			{Name: "git", Command: "git-mcp", Args: []string{"--here"}, Env: map[string]string{"A": "b"}},
			{Name: "far", URL: "https://example.org/mcp", Headers: map[string]string{"Authorization": "Bearer x"}},
		}},
		SwitchSessionParams{SessionID: "ses-1"},
		BranchSessionParams{SessionID: "ses-1", LeafID: "msg-1", Workdir: "/src", Activate: ptr(false)},
		ExtensionCommandParams{Name: "git.log"},
		ExtensionCommandParams{Scope: scope, Name: "git.log", Payload: jsontext.Value(`{"n":1}`), Phase: "verify"},
		CompactSessionParams{Scope: scope, Instruction: "keep the names"},
		SetLeafParams{Scope: scope, LeafID: "msg-1"},
		GetTreeParams{scope},
		ListSessionsParams{},
		ListSessionsParams{Limit: ptr(10), Before: "ses-1", Workdir: "/src"},
		WithdrawParams{Scope: scope, InputID: "in-1"},
		SetTitleParams{Scope: scope, Title: "a title"},
		MarkReadParams{scope},
		ApproveParams{ApprovalID: "apr-1-ses-1", Option: "deny", Reason: "not today"},
		ApproveParams{ApprovalID: "apr-2-ses-1", Option: "accept", Content: jsontext.Value(`{"n":5}`)},
		SetApprovalModeParams{Scope: scope, Mode: "auto"},
		ShutdownParams{Restart: true},
		ExpandParams{Scope: scope, Text: "/hub.review main.go"},
		PromptParams{Text: "hi", Approvals: "deny"},
		DeleteSessionParams{SessionID: "ses-1"},
		PruneParams{DryRun: true},
		GetChangesParams{},
		GetChangesParams{Scope: scope, From: "msg-1", To: "run-1/2", Diff: true, Path: "a.go"},
		RewindParams{Scope: scope, To: "msg-1", What: RewindBoth, DryRun: true, Force: []string{"a.go"}},
		UndoRewindParams{Scope: scope, RewindID: "rew-1", DryRun: true, Force: []string{"a.go"}},
		SearchSessionsParams{Text: "lantern"},
		SearchSessionsParams{Text: "lantern", Limit: ptr(10)},
		ListToolsParams{Scope: scope},
		ListToolsParams{Daemon: true},
		SetModelParams{Model: "offline"},
		SetModelParams{Scope: scope, Model: "openai/qwen3:8b", BaseURL: "http://localhost:11434/v1", ContextWindow: 32768},
		ReloadToolsParams{},
		ListModelsParams{},
		ListModelsParams{Probe: true},
		GetSystemParams{scope},
		ListSkillsParams{},
		ListAgentsParams{},
		CallToolParams{Name: "ls"},
		CallToolParams{
			Scope: scope, Name: "bash", Arguments: jsontext.Value(`{"command":"ls"}`), Token: "00ff", Client: "claude-code",
			OutputID: "out-1",
		},
		SetAgentParams{Scope: scope, Agent: "codex"},
		SetAgentOptionParams{Scope: scope, ID: "mode", Value: "plan"},
		ListSkillsParams{Scope: scope, Name: "review"},
		GetUsageParams{},
		GetUsageParams{By: "session", TimeZone: "Europe/Berlin"},
		SubscribeParams{},
		SubscribeParams{Epoch: "e1", After: ptr(uint64(17)), SessionID: "ses-1", Types: []string{"agent_end"}},
	}
}

func sampleReplies() []Reply {
	usage := Usage{InputTokens: 1, OutputTokens: 2, CachedTokens: 3}
	toolError := &ToolError{Code: "tool_failed", Message: "it failed", Details: jsontext.Value(`{"exit":1}`)}
	message := jsontext.Value(
		`{"type":"message","id":"msg-1","role":"assistant","text":"hi","thinking":"a greeting","run_id":"run-1","turn_kind":"prompt","created_at":"2026-02-12T00:00:00Z"}`)
	shown := jsontext.Value(
		`{"type":"message","id":"msg-2","role":"user","text":"look","attachments":[{"media_type":"image/png","name":"a.png","size":70,"path":"/state/a.png"}],"run_id":"run-1","turn_kind":"prompt","created_at":"2026-02-12T00:00:00Z"}`)
	compacted := jsontext.Value(
		`{"type":"compaction","id":"cmp-1","role":"assistant","text":"they greeted","summary":"they greeted","first_kept_entry_id":"msg-7","created_at":"2026-02-12T00:00:00Z"}`)
	return []Reply{
		Pong{"pong", "1.0.0", 7},
		PromptAccepted{Command: "prompt", RunID: "run-1", SessionID: "ses-1", InputID: "in-1"},
		PromptResult{
			Output: "hello", Events: []jsontext.Value{jsontext.Value(`{"v":"1"}`)}, EventsTruncated: true,
			SessionID: "ses-1", RunID: "run-1",
		},
		PromptResult{SessionID: "ses-1", RunID: "run-1"},
		InputAccepted{Command: "steer", RunID: "run-1", SessionID: "ses-1", InputID: "in-2"},
		AbortAccepted{Command: "abort", RunID: "run-1"},
		AbortAccepted{
			Command: "abort", RunID: "run-1",
			Discarded: []DiscardedInput{{InputID: "in-2", Kind: "follow_up", Text: "then this"}},
		},
		ToolsAccepted{Command: "set_active_tools", Count: 2},
		ModeAccepted{Command: "set_steering_mode", Mode: "all"},
		AgentAccepted{Command: "set_agent", Agent: "codex"},
		AgentOptionAccepted{Command: "set_agent_option", ID: "mode", Value: "plan"},
		ModelAccepted{Command: "set_model", Model: ModelInfo{
			Provider: "openai", Name: "qwen3:8b",
			BaseURL: "http://localhost:11434/v1",
		}},
		State{
			RunState: "idle", SessionID: "ses-1", SteeringMode: "one-at-a-time", FollowUpMode: "all", ApprovalMode: "ask",
			Daemon: DaemonInfo{Version: "1.0.0", Epoch: "e1", PID: 7, StartedAt: sampleTime}, SessionState: jsontext.Value(`{}`),
		},
		State{
			RunState: "running", RunID: "run-1", SessionID: "ses-1", SteeringMode: "all", FollowUpMode: "all",
			ApprovalMode: "auto", PendingApprovals: []Approval{sampleApproval("ses-1", "run-1")},
			PendingCounts: PendingCounts{Steer: 1, FollowUp: 2},
			Daemon:        DaemonInfo{Version: "1.0.0", Epoch: "e1", PID: 7, StartedAt: sampleTime}, Title: "a title",
			LastSeq: 17,
			Model:   ModelInfo{Provider: "offline", Name: "script"}, SystemFiles: []string{"/src/AGENTS.md"},
			ActiveTools: []string{"read"},
			Queued: QueuedTexts{
				Steer: []string{"a"}, FollowUp: []string{"b", "c"},
				Inputs: []QueuedInput{{InputID: "in-1", Kind: "steer", Text: "a"}},
			},
			SessionState: jsontext.Value(`{"weather":"fine"}`),
			Assets: []AssetInfo{{
				AssetID: "a1", Kind: "image", MediaType: "image/png", Path: "/tmp/x.png", Tool: "draw.sun",
				Supported: true, Metadata: jsontext.Value(`{"w":1}`),
			}},
			Usage: usage, Runs: []RunInfo{{SessionID: "ses-1", RunID: "run-1", RunState: "running"}},
			Jobs: []JobInfo{
				{ID: "job-1", Command: "make", Status: "exited", ExitCode: new(int), OutputPath: "/state/job-1.txt"},
				{ID: "job-2", Command: "serve", Status: "running", OutputPath: "/state/job-2.txt"},
			},
			Partial: &Partial{MessageID: "msg-1", Text: "hel"},
		},
		State{
			RunState: "idle", SteeringMode: "one-at-a-time", FollowUpMode: "all", ApprovalMode: "ask",
			SessionState: jsontext.Value(`{}`),
			Runs: []RunInfo{{
				SessionID: "ses-1", RunID: "run-1", RunState: "running", Title: "t", WaitingFor: "approval",
				Working: &Working{RunID: "run-1", StartedAt: sampleTime, Since: sampleTime},
			}},
			Health: Health{
				Readers:     &Readers{Count: 2, Behind: 1, Slowest: []Reader{{PID: 7, Program: "nous", Lag: 12}}},
				EventBuffer: &EventBuffer{Bytes: 4096, Limit: 16 << 20, FirstSeq: 1},
				Disk:        &DiskUse{Path: "/state", FreeBytes: 1 << 30, Bytes: 4096, Sessions: 1, CountedAt: sampleTime},
				LastErrors:  []LoggedError{{At: sampleTime, Message: "it broke", SessionID: "ses-1"}},
			},
		},
		Messages{SessionID: "ses-1"},
		Messages{SessionID: "ses-1", Messages: []jsontext.Value{compacted, shown, message}, LeafID: "msg-1"},
		Session{SessionID: "ses-1", Active: true},
		Changes{SessionID: "ses-1", Folder: "/src", Files: []ChangedFile{}},
		Changes{
			SessionID: "ses-1", Diff: ptr("diff --git a/a b/b\n"), Truncated: true,
			Files: []ChangedFile{{
				Path: "b", Status: "renamed", OldPath: "a", Added: 1, Removed: 2, Binary: true, Shared: true, LeftOut: true,
			}},
			Missing:  []MissingTurn{{RunID: "run-1", TurnID: "2", Why: "it took too long"}},
			Children: []ChangedChild{{SessionID: "ses-2", Title: "fix it", Files: 3}},
		},
		Rewound{
			SessionID: "ses-1", RewindID: "rew-1", Files: []RewoundFile{{Path: "a", Action: "restore"}},
			Conflicts: []RewindConflict{{Path: "b", Why: "it has changed"}}, LeafID: "msg-1", Text: "hello",
		},
		Pruned{
			DryRun: true, Limits: PruneLimits{
				SessionsOlder: "90d", SessionsLarger: "2GiB", ToolOutputOlder: "30d",
				ToolOutputLarger: "1GiB", AuditLarger: "16MiB",
			}, Config: "/c.toml",
			Sessions:   []PrunedSession{{SessionID: "ses-1", Title: "a title", UsedAt: sampleTime, Size: 7}},
			ToolOutput: []PrunedFile{{Name: "tool-output/result-1.txt", ChangedAt: sampleTime, Size: 8}},
			Audit:      []PrunedFile{{Name: "audit.jsonl.4", ChangedAt: sampleTime, Size: 9}}, Truncated: true,
			Problems: []string{"the disk is full"},
			Sums:     PrunedSums{Sessions: PrunedSum{1, 7}, ToolOutput: PrunedSum{1, 8}, Audit: PrunedSum{1, 9}},
		},
		Branch{SessionID: "ses-2", ParentID: "ses-1", Active: true},
		ExtensionResult{OK: true, Result: "fine", Outputs: map[string]string{"a": "b"}, Value: jsontext.Value(`[1]`)},
		ExtensionResult{Result: "it failed", Error: toolError},
		ToolCalled{
			ToolCallID: "call-1", OK: true, Result: "fine", Outputs: map[string]string{"a": "b"}, Value: jsontext.Value(`[1]`),
			Images: []ToolImage{{MediaType: "image/png", Data: "AAAA"}},
		},
		ToolCalled{ToolCallID: "call-1", Result: "it failed", Error: toolError},
		Compaction{
			SessionID: "ses-1", Summary: "they greeted", FirstKeptEntryID: "msg-7", TokensBefore: 100,
			Trigger: "manual",
		},
		Leaf{SessionID: "ses-1", LeafID: "msg-1"},
		Tree{SessionID: "ses-1"},
		Tree{SessionID: "ses-1", LeafID: "msg-2", Nodes: []Node{
			{ID: "msg-1", Role: "user", Snippet: "hi"},
			{ID: "msg-2", ParentID: "msg-1", Role: "assistant", Snippet: "hello"},
		}},
		Sessions{},
		Sessions{ActiveSessionID: "ses-1", Sessions: []SessionInfo{{
			SessionID: "ses-1", Title: "t", CreatedAt: sampleTime,
			UpdatedAt: sampleTime, Messages: 2, RunState: "idle", ParentID: "ses-0",
		}}},
		Sessions{Sessions: []SessionInfo{{
			SessionID: "ses-1", Title: "t", CreatedAt: sampleTime, UpdatedAt: sampleTime, Messages: 2, RunState: "running",
			Workdir: "/src", WaitingFor: "approval", LastStopReason: "error", Unread: true,
			Model: ModelInfo{Provider: "offline", Name: "script"}, LastText: "done",
			Working: &Working{RunID: "run-1", StartedAt: sampleTime, ToolName: "bash", Since: sampleTime},
		}}},
		Withdrawn{Command: "withdraw", InputID: "in-1", Kind: "steer", Text: "no", SessionID: "ses-1"},
		TitleAccepted{Command: "set_title", Title: "a title"},
		MarkedRead{Command: "mark_read"},
		ApproveAccepted{Command: "approve", ApprovalID: "apr-1-ses-1", Outcome: "allowed"},
		ApprovalModeAccepted{Command: "set_approval_mode", Mode: "deny"},
		ShutdownAccepted{Command: "shutdown", PID: 7, DrainMS: 10000},
		SessionDeleted{SessionID: "ses-1"},
		Expanded{Text: "Review main.go.", Attachments: []AttachmentParams{{Data: "aGk=", MediaType: "image/png", Name: "a"}}},
		SearchResults{},
		SearchResults{Matches: []SearchMatch{{
			SessionID: "ses-1", Title: "t", EntryID: "cmp-1", Role: "compaction",
			Snippet: "a lantern", CreatedAt: sampleTime,
		}}, Truncated: true},
		Tools{},
		Tools{Tools: []ToolInfo{{
			Name: "git.log", Description: "d", Protocol: "narratoria", Active: true,
			Problem: "git is missing", Params: jsontext.Value(`{"type":"object"}`), ReadOnly: true,
		}}, Servers: []ServerInfo{
			{Name: "git", State: "failed", Message: "exit status 1", Tools: 3},
			{Name: "theirs", State: "untrusted", Workdir: "/src"},
		}},
		ToolsReloaded{Added: []string{"a"}, Errors: []string{"tools.d/b.json: name: missing"}},
		Models{},
		Models{Models: []ListedModel{
			{
				Model: "openai/m", Provider: "openai", Name: "m", BaseURL: "http://127.0.0.1:11434/v1", Source: "config",
				Default: true, Reachable: ptr(false), Problem: "no answer",
			},
			{Model: "offline", Provider: "offline", Name: "script", Source: "built-in"},
		}, Truncated: true},
		System{SessionID: "ses-1"},
		System{
			SessionID: "ses-1", Text: "You are noused.", Files: []string{"/src/AGENTS.md"},
			LeftOut: []string{"/src/.agents/skills/x/SKILL.md: has no description"},
		},
		Skills{},
		Agents{},
		Agents{Agents: []AgentInfo{{
			Name: "codex", Command: []string{"codex-acp"}, Found: true, Path: "/usr/bin/codex-acp", SignedIn: new(bool),
		}}},
		Skills{Skills: []Skill{{
			Name: "review", Description: "Read a change.", Path: "/src/.agents/skills/review/SKILL.md",
			Text: "Look at the tests first.",
		}}, LeftOut: []string{"a: has no name"}},
		UsageReport{By: "day"},
		UsageReport{
			By: "session", Rows: []UsageRow{{
				SessionID: "ses-1", Title: "a title", Workdir: "/src",
				UsageSum: UsageSum{InputTokens: 3, OutputTokens: 2, CachedTokens: 1, Cost: &Cost{0.5, "USD"}},
			}}, Truncated: true,
			LeftOut: []string{"session ses-2: it cannot be read"},
		},
		Subscribed{Epoch: "e1", NextSeq: 18, Gap: true},
	}
}

func sampleApproval(session, run string) Approval {
	return Approval{
		ApprovalID: "apr-1-ses-1", SessionID: session, RunID: run, Kind: "tool", ToolCallID: "call-1", ToolName: "bash",
		Arguments: jsontext.Value(`{"command":"git push","outside_sandbox":true,"reason":"needs the network"}`),
		Reason:    "needs the network",
		Rule:      "ask: bash outside the sandbox", Workdir: "/src", CreatedAt: sampleTime, Diff: "-a\n+b\n",
		Options: []ApprovalOption{
			{ID: "once", Decision: "allow"},
			{ID: "session", Decision: "allow", Pattern: "bash: git push …"},
			{ID: "deny", Decision: "deny"},
		},
	}
}

func sampleForm() *Approval {
	return &Approval{
		ApprovalID: "apr-2-ses-1", Kind: "question", ToolCallID: "call-1", ToolName: "hotel.book",
		Arguments: jsontext.Value(`{}`), Reason: "How many?",
		Rule: "ask: a form of hotel.book", Workdir: "/src", CreatedAt: sampleTime,
		Schema: jsontext.Value(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		Options: []ApprovalOption{
			{ID: OptionAccept, Decision: "allow"},
			{ID: OptionDecline, Decision: "deny"},
			{ID: OptionCancel, Decision: "deny"},
		},
	}
}

func sampleEvents() []Event {
	run := Ref{RunID: "run-1", SessionID: "ses-1"}
	turn := Ref{RunID: "run-1", SessionID: "ses-1", TurnID: "1"}
	usage := Usage{InputTokens: 1, OutputTokens: 2, CachedTokens: 3}
	return []Event{
		AgentStart{Ref: run},
		AgentStart{Ref: run, As: "plan"},
		AgentEnd{Ref: run, StopReason: "completed", Turns: 1, Usage: usage},
		AgentEnd{
			Ref: run, StopReason: "error", Turns: 1, Error: &RunError{Code: "provider_error", Message: "it broke"},
			Discarded: []DiscardedInput{{InputID: "in-2", Kind: "steer", Text: "x"}},
		},
		TurnStart{Ref: turn, Kind: "prompt", InputIDs: []string{"in-1"}},
		TurnEnd{Ref: turn, StopReason: "end"},
		MessageStart{Ref: turn, MessageID: "msg-1", Role: "user", Text: "hi"},
		MessageStart{
			Ref: turn, MessageID: "msg-3", Role: "user", Text: "look",
			Attachments: []Attachment{
				{MediaType: "image/png", Name: "a.png", Size: 70, Path: "/state/a.png"},
				{MediaType: "image/gif", Size: 7, Path: "/state/b.gif"},
			},
		},
		MessageStart{Ref: turn, MessageID: "msg-2", Role: "assistant"},
		MessageUpdate{Ref: turn, MessageID: "msg-2", Delta: "hel"},
		MessageUpdate{Ref: turn, MessageID: "msg-2", ThinkingDelta: "hm"},
		MessageEnd{Ref: turn, MessageID: "msg-1", Role: "user", Text: "hi"},
		MessageEnd{
			Ref: turn, MessageID: "msg-2", Role: "assistant", Text: "hello", StopReason: "tool_calls", Usage: &usage,
			ToolCalls: []ToolCall{{ID: "call-1", Name: "git.log", Arguments: jsontext.Value(`{}`)}},
		},
		ToolStart{Ref: turn, ToolCallID: "call-1", ToolName: "git.log", Arguments: jsontext.Value(`{}`)},
		ToolUpdate{
			Ref: turn, ToolCallID: "call-1", ToolName: "git.log", Delta: "reading",
			Update: jsontext.Value(`{"type":"log"}`),
		},
		ToolEnd{
			Ref: turn, ToolCallID: "call-1", ToolName: "git.log", OK: true, Result: "ok",
			Outputs: map[string]string{"a": "b"}, Value: jsontext.Value(`null`), DurationMS: 3,
			Attachments: []Attachment{{MediaType: "image/png", Name: "a.png", Size: 70, Path: "/state/a.png"}},
		},
		ToolEnd{
			Ref: turn, ToolCallID: "call-1", ToolName: "git.log", Result: "skipped", Skipped: true,
			Error: &ToolError{Code: "aborted", Message: "m", Details: jsontext.Value(`{}`)},
		},
		Status{Ref: run, Message: "queued", Code: "steer_queued", InputID: "in-2", PendingCounts: &PendingCounts{Steer: 1}},
		Status{Message: "reloaded", Code: "reloaded"},
		Status{
			Ref: turn, Message: "bash wants to run outside the sandbox", Code: StatusApprovalRequested,
			Approval: ptr(sampleApproval("", "")),
		},
		Status{Ref: turn, Message: "hotel.book asks: How many?", Code: StatusApprovalRequested, Approval: sampleForm()},
		Status{
			Ref: turn, Message: "withdrawn", Code: StatusApprovalResolved, ApprovalID: "apr-2-ses-1", Outcome: "withdrawn",
			By: ByWord(ByCall),
		},
		Status{
			Ref: turn, Message: "allowed", Code: StatusApprovalResolved, ApprovalID: "apr-1-ses-1", Outcome: "allowed",
			Option: "once", By: ByProcess(7, "nous"),
		},
		Status{
			Ref: turn, Message: "withdrawn", Code: StatusApprovalResolved, ApprovalID: "apr-1-ses-1", Outcome: "withdrawn",
			By: ByWord(ByAbort),
		},
		Warning{Message: "events were dropped", Code: "events_dropped", FromSeq: 3, ToSeq: 9},
		Warning{Ref: turn, Message: "bad patch", Code: "invalid_tool_event", ToolCallID: "call-1"},
		Warning{Ref: turn, Message: "attempt 2 of 5 in 1.5s", Code: "provider_retry", Attempt: 2, DelayMS: 1500},
		ErrorEvent{Message: "the session's file cannot be written", Code: "session_error", Cause: "no space left"},
	}
}

func TestSamplesCoverTheWire(t *testing.T) {
	have := map[reflect.Type]bool{}
	for _, p := range sampleParams() {
		have[reflect.TypeOf(p)] = true
	}
	for _, r := range sampleReplies() {
		have[reflect.TypeOf(r)] = true
	}
	for _, ev := range sampleEvents() {
		have[reflect.TypeOf(ev)] = true
	}
	for _, row := range Table() {
		if !have[reflect.TypeOf(row.Params)] {
			t.Errorf("no sample of %s's payload", row.Name)
		}
		for _, r := range row.Replies {
			if !have[reflect.TypeOf(r)] {
				t.Errorf("no sample of %s's reply %T", row.Name, r)
			}
		}
	}
	for _, ev := range EventTypes() {
		if !have[reflect.TypeOf(ev)] {
			t.Errorf("no sample of the event %s", ev.Type())
		}
	}
}
