package builtin

import "fmt"

// maxSpill is how many bytes of one command's output are kept.
const maxSpill = 16 << 20

// spill has the daemon keep all of a command's output, where that is more than a result
// shows: nothing that runs in the sandbox can write where it is kept. A client that names
// no file for it, as one of the protocol does not, keeps nothing.
type spill struct {
	path string // "": nothing is kept
	send func(b []byte)
	size int // bytes sent
}

func (s *spill) write(b []byte) {
	if b = b[:min(len(b), maxSpill-s.size)]; len(b) == 0 || s.path == "" {
		return
	}
	s.send(b)
	s.size += len(b)
}

// note says where the output is, "" where nowhere.
func (s *spill) note(whole int) string {
	switch {
	case s.size == 0:
		return ""
	case s.size < whole:
		return fmt.Sprintf("; the first %d bytes are in %s", s.size, s.path)
	}
	return "; all of it is in " + s.path
}
