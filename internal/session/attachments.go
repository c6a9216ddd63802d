package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/model"
)

// MaxImage is the most bytes that one image may have.
const MaxImage = 5 << 20

const (
	filesExt = ".files" // behind a session's id: the folder of its images
	freshExt = ".new"   // of a file in it that is being written
)

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

// filesDir is the folder that belongs to the journal at path.
func filesDir(path string) string { return strings.TrimSuffix(path, journalExt) + filesExt }

// Keep copies images into a session's folder and returns how its records name
// them, once they are durable: only then may a record do so (wire-v1 §7). A copy
// that no record came to name, after a crash say, harms nobody; it goes when the
// session is deleted. ErrNotFound when there is no such session.
func (s *Store) Keep(id string, images []Image) ([]model.Attachment, error) {
	s.mu.Lock()
	err := s.list() // clears away what a former daemon left, so before anything is written
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.files.RLock() // the session is not deleted meanwhile
	defer s.files.RUnlock()
	if !s.Exists(id) {
		return nil, ErrNotFound
	}
	kept, err := keep(s.disk, s.FilesDir(id), images)
	if err == nil {
		err = s.disk.SyncDir(filepath.Join(s.dir, sessionsName))
	}
	if err != nil {
		return nil, fmt.Errorf("keep images of session %s: %w", id, err)
	}
	return kept, nil
}

// keep writes images to a folder, making it if need be. The folder's own name is
// left to be synced.
func keep(disk Disk, dir string, images []Image) ([]model.Attachment, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	kept := make([]model.Attachment, len(images))
	for i, image := range images {
		file, err := keepOne(disk, dir, image)
		if err != nil {
			return nil, err
		}
		kept[i] = model.Attachment{MediaType: image.MediaType, Name: image.Name, Size: image.Size, File: file}
	}
	return kept, disk.SyncDir(dir)
}

// keepOne writes an image to a file that is called by its content, and that has
// its name from the moment when it is whole and durable.
func keepOne(disk Disk, dir string, image Image) (file string, err error) {
	ext := imageExts[image.MediaType]
	if ext == "" {
		return "", fmt.Errorf("no image of type %.40q is kept", image.MediaType)
	}
	if image.Size > MaxImage {
		return "", fmt.Errorf("no image of %d bytes is kept, at most %d", image.Size, MaxImage)
	}
	f, err := os.CreateTemp(dir, "*"+freshExt)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(diskWriter{disk, f}, sum), io.LimitReader(image.Content, image.Size+1))
	if err == nil && n != image.Size {
		err = fmt.Errorf("%w while it was read", errChanged)
	}
	if err == nil {
		err = disk.Sync(f)
	}
	err = errors.Join(err, f.Close())
	file = hex.EncodeToString(sum.Sum(nil)) + ext
	if err == nil {
		if err = disk.Link(f.Name(), filepath.Join(dir, file)); errors.Is(err, os.ErrExist) {
			err = nil // the same image, whole as all that have their names
		}
	}
	return file, errors.Join(err, os.Remove(f.Name()))
}

var errChanged = errors.New("the image was changed")

// diskWriter writes to a file through a Disk.
type diskWriter struct {
	disk Disk
	f    *os.File
}

func (w diskWriter) Write(text []byte) (int, error) { return w.disk.Write(w.f, text) }

// Picture returns an attachment's bytes, at most MaxImage of them. It fails with
// ErrNoImage where the session's copy is not there or not as long as it was.
func (s *Store) Picture(id string, a model.Attachment) ([]byte, error) {
	if !keptName(a.File) || !ValidID(id) {
		return nil, fmt.Errorf("%w: %.100q is no kept image", ErrNoImage, a.File)
	}
	path := filepath.Join(s.FilesDir(id), a.File)
	if err := whole(path, a); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoImage, err)
	}
	return data, nil
}

// whole reports why the file at path is not the kept copy of an attachment.
func whole(path string, a model.Attachment) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoImage, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is no regular file", ErrNoImage, path)
	case info.Size() != a.Size || a.Size > MaxImage:
		return fmt.Errorf("%w: %s has %d bytes, not %d", ErrNoImage, path, info.Size(), a.Size)
	}
	return nil
}

// keptName reports that a file's name is one that keepOne gives, and so stays in
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
	for _, e := range s.order {
		add(e.Message.Attachments)
	}
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
			err = s.copyImage(from, dir, a)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return disown, err
		}
	}
	return disown, s.disk.SyncDir(dir) // its own name is synced with the journal's
}

func (s *Store) copyImage(from, dir string, a model.Attachment) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = keepOne(s.disk, dir, Image{MediaType: a.MediaType, Size: a.Size, Content: f})
	return err
}

// removeUnfinished clears away what a crash left of images that were being
// written.
func (s *Store) removeUnfinished() error {
	sessions := filepath.Join(s.dir, sessionsName)
	folders, err := os.ReadDir(sessions)
	for _, folder := range folders {
		if !strings.HasSuffix(folder.Name(), filesExt) || !folder.IsDir() {
			continue
		}
		dir := filepath.Join(sessions, folder.Name())
		files, failed := os.ReadDir(dir)
		err = errors.Join(err, failed)
		for _, file := range files {
			if strings.HasSuffix(file.Name(), freshExt) {
				err = errors.Join(err, os.Remove(filepath.Join(dir, file.Name())))
			}
		}
	}
	return err
}
