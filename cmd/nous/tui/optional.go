package tui

import (
	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
)

// optional is what a newer core says in get_state and this package uses where
// it is there. It is read by its names on the wire.
type optional struct {
	Workdir string `json:"workdir"`
	Context struct {
		Tokens int64 `json:"tokens"`
		Window int64 `json:"window"`
	} `json:"context"`
}

func optionalOf(s protocol.State) optional {
	s.SessionState, s.Partial, s.Assets = nil, nil, nil
	var o optional
	text, err := json.Marshal(s)
	if err != nil || json.Unmarshal(text, &o) != nil {
		return optional{}
	}
	return o
}
