package protocol

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the attachments of one text: how many, and how long each one's name
// may be, in bytes.
const (
	maxAttachments    = 16
	maxAttachmentName = 255
)

// maxIdempotencyKey bounds what a session has to remember, in bytes.
const maxIdempotencyKey = 256

// maxServers bounds the MCP servers of a session.
const maxServers = 64

// maxOutputID is the longest output_id, in bytes.
const maxOutputID = 100

// serversFit checks what is wrong with servers whatever a tool may be called.
func serversFit(servers []MCPServer) *Error {
	if len(servers) > maxServers {
		return badField("mcp_servers", "want at most %d", maxServers)
	}
	for i, s := range servers {
		where := "mcp_servers." + strconv.Itoa(i)
		switch {
		case s.Name == "":
			return badField(where+".name", "want a non-empty string")
		case slices.ContainsFunc(servers[:i], func(o MCPServer) bool { return o.Name == s.Name }):
			return badField(where+".name", "%.80q is there twice", s.Name)
		case (s.Command == "") == (s.URL == ""):
			return badField(where, "want either command or url")
		}
	}
	return nil
}

func (PingParams) validate() *Error { return nil }
func (p PromptParams) validate() *Error {
	return firstOf(notEmpty("text", p.Text), oneOf("streaming_behavior", p.StreamingBehavior, "", KindSteer, KindFollowUp),
		oneOf("approvals", p.Approvals, "", ApprovalsAsk, ApprovalsDeny), keyFits(p.IdempotencyKey),
		attachmentsFit(p.Attachments), p.termsFit())
}

// Bounds of what a prompt asks of its run.
const (
	// MaxOutputSchema bounds the schema of an answer, in bytes.
	MaxOutputSchema = 256 << 10
	maxCost         = 1e6
	maxModelCalls   = 1_000_000
)

func (p PromptParams) termsFit() *Error {
	switch {
	case len(p.OutputSchema) > MaxOutputSchema:
		return badField("output_schema", "want at most %d KiB", MaxOutputSchema>>10)
	case !(p.MaxCost >= 0 && p.MaxCost <= maxCost):
		return badField("max_cost", "want US dollars, from 0 to %d", int64(maxCost))
	case p.MaxModelCalls < 0 || p.MaxModelCalls > maxModelCalls:
		return badField("max_model_calls", "want a number from 1 to %d", maxModelCalls)
	}
	return nil
}

func (p SteerParams) validate() *Error {
	return firstOf(notEmpty("text", p.Text), oneOf("if_idle", p.IfIdle, "", KindPrompt), keyFits(p.IdempotencyKey),
		attachmentsFit(p.Attachments))
}
func (p FollowUpParams) validate() *Error { return SteerParams(p).validate() }
func (AbortParams) validate() *Error      { return nil }
func (p SetActiveToolsParams) validate() *Error {
	if p.Tools == nil {
		return badField("tools", "want an array of strings; [] means none")
	}
	if i := slices.Index(p.Tools, ""); i >= 0 {
		return badField("tools."+strconv.Itoa(i), "want a non-empty string")
	}
	return nil
}

func (p SetModeParams) validate() *Error {
	return oneOf("mode", p.Mode, ModeOneAtATime, ModeAll)
}
func (p GetStateParams) validate() *Error    { return daemonAlone(p.Daemon, p.Scope) }
func (p GetMessagesParams) validate() *Error { return limitFits(p.Limit) }
func (p NewSessionParams) validate() *Error {
	return firstOf(absolute(p.Workdir), serversFit(p.MCPServers))
}
func (p SwitchSessionParams) validate() *Error { return notEmpty("session_id", p.SessionID) }
func (p BranchSessionParams) validate() *Error {
	return firstOf(notEmpty("session_id", p.Parent()), absolute(p.Workdir))
}

func (p ExtensionCommandParams) validate() *Error {
	if k := p.Payload.Kind(); k != jsontext.KindInvalid && k != jsontext.KindNull && k != jsontext.KindBeginObject {
		return badField("payload", "want an object, the operation's arguments")
	}
	return firstOf(shortText("output_id", p.OutputID), notEmpty("name", p.Name),
		oneOf("phase", p.Phase, "", "setup", "verify", "cleanup"))
}

func (p CallToolParams) validate() *Error {
	if k := p.Arguments.Kind(); k != jsontext.KindInvalid && k != jsontext.KindNull && k != jsontext.KindBeginObject {
		return badField("arguments", "want an object")
	}
	return firstOf(notEmpty("name", p.Name), shortText("client", p.Client), shortText("output_id", p.OutputID),
		tokenFits(p.Token, p.Scope))
}

func shortText(field, text string) *Error {
	if len(text) > maxOutputID {
		return badField(field, "is %d bytes long, at most %d are allowed", len(text), maxOutputID)
	}
	return nil
}

// tokenFits refuses a token that does not say what it is for.
func tokenFits(token string, of Scope) *Error {
	if token != "" && of.SessionID == "" {
		return badField("session_id", "a token is for one session: name it")
	}
	return nil
}
func (CompactSessionParams) validate() *Error { return nil }
func (p SetLeafParams) validate() *Error      { return notEmpty("leaf_id", p.LeafID) }
func (GetTreeParams) validate() *Error        { return nil }
func (p ListSessionsParams) validate() *Error {
	if e := limitFits(p.Limit); e != nil {
		return e
	}
	if p.Before != "" && !strings.HasPrefix(p.Before, "ses-") {
		return badField("before", "%.80q is no session id", p.Before)
	}
	return absolute(p.Workdir)
}
func (p DeleteSessionParams) validate() *Error { return notEmpty("session_id", p.SessionID) }
func (p SearchSessionsParams) validate() *Error {
	return firstOf(notEmpty("text", p.Text), limitFits(p.Limit))
}

func (p ListToolsParams) validate() *Error {
	return firstOf(daemonAlone(p.Daemon, p.Scope), tokenFits(p.Token, p.Scope))
}

func daemonAlone(daemon bool, of Scope) *Error {
	if daemon && of.SessionID != "" {
		return badField("daemon", "not with session_id: only the daemon is reported")
	}
	return nil
}

func (p SetModelParams) validate() *Error {
	if n := p.ContextWindow; n != 0 && (n < MinContextWindow || n > MaxContextWindow) {
		return badField("context_window", "want %d to %d tokens, got %d", MinContextWindow, MaxContextWindow, n)
	}
	if p.Effort != "" && !slices.Contains(Efforts, p.Effort) {
		return badField("effort", "there is no level %.40q, only %s", p.Effort, strings.Join(Efforts, ", "))
	}
	return notEmpty("model", p.Model)
}

func (p SetAgentParams) validate() *Error { return notEmpty("agent", p.Agent) }

func (p SetAgentOptionParams) validate() *Error {
	for _, text := range []string{p.ID, p.Value} {
		if len(text) > maxOptionText {
			return badField("value", "want an id and a value of at most %d bytes", maxOptionText)
		}
	}
	return firstOf(notEmpty("id", p.ID), notEmpty("value", p.Value))
}

// maxOptionText bounds an option's id and its value, in bytes.
const maxOptionText = 1 << 10

// Efforts are the levels of how hard a model is to think, the least first.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func (p WithdrawParams) validate() *Error { return notEmpty("input_id", p.InputID) }

// maxTitle bounds a title that somebody gives, in characters.
const maxTitle = 200

func (p SetTitleParams) validate() *Error {
	switch n := utf8.RuneCountInString(p.Title); {
	case strings.TrimSpace(p.Title) == "":
		return badField("title", "want some text")
	case n > maxTitle:
		return badField("title", "has %d characters, at most %d are allowed", n, maxTitle)
	case strings.ContainsFunc(p.Title, unicode.IsControl):
		return badField("title", "%.80q has a control character", p.Title)
	}
	return nil
}
func (MarkReadParams) validate() *Error { return nil }

func (ReloadToolsParams) validate() *Error { return nil }
func (ShutdownParams) validate() *Error    { return nil }
func (ListModelsParams) validate() *Error  { return nil }
func (GetSystemParams) validate() *Error   { return nil }
func (ListAgentsParams) validate() *Error  { return nil }

func (p ListSkillsParams) validate() *Error {
	if p.SessionID != "" && p.Workdir != "" {
		return badField("workdir", "a session has its own folder")
	}
	return absolute(p.Workdir)
}

// Bounds of a context window, in tokens.
const (
	MinContextWindow = 1000
	MaxContextWindow = 10_000_000
)

func firstOf(errs ...*Error) *Error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

func notEmpty(field, value string) *Error {
	if value == "" {
		return badField(field, "want a non-empty string")
	}
	return nil
}

// absolute is for a path that may be left out. Whether there is such a folder, the
// session's own handler finds out.
func absolute(workdir string) *Error {
	if workdir != "" && !path.IsAbs(workdir) {
		return badField("workdir", "%.300q is no absolute path", workdir)
	}
	return nil
}

func keyFits(key string) *Error {
	if len(key) > maxIdempotencyKey {
		return badField("idempotency_key", "is %d bytes long, at most %d are kept", len(key), maxIdempotencyKey)
	}
	return nil
}

// BadAttachment is the invalid_payload error of the attachment with that index;
// field is one of its own, or "".
func BadAttachment(index int, field, format string, args ...any) *Error {
	name := "attachments[" + strconv.Itoa(index) + "]"
	if field != "" {
		name += "." + field
	}
	return badField(name, format, args...)
}

// attachmentsFit checks what can be told without looking at the images.
func attachmentsFit(list []AttachmentParams) *Error {
	if len(list) > maxAttachments {
		return badField("attachments", "has %d elements, at most %d may go with one text", len(list), maxAttachments)
	}
	for i, a := range list {
		switch {
		case a.Path == "" && a.Data == "":
			return BadAttachment(i, "", "want a path or data, got neither")
		case a.Path != "" && a.Data != "":
			return BadAttachment(i, "", "want a path or data, got both")
		case len(a.Name) > maxAttachmentName:
			return BadAttachment(i, "name", "is %d bytes long, at most %d are kept", len(a.Name), maxAttachmentName)
		}
		if e := oneOf("", a.MediaType, "", "image/png", "image/jpeg", "image/gif", "image/webp"); e != nil {
			return BadAttachment(i, "media_type", "%s", strings.TrimPrefix(e.Message, ": "))
		}
	}
	return nil
}

func limitFits(limit *int) *Error {
	if limit != nil && (*limit < 1 || *limit > 1000) {
		return badField("limit", "want 1 to 1000, got %d", *limit)
	}
	return nil
}

func oneOf[S ~string](field string, value S, allowed ...S) *Error {
	quoted := ""
	for _, a := range allowed {
		if value == a {
			return nil
		}
		if a != "" {
			quoted += ` "` + string(a) + `"`
		}
	}
	return badField(field, "got %.40q, want one of%s", value, quoted)
}

func (p ExpandParams) validate() *Error { return notEmpty("text", p.Text) }
