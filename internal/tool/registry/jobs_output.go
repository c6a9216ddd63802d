package registry

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// maxJobOutput is how much of a job's output is kept, in bytes. Of more, the
// beginning and the last stay, of at least these lengths.
const maxJobOutput, jobHead, jobTail = 4 << 20, 1 << 20, 1 << 20

// jobOutput is the file of what a job prints.
type jobOutput struct {
	trimming *sync.Mutex

	mu     sync.Mutex
	file   *os.File
	length int64 // of the file
	size   int64 // printed
	err    error // why no more is kept
}

func (o *jobOutput) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size += int64(len(b))
	if o.err == nil && o.length+int64(len(b)) > maxJobOutput {
		o.err = o.trim(int64(len(b)))
	}
	if o.err == nil {
		_, o.err = o.file.WriteAt(b, o.length)
		o.length += int64(len(b))
	}
}

// trim leaves out what is between the beginning and the last of the file. coming
// is what will be written next.
func (o *jobOutput) trim(coming int64) error {
	o.trimming.Lock()
	defer o.trimming.Unlock()
	last := make([]byte, jobTail)
	if _, err := o.file.ReadAt(last, o.length-jobTail); err != nil {
		return err
	}
	note := fmt.Sprintf("\n[… %d bytes left out …]\n", o.size-coming-jobHead-jobTail)
	if err := o.file.Truncate(jobHead); err != nil {
		return err
	}
	if _, err := o.file.WriteAt(append([]byte(note), last...), jobHead); err != nil {
		return err
	}
	o.length = jobHead + int64(len(note)) + jobTail
	return nil
}

// last returns the last of the file, from the start of a line if one is near, and
// how much was printed in all.
func (o *jobOutput) last(most int) (text string, size int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(int64(most), o.length)
	buf := make([]byte, n)
	if _, err := o.file.ReadAt(buf, o.length-n); err != nil && n > 0 {
		return "", o.size, err
	}
	text = string(buf)
	if i := strings.IndexByte(text, '\n'); n < o.length && i >= 0 && i < len(text)/2 {
		text = text[i+1:]
	}
	return text, o.size, o.err
}

func (o *jobOutput) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.file.Close()
	if o.err == nil {
		o.err = os.ErrClosed
	}
}

func (o *jobOutput) remove() {
	o.close()
	_ = os.Remove(o.file.Name())
}
