package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Replace puts a text in the place of a file, whole or not at all, also where the machine
// stops meanwhile. The file has that mode then, whatever the old one had. Of a link the link
// is replaced. It blocks until the text and its name are on the disk. A process that is
// killed meanwhile leaves a file beside it whose name begins with a dot.
func Replace(path string, text []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Rotate moves a file aside, to path.1, and older ones on, up to path.N for N older ones;
// the oldest goes. Files that do not exist are no error.
func Rotate(path string, older int) error {
	for i := older; i > 0; i-- {
		if err := os.Rename(Rotated(path, i-1), Rotated(path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Rotated is the name of the file that was moved aside so many rotations ago; 0 is path.
func Rotated(path string, ago int) string {
	if ago == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, ago)
}
