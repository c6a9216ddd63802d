// Package actions is what a person can do, each thing once: a command of nous and a slash
// command of the screen that mean the same call the same function here. Who calls says how
// commands are sent, and shows what came of it.
//
// Its functions may be called from any goroutine, and block until the daemon has answered or
// their context ends. Errors are those of client.Call, unless a comment says more.
//
// It refuses to print, to ask a person, and to read a command line: what was typed wrongly is
// for its caller to say.
package actions

import (
	"context"
	"slices"
	"strings"

	"noused/internal/client"
	"noused/internal/protocol"
)

// ApprovalModes say what happens to what the rules ask about.
var ApprovalModes = []string{
	string(protocol.ApprovalsAsk), string(protocol.ApprovalsAuto), string(protocol.ApprovalsDeny),
}

// SetApprovalMode has a session's approvals asked for, allowed or denied.
func SetApprovalMode(ctx context.Context, c client.Sender, scope protocol.Scope, mode string) (
	protocol.ApprovalModeAccepted, error,
) {
	p := protocol.SetApprovalModeParams{Scope: scope, Mode: protocol.ApprovalMode(mode)}
	return client.Call(ctx, c, protocol.SetApprovalMode, p)
}

// Answer answers an approval. The first answer counts, wherever it comes from.
func Answer(ctx context.Context, c client.Sender, p protocol.ApproveParams) (protocol.ApproveAccepted, error) {
	return client.Call(ctx, c, protocol.Approve, p)
}

// SetTools chooses the tools that a session offers to its model, none where there are no names.
func SetTools(ctx context.Context, c client.Sender, scope protocol.Scope, names []string) (protocol.ToolsAccepted,
	error,
) {
	p := protocol.SetActiveToolsParams{Scope: scope, Tools: append([]string{}, names...)}
	return client.Call(ctx, c, protocol.SetActiveTools, p)
}

// ReloadTools has the daemon read the descriptors of tools again.
func ReloadTools(ctx context.Context, c client.Sender) (protocol.ToolsReloaded, error) {
	return client.Call(ctx, c, protocol.ReloadTools, protocol.ReloadToolsParams{})
}

// Queue is one of the two queues of texts that wait for a run.
type Queue string

// The queues.
const (
	Steering Queue = "steering"
	FollowUp Queue = "follow-up"
)

// QueueNamed is the queue that people, and the wire, call so.
func QueueNamed(word string) (q Queue, known bool) {
	switch word {
	case "steering", "steer":
		return Steering, true
	case "follow-up", "follow_up":
		return FollowUp, true
	}
	return "", false
}

// ModeNamed is the mode of delivery that people call so.
func ModeNamed(word string) (m protocol.Mode, known bool) {
	if word == "one" {
		word = string(protocol.ModeOneAtATime)
	}
	m = protocol.Mode(word)
	return m, m == protocol.ModeOneAtATime || m == protocol.ModeAll
}

// SetMode chooses whether the texts of a queue are delivered one at a time or all at once.
func SetMode(ctx context.Context, c client.Sender, scope protocol.Scope, queue Queue, mode protocol.Mode) (
	protocol.ModeAccepted, error,
) {
	def := protocol.SetSteeringMode
	if queue == FollowUp {
		def = protocol.SetFollowUpMode
	}
	return client.Call(ctx, c, def, protocol.SetModeParams{Scope: scope, Mode: mode})
}

// SetModel chooses the model that answers in a session, from its next call on.
func SetModel(ctx context.Context, c client.Sender, p protocol.SetModelParams) (protocol.ModelAccepted, error) {
	return client.Call(ctx, c, protocol.SetModel, p)
}

// Compact summarises the older part of a session.
func Compact(ctx context.Context, c client.Sender, scope protocol.Scope, instruction string) (protocol.Compaction,
	error,
) {
	p := protocol.CompactSessionParams{Scope: scope, Instruction: instruction}
	return client.Call(ctx, c, protocol.CompactSession, p)
}

// Switch makes a session the daemon's active one.
func Switch(ctx context.Context, c client.Sender, session string) (protocol.Session, error) {
	return client.Call(ctx, c, protocol.SwitchSession, protocol.SwitchSessionParams{SessionID: session})
}

// Branch copies a session up to an entry, "" its leaf, into a new one.
func Branch(ctx context.Context, c client.Sender, session, entry string, activate bool) (protocol.Branch, error) {
	p := protocol.BranchSessionParams{SessionID: session, LeafID: entry, Activate: &activate}
	return client.Call(ctx, c, protocol.BranchSession, p)
}

// Rename gives a session another title.
func Rename(ctx context.Context, c client.Sender, scope protocol.Scope, title string) (protocol.TitleAccepted, error) {
	return client.Call(ctx, c, protocol.SetTitle, protocol.SetTitleParams{Scope: scope, Title: title})
}

// Delete deletes a session for good. One that runs is refused.
func Delete(ctx context.Context, c client.Sender, session string, children bool) (protocol.SessionDeleted, error) {
	return client.Call(ctx, c, protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: session, Children: children})
}

// SetLeaf goes back to an earlier message: the next prompt continues from there.
func SetLeaf(ctx context.Context, c client.Sender, scope protocol.Scope, entry string) (protocol.Leaf, error) {
	return client.Call(ctx, c, protocol.SetLeaf, protocol.SetLeafParams{Scope: scope, LeafID: entry})
}

// ReadTree reads all branches of a session.
func ReadTree(ctx context.Context, c client.Sender, scope protocol.Scope) (protocol.Tree, error) {
	return client.Call(ctx, c, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
}

// PendingNamed are the approvals of a list whose id begins so; one whose whole id it is is meant
// alone.
func PendingNamed(list []protocol.Approval, id string) (found []protocol.Approval) {
	for _, one := range list {
		if one.ApprovalID == id {
			return []protocol.Approval{one}
		}
		if strings.HasPrefix(one.ApprovalID, id) {
			found = append(found, one)
		}
	}
	return slices.Clip(found)
}

// Said are the messages of the user on the way to the leaf of a tree, the newest first.
func Said(tree protocol.Tree) (said []protocol.Node) {
	nodes := make(map[string]protocol.Node, len(tree.Nodes))
	for _, n := range tree.Nodes {
		nodes[n.ID] = n
	}
	at := tree.LeafID
	for range tree.Nodes { // no longer, whatever the daemon says
		n, ok := nodes[at]
		if !ok {
			break
		}
		if n.Role == "user" {
			said = append(said, n)
		}
		at = n.ParentID
	}
	return said
}
