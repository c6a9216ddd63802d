package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"noused/internal/model"
	"noused/internal/regular"
	"noused/internal/tool"
)

// maxImages is how many images one result gives.
const maxImages = 16

// show hands the images that a result names to the caller who takes them, and says in
// its text which were not taken and why. It blocks for as long as keeping them
// does.
func (r *Registry) show(d *tool.Descriptor, inv model.Invocation, result *model.ToolResult) {
	paths := result.Images
	result.Images = nil
	if inv.KeepImage == nil {
		return
	}
	if n := len(paths) - maxImages; n > 0 {
		paths = paths[:maxImages]
		defer func() { result.Text += fmt.Sprintf("\n[%d more images are not shown: at most %d are]", n, maxImages) }()
	}
	for _, path := range paths {
		if err := r.showOne(d, inv, path); err != nil {
			result.Text += fmt.Sprintf("\n[%s is not shown: %v]", path, err)
		}
	}
}

func (r *Registry) showOne(d *tool.Descriptor, inv model.Invocation, path string) error {
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.Workdir, path)
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
	if err := r.mayShow(d, inv, f); err != nil {
		return err
	}
	return inv.KeepImage(filepath.Base(path), f, info.Size())
}

// mayShow refuses what the tool itself may not read. It asks for the file that
// was opened: its path may lead elsewhere by now.
func (r *Registry) mayShow(d *tool.Descriptor, inv model.Invocation, f *os.File) error {
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	if inv.Path != "" && real != inv.Path {
		return errors.New("it is another file than was allowed")
	}
	hidden := r.o.Hidden
	if d.Readable != "" {
		hidden = hidden.Open(d.Readable)
	}
	if hidden.HidesFrom(d.Workdir, real) {
		return errors.New("it is hidden from tools")
	}
	return nil
}
