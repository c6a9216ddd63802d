package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/model"
	"noused/internal/regular"
)

// MaxImage is the most bytes that one image may have.
const MaxImage = 5 << 20

// filesExt is behind a session's id in the name of the folder of its images.
const filesExt = ".files"

// changesExt is behind it in that of the folder of what it has changed.
const changesExt = ".changes"

// imageExts are the types of image that are kept, and how their files' names end.
var imageExts = map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}

// ErrNoImage says that a session's copy of an image is not there, or not as it
// was kept.
var ErrNoImage = errors.New("the image is missing")

// Image is an image to keep: Content has Size bytes, at most MaxImage. MediaType
// is one of png, jpeg, gif and webp.
type Image struct {
	MediaType, Name string
	Size            int64
	Content         io.Reader
}

// FilesDir is the folder of a session's images, which need not be there.
func (s *Store) FilesDir(id string) string { return filesDir(s.path(id)) }

// ChangesDir is the folder of what a session has changed, which need not be there.
func (s *Store) ChangesDir(id string) string {
	return strings.TrimSuffix(s.path(id), journalExt) + changesExt
}

// filesDir is the folder that belongs to the journal at path.
func filesDir(path string) string { return strings.TrimSuffix(path, journalExt) + filesExt }

// KeepImages copies images into a session's folder and returns how its records name
// them, once they are durable: only then may a record do so (wire-v1 §7). A copy
// that no record came to name, after a crash say, harms nobody; it goes when the
// session is deleted. ErrNotFound when there is no such session. It blocks for as
// long as reading the images does, and holds up nobody meanwhile.
func (s *Store) KeepImages(id string, images []Image) (kept []model.Attachment, err error) {
	defer func() {
		if err != nil && !errors.Is(err, ErrNotFound) {
			err = fmt.Errorf("keep images of session %s: %w", id, err)
		}
	}()
	s.mu.Lock()
	err = s.prepareWrite() // clears away what a former daemon left, so before anything is written
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !s.Exists(id) {
		return nil, ErrNotFound
	}
	var drafts []string
	defer func() {
		for _, path := range drafts {
			if failed := os.Remove(path); !errors.Is(failed, os.ErrNotExist) { // it goes with the session
				err = errors.Join(err, failed)
			}
		}
	}()
	for _, image := range images {
		path, file, err := s.draft(id, image)
		if err != nil {
			return nil, err
		}
		drafts = append(drafts, path)
		kept = append(kept, model.Attachment{MediaType: image.MediaType, Name: image.Name, Size: image.Size, File: file})
	}
	s.files.RLock() // the session is not deleted meanwhile
	defer s.files.RUnlock()
	if !s.Exists(id) {
		return nil, ErrNotFound
	}
	dir := s.FilesDir(id)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	for i, path := range drafts {
		// The same image may be there, whole as all that have their names.
		if err := s.disk.Link(path, filepath.Join(dir, kept[i].File)); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	return kept, errors.Join(s.disk.SyncDir(dir), s.disk.SyncDir(filepath.Dir(dir)))
}

// draft writes an image to a file beside the session's journal, durably, and
// returns that file's path and the name that the content gives it. After a crash
// the next daemon removes it.
func (s *Store) draft(id string, image Image) (path, file string, err error) {
	ext := imageExts[image.MediaType]
	switch {
	case ext == "":
		return "", "", fmt.Errorf("no image of type %.40q is kept", image.MediaType)
	case image.Size > MaxImage:
		return "", "", fmt.Errorf("no image of %d bytes is kept, at most %d", image.Size, MaxImage)
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, sessionsName), id+".*"+draftExt)
	if err != nil {
		return "", "", err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(diskWriter{s.disk, f}, sum), io.LimitReader(image.Content, image.Size+1))
	if err == nil && n != image.Size {
		err = errChanged
	}
	if err == nil {
		err = s.disk.Sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), hex.EncodeToString(sum.Sum(nil)) + ext, nil
}

var errChanged = errors.New("the image was changed while it was read")

// diskWriter writes to a file through a Disk.
type diskWriter struct {
	disk Disk
	f    *os.File
}

func (w diskWriter) Write(text []byte) (int, error) { return w.disk.Write(w.f, text) }

// Picture opens the session's copy of an attachment, to be read: a.Size bytes, at
// most MaxImage. It fails with ErrNoImage where the copy is not there or not as long
// as it was.
func (s *Store) Picture(id string, a model.Attachment) (io.ReadCloser, error) {
	if !keptName(a.File) || !ValidID(id) {
		return nil, fmt.Errorf("%w: %.100q is no kept image", ErrNoImage, a.File)
	}
	f, err := openWhole(filepath.Join(s.FilesDir(id), a.File), a)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openWhole opens the kept copy of an attachment, or reports why the file at
// path is none.
func openWhole(path string, a model.Attachment) (*os.File, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoImage, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrNoImage, err)
	case info.Size() != a.Size || a.Size > MaxImage:
		err = fmt.Errorf("%w: %s has %d bytes, not %d", ErrNoImage, path, info.Size(), a.Size)
	default:
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

// whole reports why the file at path is not the kept copy of an attachment.
func whole(path string, a model.Attachment) error {
	f, err := openWhole(path, a)
	if err != nil {
		return err
	}
	return f.Close()
}

// keptName reports that a file's name is one that Keep gives, and so stays in
// its folder: a record, or a module that was shown it, could say anything.
func keptName(file string) bool {
	ext := filepath.Ext(file)
	sum, err := hex.DecodeString(strings.TrimSuffix(file, ext))
	if err != nil || len(sum) != sha256.Size {
		return false
	}
	for _, known := range imageExts {
		if ext == known {
			return true
		}
	}
	return false
}

// attachments are those that a session's inputs and messages name, by file.
func (s *State) attachments() map[string]model.Attachment {
	named := map[string]model.Attachment{}
	add := func(list []model.Attachment) {
		for _, a := range list {
			named[a.File] = a
		}
	}
	maps.Copy(named, s.named)
	for _, in := range s.Pending {
		add(in.Attachments)
	}
	return named
}

// inherit gives a session that is being made the images of its parent that it
// names, so that either may be deleted. One that the parent has lost stays lost.
// The parent is not deleted meanwhile: s.mu is held. What was done, disown undoes
// where the session came to nothing; it is never nil.
func (s *Store) inherit(state *State, id string) (disown func() error, err error) {
	disown = func() error { return nil }
	named := state.attachments()
	if len(named) == 0 {
		return disown, nil
	}
	if !s.Exists(state.ParentID) {
		return disown, ErrNotFound
	}
	dir := s.FilesDir(id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return disown, err
	}
	disown = func() error {
		if s.Exists(id) { // a link may be made and fail all the same
			return nil
		}
		return os.RemoveAll(dir)
	}
	for file, a := range named {
		if !keptName(file) {
			continue
		}
		from := filepath.Join(s.FilesDir(state.ParentID), file)
		err := s.disk.Link(from, filepath.Join(dir, file))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // too many links, or a file system that has none
			err = s.copyImage(from, id, a)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return disown, err
		}
	}
	return disown, s.disk.SyncDir(dir) // its own name is synced with the journal's
}

func (s *Store) copyImage(from, id string, a model.Attachment) error {
	f, err := regular.Open(from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	draft, file, err := s.draft(id, Image{MediaType: a.MediaType, Size: a.Size, Content: f})
	if err != nil {
		return err
	}
	return errors.Join(s.disk.Link(draft, filepath.Join(s.FilesDir(id), file)), os.Remove(draft))
}
