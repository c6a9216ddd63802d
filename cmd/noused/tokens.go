package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"noused/internal/regular"
)

// tokens are what hosted agents show to call tools in their sessions. A session's token is
// made of its id with a key that the state folder has, so that it outlives the daemon, is
// nowhere in the session, and opens no other one.
type tokens struct{ key []byte }

const tokenKeySize = 32 // bytes

// openTokens reads the key, and makes it where there is none.
func openTokens(stateDir string) (tokens, error) {
	path := filepath.Join(stateDir, "agents.key")
	key, err := regular.Secret(path, tokenKeySize+1)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, tokenKeySize)
		_, _ = rand.Read(key) // it never fails
		err = regular.Replace(path, key, 0o600)
	}
	if err == nil && len(key) != tokenKeySize {
		err = fmt.Errorf("%s: %d bytes, want %d; remove it, and the daemon makes another", path, len(key), tokenKeySize)
	}
	return tokens{key}, err
}

// of is the token of a session.
func (t tokens) of(sessionID string) string { return hex.EncodeToString(t.sum(sessionID)) }

func (t tokens) sum(sessionID string) []byte {
	mac := hmac.New(sha256.New, t.key)
	_, _ = mac.Write([]byte("session " + sessionID))
	return mac.Sum(nil)
}

// is reports whether a token is that of a session, in a time that says nothing of it.
func (t tokens) is(sessionID, token string) bool {
	got, err := hex.DecodeString(token)
	return err == nil && sessionID != "" && hmac.Equal(got, t.sum(sessionID))
}
