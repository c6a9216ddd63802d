package regular

import (
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Replace puts a text in the place of a file, whole or not at all, also where the machine
// stops meanwhile. The file has that mode then, whatever the old one had. Of a link the link
// is replaced. It blocks until the text is on the disk.
func Replace(path string, text []byte, mode os.FileMode) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
