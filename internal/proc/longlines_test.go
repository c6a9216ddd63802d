package proc

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/protocol"
)

// speaker is a child whose lines are of at most 1 MiB.
type speaker struct {
	room *lineRoom
	in   *protocol.LineReader
	out  *io.PipeWriter
}

func speak(all *longLines) *speaker {
	r, w := io.Pipe()
	s := &speaker{out: w}
	s.room = all.room(1<<20, func() { _ = w.Close() })
	s.in = protocol.NewLineReader(r, 1<<20).Within(s.room)
	return s
}

func (s *speaker) next() ([]byte, error) { return s.room.next(s.in) }

func TestLongLinesWaitForEachOtherAndAllEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLongLines()
		line := append(bytes.Repeat([]byte("x"), 1<<20), '\n')
		var work sync.WaitGroup
		for range 40 {
			s := speak(all)
			work.Go(func() {
				for i := range 3 { // all grow side by side, and none is whole for a while
					for part := line; len(part) > 0; part = part[min(len(part), 100<<10):] {
						_, _ = s.out.Write(part[:min(len(part), 100<<10)])
						time.Sleep(time.Millisecond)
					}
					_, _ = io.WriteString(s.out, []string{"short\n", "", "\n"}[i])
				}
				_ = s.out.Close()
			})
			work.Go(func() {
				for _, want := range []int{1 << 20, 5, 1 << 20, 1 << 20} {
					if got, err := s.next(); err != nil || len(got) != want {
						t.Errorf("got %d bytes, %v, want %d", len(got), err, want)
					}
					all.mu.Lock()
					if n := len(all.since); n > longRoom>>20 {
						t.Errorf("%d lines are in the making at once, want %d", n, longRoom>>20)
					}
					all.mu.Unlock()
				}
				if _, err := s.next(); !errors.Is(err, io.EOF) || s.room.taken {
					t.Errorf("got %v at the end, room taken: %t", err, s.room.taken)
				}
			})
		}
		work.Wait()
	})
}

func TestALongLineThatDoesNotEndMakesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, half := newLongLines(), bytes.Repeat([]byte("x"), 500<<10)
		ends := make(chan error, longRoom>>20)
		for range longRoom >> 20 {
			s := speak(all)
			go func() { _, _ = s.out.Write(half) }()
			go func() {
				_, err := s.next()
				s.in.Close()
				ends <- err
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		s := speak(all)
		go func() { _, _ = s.out.Write(append(half, '\n')) }()
		if line, err := s.next(); err != nil || len(line) != len(half) {
			t.Fatalf("got %d bytes, %v", len(line), err)
		}
		if err := <-ends; !errors.Is(err, ErrStalled) {
			t.Errorf("got %v for the oldest, want %v", err, ErrStalled)
		}
		synctest.Wait()
		if len(ends) > 0 {
			t.Errorf("one more fails: %v", <-ends)
		}
		all.mu.Lock()
		defer all.mu.Unlock()
		for r := range all.since {
			r.giveUp()
		}
	})
}

func TestALineThatNobodyWantsAnyMoreStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLongLines()
		if !all.free.TryAcquire(longRoom) {
			t.Fatal("no room")
		}
		s := speak(all)
		go func() {
			_, _ = s.out.Write(bytes.Repeat([]byte("x"), 500<<10))
			_ = s.out.Close()
		}()
		time.AfterFunc(time.Minute, s.room.stop)
		var long *protocol.LineTooLongError
		if _, err := s.next(); !errors.As(err, &long) || !long.NoRoom {
			t.Errorf("got %v", err)
		}
	})
}

// What comes over the network waits and gives way as children's lines do.
func TestWhatIsHeldSharesTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{spawner: &spawner{lines: newLongLines()}}
		held := func() (*Held, *io.PipeWriter) {
			in, out := io.Pipe()
			return s.Hold(in, 16<<20, func() { _ = in.Close() }), out
		}
		stuck, endless := held()
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stuck)
			stuck.Close()
			ended <- err
		}()
		_, _ = endless.Write(make([]byte, 1<<20))
		waits, out := held()
		go func() {
			_, _ = out.Write(make([]byte, 1<<20))
			_ = out.Close()
		}()
		begun := time.Now()
		if text, err := io.ReadAll(waits); err != nil || len(text) != 1<<20 || time.Since(begun) < linePatience {
			t.Errorf("got %d bytes, %v after %v", len(text), err, time.Since(begun))
		}
		if err := <-ended; !errors.Is(err, ErrStalled) {
			t.Errorf("got %v, want %v", err, ErrStalled)
		}
		waits.Drop()
		if !s.spawner.lines.free.TryAcquire(longRoom) {
			t.Error("there is room that nobody gave back")
		}
		waits.Close()
	})
}
