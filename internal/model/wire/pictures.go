package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"sync"

	"noused/internal/model"
)

// Pictures are the attachments of one request. In the JSON that is made of it a mark
// stands for each, and the bytes take the marks' place while the request is sent: no
// request is in memory with its images. The zero value is ready to be used.
type Pictures struct {
	mark string // nobody can guess it, so no other text has it
	list []model.Attachment
}

// Base64 returns what stands for an attachment's content inside a JSON string: its
// mark, or where it is in memory anyway the base64.
func (p *Pictures) Base64(a model.Attachment) string {
	if a.Open == nil {
		return base64.StdEncoding.EncodeToString(a.Data)
	}
	if p.mark == "" {
		p.mark = rand.Text()
	}
	p.list = append(p.list, a)
	return p.mark + "-" + strconv.Itoa(len(p.list)-1) + ";"
}

// Body is a request as a struct that becomes a JSON object.
type Body interface {
	// Shown are its pictures.
	Shown() *Pictures
	// Forget has it keep no more than what a refusal may be about.
	Forget()
}

// body is what is sent: JSON and between its parts pictures. It may be read many
// times.
type body struct {
	parts  []piece
	length int64      // bytes of all
	aside  model.File // has what is long; nil for nothing
}

// maxInMemory is how long a request may be that lies in memory while it is sent, in
// bytes.
const maxInMemory = 256 << 10

// putAside has the texts lie in a file.
func (b *body) putAside(open func() (model.File, error)) error {
	f, err := open()
	if err != nil {
		return fmt.Errorf("the request cannot be put into a file: %w", err)
	}
	b.aside = f
	at := int64(0)
	for i := range b.parts {
		p := &b.parts[i]
		if p.text == nil {
			continue
		}
		if _, err := f.Write(p.text); err != nil {
			b.drop()
			return fmt.Errorf("the request cannot be put into a file: %w", err)
		}
		*p = piece{from: at, size: int64(len(p.text))}
		at += p.size
	}
	return nil
}

// drop removes its file. Nobody reads it any more, or fails.
func (b *body) drop() {
	if b.aside != nil {
		_ = b.aside.Close()
	}
}

// piece is a text, or where that is nil so much of the file that was put aside, or
// else a picture.
type piece struct {
	text       []byte
	from, size int64
	picture    model.Attachment
}

// fill makes a body of JSON, in which the pictures' marks stand.
func (p *Pictures) fill(text []byte) (*body, error) {
	b := &body{}
	add := func(part piece, length int) {
		b.parts, b.length = append(b.parts, part), b.length+int64(length)
	}
	for p != nil && p.mark != "" {
		before, after, found := bytes.Cut(text, []byte(p.mark+"-"))
		if !found {
			break
		}
		number, after, _ := bytes.Cut(after, []byte(";"))
		n, err := strconv.Atoi(string(number))
		if err != nil || n < 0 || n >= len(p.list) {
			return nil, fmt.Errorf("the mark of a picture cannot be read: %.20q", number)
		}
		add(piece{text: before}, len(before))
		add(piece{picture: p.list[n]}, base64.StdEncoding.EncodedLen(int(p.list[n].Size)))
		text = after
	}
	add(piece{text: text}, len(text))
	return b, nil
}

// open returns a reader of the whole body.
func (b *body) open() io.ReadCloser { return &bodyReader{left: b.parts, aside: b.aside} }

// rawChunk is how much of a picture is encoded at a time: whole groups of three
// bytes.
const rawChunk = 24 << 10

// bodyReader reads a body; it has one file open at a time. A transport may close it
// while it reads.
type bodyReader struct {
	mu   sync.Mutex
	left []piece
	text []byte // of what is being read

	aside    io.ReaderAt
	from, to int64 // of aside, which is being read

	file   io.ReadCloser // the picture that is being read
	unread int64         // bytes of it
	raw    []byte
	out    []byte
	closed bool
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.text) == 0 {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	n = copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

// more has the next text ready. mu is held.
func (r *bodyReader) more() error {
	switch {
	case r.closed:
		return io.ErrClosedPipe
	case r.from < r.to:
		return r.fetch()
	case r.file != nil:
		return r.encode()
	case len(r.left) == 0:
		return io.EOF
	}
	next := r.left[0]
	r.left = r.left[1:]
	switch {
	case next.text != nil:
		r.text = next.text
		return nil
	case next.size > 0:
		r.from, r.to = next.from, next.from+next.size
		return nil
	case next.picture.Open == nil:
		return nil // an empty text
	}
	file, err := next.picture.Open()
	if err != nil {
		return &unreadable{fmt.Errorf("%s: %w", next.picture.Title(), err)}
	}
	r.file, r.unread = file, next.picture.Size
	return nil
}

// fetch reads the next chunk of what was put aside. mu is held.
func (r *bodyReader) fetch() error {
	if r.raw == nil {
		r.raw = make([]byte, rawChunk)
	}
	n, err := r.aside.ReadAt(r.raw[:min(rawChunk, r.to-r.from)], r.from)
	if n == 0 {
		return &unreadable{fmt.Errorf("the request cannot be read: %w", err)}
	}
	r.text = r.raw[:n]
	r.from += int64(n)
	return nil
}

// encode encodes the next chunk of a picture. mu is held.
func (r *bodyReader) encode() error {
	if r.unread == 0 {
		err := r.file.Close()
		r.file = nil
		return err
	}
	if r.raw == nil {
		r.raw = make([]byte, rawChunk)
	}
	if r.out == nil {
		r.out = make([]byte, base64.StdEncoding.EncodedLen(rawChunk))
	}
	raw := r.raw[:min(rawChunk, r.unread)]
	if _, err := io.ReadFull(r.file, raw); err != nil {
		return &unreadable{fmt.Errorf("a picture was cut off while it was sent: %w", err)}
	}
	r.unread -= int64(len(raw))
	r.text = r.out[:base64.StdEncoding.EncodedLen(len(raw))]
	base64.StdEncoding.Encode(r.text, raw)
	return nil
}

// unreadable is why a request cannot be sent: something of it cannot be read any more. It is no
// fault of the server's, and does not pass.
type unreadable struct{ error }

func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.text = true, nil
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
