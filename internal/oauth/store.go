package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/lock"
	"noused/internal/regular"
)

const (
	maxFile = 256 << 10 // bytes
	look    = 20 * time.Millisecond
)

// Store keeps what was granted, in a folder. Make it with Open.
type Store struct{ dir string }

// Open returns the store in a folder, which is made when something is kept.
func Open(dir string) *Store { return &Store{dir} }

// grant is the file of a server.
type grant struct {
	Server string `json:"server"`
	// Asked is what the server asked for since: the next login asks for it.
	Asked *Challenge `json:"asked,omitzero"`

	Issuer     string    `json:"issuer,omitzero"`
	Resource   string    `json:"resource,omitzero"`
	Endpoint   string    `json:"token_endpoint,omitzero"`
	Revocation string    `json:"revocation_endpoint,omitzero"`
	Client     Client    `json:"client,omitzero"`
	Access     string    `json:"access_token,omitzero"`
	Refresh    string    `json:"refresh_token,omitzero"`
	Expires    time.Time `json:"expires,omitzero"` // zero: nobody said
	Scope      string    `json:"scope,omitzero"`
}

// setTokens keeps new tokens. A refresh token that is not replaced stays.
func (g *grant) setTokens(t *tokens, now time.Time) {
	g.Access, g.Expires = t.Access, t.expires(now)
	if t.Refresh != "" {
		g.Refresh = t.Refresh
	}
	if t.Scope != nil {
		g.Scope = cleanScope(*t.Scope)
	}
}

// path is the file of a server. Its name tells nobody which one that is.
func (s *Store) path(server string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16])+".json")
}

// read returns what is kept for a server, nil where nothing is.
func (s *Store) read(server string) (*grant, error) {
	path := s.path(server)
	f, err := regular.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the login: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	g := &grant{}
	if err == nil && json.Unmarshal(text, g) != nil { // whose text could repeat a token
		err = errors.New("it is no JSON object of a login")
	}
	if err == nil && g.Server != server {
		err = errors.New("it is the login of another server")
	}
	if err != nil {
		return nil, fmt.Errorf("the login in %s cannot be used, log out and in again: %w", path, err)
	}
	return g, nil
}

func (s *Store) write(g *grant) error {
	text, err := json.Marshal(g, jsontext.WithIndent("  "))
	if err == nil {
		err = regular.Replace(s.path(g.Server), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// lock makes the file of a server this caller's own. It waits for another one,
// in whatever process, as long as ctx lasts.
func (s *Store) lock(ctx context.Context, server string) (*lock.Lock, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep the login: %w", err)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		l, err := lock.Acquire(s.path(server) + ".lock")
		var held *lock.HeldError
		if !errors.As(err, &held) {
			return l, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// Logout takes a login back, at the authorization server too where it can, and
// forgets it. revoked says that the server was told; err with it, that it was
// not and why. The login is forgotten either way, unless had is false and err says
// why not. had is false without an error where there was none.
func (s *Store) Logout(ctx context.Context, server string) (had, revoked bool, err error) {
	u, err := serverURL(server)
	if err != nil {
		return false, false, err
	}
	server = u.String()
	l, err := s.lock(ctx, server)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = l.Release() }()
	g, unread := s.read(server)
	if err := os.Remove(s.path(server)); errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	} else if err != nil {
		return false, false, err
	}
	if unread != nil {
		return true, false, unread
	}
	if g.Access == "" && g.Refresh == "" {
		return false, false, nil
	}
	if g.Revocation == "" {
		return true, false, errors.New("the authorization server has no way to take tokens back; they end by themselves")
	}
	err = newWeb(u).revoke(ctx, g)
	return true, err == nil, err
}
