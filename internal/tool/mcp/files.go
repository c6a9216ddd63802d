package mcp

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"noused/internal/regular"
)

const (
	// maxKept and maxKeptSize are how many files of results there are, and the bytes
	// of all: the oldest go first.
	maxKept     = 256
	maxKeptSize = 256 << 20
	keptPrefix  = "asset-"
)

// files keep what results come with, for all servers. They are private to the user.
type files struct {
	dir  string
	most int
	mu   sync.Mutex // one writer makes room at a time
}

func newFiles(dir string) *files {
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("noused-%d", os.Getuid()))
	}
	return &files{dir: dir, most: maxKept}
}

// endings of files, by media type, for whatever goes by them.
var endings = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "application/pdf": ".pdf",
	"application/json": ".json", "text/plain": ".txt", "text/markdown": ".md", "text/html": ".html", "text/uri-list": ".uri",
}

// write keeps a file and returns its path.
func (k *files) write(mediaType string, content []byte) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := regular.Folder(k.dir); err != nil {
		return "", err
	}
	trim(k.dir, keptPrefix+"*", k.most-1, maxKeptSize-int64(len(content)))
	f, err := os.CreateTemp(k.dir, keptPrefix+"*"+endings[mediaType])
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
