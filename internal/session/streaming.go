package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/regular"
)

// What was announced of a message that has not ended is in a file of streaming/, and not
// in the journal, which will have the message as a whole: a delta is a few bytes, and a
// record of it would be 150. The files are used again and again, as making and removing one
// for each message would cost more than writing it.
const (
	streamingName = "streaming"
	maxFree       = 8 // files that are kept open for the next messages

	maxStreamHead = 4 << 10  // bytes of a file's first line
	maxAnnounced  = 32 << 20 // bytes of a file, which has no more: an answer ends at 4 MiB, and its text may be escaped
)

// Piece is something that was announced of a message: of its text, or of what the model
// thought before it.
type Piece struct {
	Text     string `json:"text,omitzero"`
	Thinking string `json:"thinking,omitzero"`
}

// streamHead is the first line of a file.
type streamHead struct {
	V         int    `json:"v"`
	SessionID string `json:"session_id"`
	MessageID string `json:"message_id"`
}

// streams are the files of a store. Any number of goroutines may use them.
type streams struct {
	dir  string
	disk Disk

	mu    sync.Mutex
	ready bool // left is known
	free  []*os.File
	left  map[streamHead]string // paths of what was not ended
}

// stream is what was announced of one message. It belongs to one goroutine.
type stream struct {
	of   *streams
	head streamHead
	f    *os.File
}

// scan finds out what a former daemon has left. s is locked.
func (s *streams) scan() error {
	if s.ready {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.left = map[streamHead]string{}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		head, err := headOfStream(path)
		switch {
		case errors.Is(err, errNoHead): // nothing was announced of it
			_ = os.Remove(path)
		case slices.ContainsFunc(passing, func(why error) bool { return errors.Is(err, why) }):
			return err
		case err != nil: // it is nothing of ours
		default:
			s.left[head] = path
		}
	}
	s.ready = true
	return nil
}

func headOfStream(path string) (head streamHead, err error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return head, err
	}
	defer func() { _ = f.Close() }()
	line, _, err := newLineReader(io.LimitReader(f, maxStreamHead)).next()
	if errors.Is(err, io.EOF) || err == nil && json.Unmarshal(line, &head) != nil {
		err = errNoHead
	}
	return head, err
}

var errNoHead = errors.New("nothing was announced")

// passing are errors after which a file may well be read another time.
var passing = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO}

// beginStream returns an empty file for a message.
func (s *streams) beginStream(head streamHead) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.scan(); err != nil {
		return nil, err
	}
	if n := len(s.free); n > 0 {
		f := s.free[n-1]
		s.free = s.free[:n-1]
		return &stream{s, head, f}, nil
	}
	path := filepath.Join(s.dir, head.MessageID+journalExt)
	f, err := s.disk.Create(path)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.Mkdir(s.dir, 0o700); err == nil {
			f, err = s.disk.Create(path)
		}
	}
	if err != nil {
		return nil, err
	}
	return &stream{s, head, f}, nil
}

// recover returns what was announced of a message that has not ended, and forgets what
// else there is of its session. Nothing was where the stream is nil.
func (s *streams) recover(sessionID, messageID string) (w *stream, said Piece, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if messageID == "" && !s.ready { // most sessions; forgotten when somebody looks
		return nil, said, nil
	}
	if err := s.scan(); err != nil {
		return nil, said, err
	}
	head := streamHead{recordVersion, sessionID, messageID}
	path := s.left[head]
	if path == "" {
		s.forgetLeft(sessionID)
		return nil, said, nil
	}
	f, err := regular.Open(path, os.O_RDWR|os.O_APPEND)
	if errors.Is(err, os.ErrNotExist) { // somebody has taken it away
		delete(s.left, head)
		return nil, said, nil
	}
	if err != nil {
		return nil, said, err
	}
	if said, err = readPieces(f); err != nil {
		_ = f.Close()
		return nil, said, err
	}
	delete(s.left, head)
	s.forgetLeft(sessionID)
	return &stream{s, head, f}, said, nil
}

// readPieces reads all behind the head as one piece. A torn line was not
// announced.
func readPieces(f *os.File) (Piece, error) {
	var text, thinking bytes.Buffer
	in := newLineReader(io.LimitReader(f, maxAnnounced))
	for n := 0; ; n++ {
		line, _, err := in.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errEndless):
			return Piece{text.String(), thinking.String()}, nil
		case errors.Is(err, errLong), errors.Is(err, errNul): // it was damaged
			continue
		case err != nil:
			return Piece{}, err
		}
		var p Piece
		if n > 0 && json.Unmarshal(line, &p) == nil {
			text.WriteString(p.Text)
			thinking.WriteString(p.Thinking)
		}
	}
}

// forget removes all files of a session.
func (s *streams) forget(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scan() == nil {
		s.forgetLeft(sessionID)
	}
}

func (s *streams) forgetLeft(sessionID string) {
	for head, path := range s.left {
		if head.SessionID == sessionID {
			_ = os.Remove(path)
			delete(s.left, head)
		}
	}
}

// close ends the use of all files. What is in them stays.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.free {
		_ = os.Remove(f.Name())
		_ = f.Close()
	}
	s.free = nil
}

// end empties the file for another message.
func (w *stream) end() {
	s := w.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < maxFree && s.disk.Truncate(w.f, 0) == nil {
		s.free = append(s.free, w.f)
		return
	}
	_ = os.Remove(w.f.Name())
	_ = w.f.Close()
}

// leave closes the file. Who opens the session next finds what is in it.
func (w *stream) leave() {
	s := w.of
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[w.head] = w.f.Name()
	_ = w.f.Close()
}

// Announced keeps what is about to be announced of the message that is being streamed: it
// survives when the daemon is killed. It is called when what was written to the journal has
// been synced, if it had to be: a message that has ended there needs nothing else. After an
// error the journal must be closed; what was written to it since the last time is taken
// back, as nobody will hear of it.
func (j *Journal) Announced(messageID string, pieces []Piece) error {
	var ended *stream
	if j.stream != nil && (j.ended || messageID != "" && j.stream.head.MessageID != messageID) {
		ended, j.stream = j.stream, nil
	}
	if err := j.keep(messageID, pieces); err != nil {
		if ended != nil {
			if j.stream != nil {
				j.stream.end()
			}
			j.stream = ended
		}
		if j.unheard {
			j.unfit = true
			j.mend(j.before, j.before)
		}
		return fmt.Errorf("keep what is announced: %w", err)
	}
	if ended != nil {
		ended.end()
	}
	j.ended, j.unheard = false, false
	return nil
}

func (j *Journal) keep(messageID string, pieces []Piece) error {
	if len(pieces) == 0 {
		return nil
	}
	out := j.buf[:0]
	if j.stream == nil {
		w, err := j.streams.beginStream(streamHead{recordVersion, j.state.ID, messageID})
		if err != nil {
			return err
		}
		j.stream = w
		out = fmt.Appendf(out, `{"v":%d,"session_id":"%s","message_id":"%s"}`+"\n", recordVersion, j.state.ID, messageID)
	}
	for _, p := range pieces {
		out = appendPiece(out, p)
	}
	if cap(out) <= 1<<20 {
		j.buf = out
	}
	_, err := j.disk.Write(j.stream.f, out)
	return err
}

// recoverStream has the session's run know what was announced of a message that has not
// ended.
func (j *Journal) recoverStream() error {
	open := ""
	if run := j.state.Run; run != nil {
		open = run.Open.ID
	}
	w, said, err := j.streams.recover(j.state.ID, open)
	if w != nil {
		j.stream, j.state.Run.Said = w, said
	}
	return err
}

func appendPiece(out []byte, p Piece) []byte {
	for _, part := range []struct{ key, text string }{{`{"text":`, p.Text}, {`{"thinking":`, p.Thinking}} {
		if part.text != "" {
			out = append(out, part.key...)
			out, _ = jsontext.AppendQuote(out, part.text) // what is no UTF-8 is mended
			out = append(out, "}\n"...)
		}
	}
	return out
}

// endsStream reports that the message that is being streamed is among the records.
func (j *Journal) endsStream(records []Record) bool {
	return j.stream != nil && slices.ContainsFunc(records, func(r Record) bool {
		m, ok := r.Fact.(MessageAdded)
		return ok && m.ID == j.stream.head.MessageID
	})
}
