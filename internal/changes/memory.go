package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"noused/internal/budget"
	"noused/internal/format"
)

// memory is what a call about a session has of the memory for records. One goroutine has it.
type memory struct {
	part *budget.Part
	most int64
}

func newMemory(pool *budget.Pool, most int64) memory { return memory{pool.Begin(), most} }

// beside is for what is done at the same time.
func (m *memory) beside() memory { return memory{m.part.Beside(), m.most} }

// What is taken for each, in bytes, beside the text of its path.
const (
	listedSize  = 256 // a file that git names, and that a manifest is to have
	askedSize   = 256 // one of which git is asked whether its content is kept
	changedSize = 384 // a change
	shownSize   = 1024
)

// manifestTimes is how many times the length of a manifest's file two of them take.
const manifestTimes = 4

var errTaken = errors.New("the records of other sessions use all the memory that there is for them")

// take takes n bytes before they are there, until the session's call ends. It may block for others.
func (m *memory) take(ctx context.Context, n int) error {
	if int64(m.part.Size()+n) > m.most {
		return fmt.Errorf("it takes more than %s of memory: there are too many files, or too long ones",
			format.Size(m.most))
	}
	err := m.part.Grow(ctx, n)
	if errors.Is(err, budget.ErrTaken) {
		return errTaken
	}
	return err
}

// contentAt is what a regular file has, or where a link leads, and how it was.
func (m *memory) contentAt(ctx context.Context, fd int, name string, most int64) ([]byte, raw, error) {
	text := new(bytes.Buffer)
	r, err := readAt(fd, name, most, func(size int64) (io.Writer, error) {
		if more := int(size) - text.Cap(); more > 0 {
			if err := m.take(ctx, more); err != nil {
				return nil, err
			}
			text = bytes.NewBuffer(make([]byte, 0, int(size)+bytes.MinRead)) // to grow would take twice as much
		}
		text.Reset()
		return text, nil
	})
	return text.Bytes(), r, err
}

// give gives back what was taken, before the end.
func (m *memory) give(n int) { _ = m.part.Grow(context.Background(), -n) }
