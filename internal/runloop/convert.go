package runloop

import (
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

func discarded(inputs []session.Input) []protocol.DiscardedInput {
	var out []protocol.DiscardedInput
	for _, in := range inputs {
		out = append(out, protocol.DiscardedInput{InputID: in.InputID, Kind: in.Kind, Text: in.Text})
	}
	return out
}

func wireCalls(calls []model.ToolCall) []protocol.ToolCall {
	out := make([]protocol.ToolCall, len(calls))
	for i, c := range calls {
		out[i] = protocol.ToolCall{ID: c.ID, Name: c.Name, Arguments: rawObject(c.Arguments)}
	}
	return out
}

func wireToolError(e *model.ToolError) *protocol.ToolError {
	if e == nil {
		return nil
	}
	return &protocol.ToolError{Code: e.Code, Message: e.Message, Details: rawValue(e.Details)}
}

// pendingBytes is the size of the texts that wait.
func pendingBytes(inputs []session.Input) int {
	n := 0
	for _, in := range inputs {
		n += len(in.Text)
	}
	return n
}

// endOf is how a run ended. Said is the entry that has the output, nil where that is
// known.
func endOf(f session.RunEnded, output string, said *session.Entry) *runEnd {
	end := &runEnd{runID: f.RunID, output: output, said: said}
	if f.StopReason == protocol.StopError {
		end.err = protocol.Errorf(protocol.ProviderError, "%s", f.Error)
		if f.Code != protocol.ProviderError {
			end.err.Message = string(f.Code) + ": " + f.Error
		}
	}
	return end
}

func wireRunError(why *protocol.Error) *protocol.RunError {
	if why == nil {
		return nil
	}
	return &protocol.RunError{Code: why.Code, Message: why.Message}
}
