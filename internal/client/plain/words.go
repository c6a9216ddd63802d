package plain

import "noused/internal/protocol"

// KindWord spells a wire word as the command line does.
func KindWord(kind protocol.Kind) string {
	if kind == protocol.KindFollowUp {
		return "follow-up"
	}
	return string(kind)
}

// ErrorText is an error of a daemon's in a line.
func ErrorText[S ~string](code S, message, cause string) string {
	text := string(code) + ": " + message
	if cause != "" {
		text += " (" + cause + ")"
	}
	return text
}
