package runloop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// maxShown bounds the images of one request to a model, in bytes: as many as
// one message may have. The newest go first.
const maxShown = 16 * session.MaxImage

// keepImages copies the images that go with a text beside the session's journal, before the
// text is accepted. If the text was accepted under its key before, nothing is copied again. If
// refused returns an error, nothing is kept. It blocks for the disk.
func (h *Hub) keepImages(ctx context.Context, id string, list []protocol.AttachmentParams, key string,
	refused func(m *machine) error,
) ([]model.Attachment, error) {
	if len(list) == 0 {
		return nil, nil
	}
	workdir := ""
	answered, err := query(ctx, h, id, func(m *machine) (bool, error) {
		workdir = m.workdir()
		if _, before := m.s.Key(key, m.now); before && key != "" {
			return true, nil
		}
		return false, refused(m)
	})
	if err != nil || answered {
		return nil, err
	}
	images := make([]session.Image, len(list))
	for i, a := range list {
		image, closer, err := openImage(i, workdir, a)
		if err != nil {
			return nil, err
		}
		defer func() { _ = closer.Close() }()
		images[i] = image
	}
	kept, err := h.env.Store.KeepImages(id, images)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return nil, notFound(id)
	case err != nil:
		return nil, &protocol.Error{Code: protocol.SessionError, Message: "the images cannot be kept", Cause: err.Error()}
	}
	return kept, nil
}

// openImage finds out what an attachment is; its content is still to be read. A
// relative path starts from workdir.
func openImage(i int, workdir string, a protocol.AttachmentParams) (image session.Image, closer io.Closer, err error) {
	field, content, size := "path", io.ReaderAt(nil), int64(0)
	bad := func(format string, args ...any) error { return protocol.BadAttachment(i, field, format, args...) }
	if a.Path != "" {
		path := a.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(workdir, path)
		}
		f, length, err := openRegular(path)
		if err != nil {
			return image, nil, bad("%.300q: %v", path, err)
		}
		content, closer, size = f, f, length
		defer func() {
			if err != nil {
				_ = f.Close()
			}
		}()
		a.Name = cmp.Or(a.Name, filepath.Base(path))
	} else {
		field = "data"
		// Line breaks are let pass, and so may be a part of it.
		if most := base64.StdEncoding.EncodedLen(session.MaxImage) * 2; len(a.Data) > most {
			return image, nil, bad("is %d bytes of base64, which is more than an image of %d bytes (5 MiB) has", len(a.Data),
				session.MaxImage)
		}
		data, err := base64.StdEncoding.DecodeString(a.Data)
		if err != nil {
			return image, nil, bad("is not base64: %v", err)
		}
		content, closer, size = bytes.NewReader(data), io.NopCloser(nil), int64(len(data))
	}
	if image, err = imageFrom(a.Name, content, size); err != nil {
		if a.Name != "" {
			err = fmt.Errorf("%.300q: %w", a.Name, err)
		}
		return image, nil, bad("%v", err)
	}
	if a.MediaType != "" && a.MediaType != image.MediaType {
		field = "media_type"
		return image, nil, bad("says %s, but the image is %s", a.MediaType, image.MediaType)
	}
	return image, closer, nil
}

// imageFrom finds out what a content of that many bytes is, or why it is no image
// that a session keeps.
func imageFrom(name string, content io.ReaderAt, size int64) (session.Image, error) {
	switch {
	case size == 0:
		return session.Image{}, errors.New("is empty, want an image")
	case size > session.MaxImage:
		return session.Image{}, fmt.Errorf("is %d bytes long, at most %d (5 MiB) are allowed", size, session.MaxImage)
	}
	kind, err := sniff(content)
	switch {
	case err != nil:
		return session.Image{}, err
	case !slices.Contains(imageTypes, kind):
		return session.Image{}, fmt.Errorf("is %s, want one of %s", kind, strings.Join(imageTypes, ", "))
	}
	return session.Image{MediaType: kind, Name: name, Size: size, Content: io.NewSectionReader(content, 0, size+1)}, nil
}

// keeper has the images of a tool's result copied beside the session's journal,
// as those of its users are, and adds them to a list.
func (l *loop) keeper(list *[]model.Attachment) func(name string, content io.ReaderAt, size int64) error {
	return func(name string, content io.ReaderAt, size int64) error {
		image, err := imageFrom(name, content, size)
		if err != nil {
			return err
		}
		kept, err := l.env.Store.KeepImages(l.id, []session.Image{image})
		if err != nil {
			l.env.Fault(l.id, err)
			return errors.New("the session cannot keep it; the daemon's log has the detail")
		}
		*list = append(*list, kept...)
		return nil
	}
}

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// sniff is a content's media type, from its first bytes.
func sniff(content io.ReaderAt) (string, error) {
	head := make([]byte, 512)
	n, err := content.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", reason(err)
	}
	kind, _, _ := strings.Cut(http.DetectContentType(head[:n]), ";")
	if kind == "application/octet-stream" {
		kind = "of no known type"
	}
	return kind, nil
}

// openRegular opens a regular file and nothing else: neither opening nor reading
// one waits for another program.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("is %s, want a file", what(info.Mode()))
	}
	if err != nil {
		return nil, 0, reason(err)
	}
	// It may be another one by now.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, reason(err)
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("is %s, want a file", what(info.Mode()))
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, reason(err)
	}
	return f, info.Size(), nil
}

// reason is an error of os without the operation and the path.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func what(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&os.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&os.ModeSocket != 0:
		return "a socket"
	case mode&os.ModeDevice != 0:
		return "a device"
	default:
		return "a file"
	}
}

// withImages returns the messages with their images ready to be read, from the session's
// copies. A line of text stands for an image that is missing or left out.
func (l *loop) withImages(ctx context.Context, gen int, messages []model.Message) ([]model.Message, error) {
	if !slices.ContainsFunc(messages, func(m model.Message) bool { return len(m.Attachments) > 0 }) {
		return messages, nil
	}
	out := slices.Clone(messages)
	room := maxShown
	for i, m := range slices.Backward(out) {
		if len(m.Attachments) == 0 {
			continue
		}
		var shown []model.Attachment
		for _, a := range m.Attachments {
			if a.Size > int64(room) {
				m.Text += "\n\n[" + a.Title() + " is left out: the newer images fill the request]"
				continue
			}
			if len(a.Data) == 0 { // else a module has put it there
				if err := l.openable(&a); err != nil {
					m.Text += "\n\n[" + a.Title() + " is missing]"
					if err := l.post(ctx, noticeIn{gen, "image_missing", a.Title() + ": " + err.Error()}); err != nil {
						return nil, err
					}
					continue
				}
			}
			room = max(0, room-max(len(a.Data), int(a.Size)))
			shown = append(shown, a)
		}
		m.Attachments = shown
		out[i] = m
	}
	return out, nil
}

// openable checks the session's copy of an image, and sets the attachment's Open to read it.
func (l *loop) openable(a *model.Attachment) error {
	kept := *a
	f, err := l.env.Store.Picture(l.id, kept)
	if err != nil {
		return err
	}
	a.Open = func() (io.ReadCloser, error) { return l.env.Store.Picture(l.id, kept) }
	return f.Close()
}

// wireAttachments are attachments as clients see them; dir has their files.
func wireAttachments(dir string, list []model.Attachment) []protocol.Attachment {
	var out []protocol.Attachment
	for _, a := range list {
		out = append(out, protocol.Attachment{
			MediaType: a.MediaType, Name: a.Name, Size: a.Size,
			Path: filepath.Join(dir, a.File),
		})
	}
	return out
}
