package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/go-json-experiment/json"

	"noused/internal/regular"
)

// Unfinished calls found with each session whose journal ends inside a run, newest
// first. It reads the ends of the journals only: where that does not tell, sure is
// false, and the session's Summary does.
func (s *Store) Unfinished(ctx context.Context, found func(id string, sure bool)) error {
	ids, err := s.IDs()
	if err != nil {
		return err
	}
	buf := make([]byte, tailLength)
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if unfinished, known := unfinishedTail(s.path(id), buf); unfinished || !known {
			found(id, known)
		}
	}
	return nil
}

// unfinishedTail looks backwards for the last record of a run. What cannot be
// read has none.
func unfinishedTail(path string, buf []byte) (unfinished, known bool) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return false, true
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return false, true
	}
	// Most journals end in run_ended: a short look at the end tells.
	for _, length := range []int64{512, tailLength} {
		tail := buf[:min(length, info.Size())]
		if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
			return false, true
		}
		whole := int64(len(tail)) == info.Size()
		if unfinished, known := unfinishedLines(tail, whole); known {
			return unfinished, true
		}
	}
	return false, false // long records fill the tail
}

// waitsKey is in the record of a run's end after which a child in the background works on.
var waitsKey = []byte(`"waits":true`)

func unfinishedLines(tail []byte, whole bool) (unfinished, known bool) {
	rewound := false // by one that has ended
	end := bytes.LastIndexByte(tail, '\n')
	for end >= 0 {
		start := bytes.LastIndexByte(tail[:end], '\n') + 1
		if start == 0 && !whole {
			return false, false
		}
		var l recordLine // a message may be that of another session, from which this one was branched
		if json.Unmarshal(tail[start:end], &l) == nil {
			switch l.Type {
			case RunEnded{}.kind():
				return bytes.Contains(l.Data, waitsKey), true
			case Created{}.kind():
				return false, true
			case RewindEnded{}.kind():
				rewound = true
			case RewindBegun{}.kind():
				if !rewound {
					return true, true
				}
			case Input{}.kind(), RunStarted{}.kind(), TurnStarted{}.kind(), MessageStarted{}.kind(), ToolStarted{}.kind(),
				TurnEnded{}.kind(), Withdrawn{}.kind(), AbortRequested{}.kind(), RunParked{}.kind(), RunResumed{}.kind(),
				ApprovalAsked{}.kind(), ApprovalDecided{}.kind(), ChildStarted{}.kind():
				return true, true
			}
		}
		end = start - 1
	}
	return false, whole
}
