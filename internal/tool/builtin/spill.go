package builtin

import "fmt"

// maxSpill is how many bytes of one command's output are kept.
const maxSpill = 16 << 20

// spill sends a command's output, up to maxSpill of it, to the daemon, which keeps it where it
// is more than a result shows: nothing in the sandbox can write where it is kept. Clients
// that speak only the standard protocol name no file, and then nothing is kept.
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
