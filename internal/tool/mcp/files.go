package mcp

import (
	"os"
	"path/filepath"
	"sync"

	"noused/internal/tool"
)

const (
	// maxKept and maxKeptSize are how many files of results there are, and the bytes
	// of all: the oldest go first.
	maxKept     = 256
	maxKeptSize = 256 << 20
)

// files keep what results come with, for all servers.
type files struct {
	kept tool.Outputs
	most int
	mu   sync.Mutex // one writer makes room at a time
}

func newFiles(dir string) *files { return &files{kept: tool.OpenOutputs(dir), most: maxKept} }

// endings of files, by media type, for whatever goes by them.
var endings = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "application/pdf": ".pdf",
	"application/json": ".json", "text/plain": ".txt", "text/markdown": ".md", "text/html": ".html",
	"text/uri-list": ".uri",
}

// write keeps a file for a session and returns its path.
func (k *files) write(session, mediaType string, content []byte) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept.Trim(tool.KeptAsset, k.most-1, maxKeptSize-int64(len(content)), nil)
	f, err := k.kept.Create(session, filepath.Base(k.kept.NewName(session, tool.KeptAsset, endings[mediaType])))
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
