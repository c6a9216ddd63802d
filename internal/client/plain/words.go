package plain

import "noused/internal/protocol"

// KindWord spells a wire word as the command line does.
func KindWord(kind protocol.Kind) string {
	if kind == protocol.KindFollowUp {
		return "follow-up"
	}
	return string(kind)
}
