package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"noused/internal/model"
	"noused/internal/regular"
)

// maxImages is how many images one result gives.
const maxImages = 16

// show hands the images that a result names to whoever takes them, and says in
// its text which were not taken and why. It blocks for as long as keeping them
// does.
func (r *Registry) show(m *module, inv model.Invocation, result *model.ToolResult) {
	paths := result.Images
	result.Images = nil
	if inv.Keep == nil {
		return
	}
	if n := len(paths) - maxImages; n > 0 {
		paths = paths[:maxImages]
		defer func() { result.Text += fmt.Sprintf("\n[%d more images are not shown: at most %d are]", n, maxImages) }()
	}
	for _, path := range paths {
		if err := r.showOne(m, inv, path); err != nil {
			result.Text += fmt.Sprintf("\n[%s is not shown: %v]", path, err)
		}
	}
}

func (r *Registry) showOne(m *module, inv model.Invocation, path string) error {
	if !filepath.IsAbs(path) {
		path = filepath.Join(m.desc.Workdir, path)
	}
	f, err := regular.Follow(path)
	var why *fs.PathError
	if errors.As(err, &why) {
		err = why.Err
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := r.mayShow(m, f); err != nil {
		return err
	}
	return inv.Keep(filepath.Base(path), f, info.Size())
}

// mayShow refuses what the tool itself may not read. It asks for the file that
// was opened: its path may lead elsewhere by now.
func (r *Registry) mayShow(m *module, f *os.File) error {
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	if r.o.Hidden.HidesFrom(m.desc.Workdir, real) {
		return errors.New("it is the daemon's own")
	}
	return nil
}
