// Package tomlfile says where in a file of TOML something is.
//
// Its functions are pure and may be called from any goroutine.
package tomlfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Key is a key of a file, and the line where it is.
type Key struct {
	Path []string
	Line int
}

// Keys are the keys of a text that are not fields of sections, a pointer to a struct. The
// error is the decoder's.
func Keys(text []byte, sections any) ([]Key, error) {
	dec := toml.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(sections)
	var unknown *toml.StrictMissingError
	if !errors.As(err, &unknown) {
		return nil, err
	}
	keys := make([]Key, 0, len(unknown.Errors))
	for _, at := range unknown.Errors {
		line, _ := at.Position()
		keys = append(keys, Key{at.Key(), line})
	}
	return keys, nil
}

// Place is the line and the key that an error of the decoder's is about. Both are zero
// for any other error.
func Place(err error) (line int, key string) {
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, _ = bad.Position()
		key = strings.Join(bad.Key(), ".")
	}
	return line, key
}

// Problem is a message with the file, and the line and the key, that an error of the
// decoder's is about. "" is the decoder's own message.
func Problem(path string, err error, message string) error {
	at := path
	line, key := Place(err)
	if line > 0 {
		at += fmt.Sprintf(":%d", line)
	}
	if key != "" {
		at += ": " + key
	}
	if message == "" {
		message = Message(err)
	}
	return fmt.Errorf("%s: %s", at, message)
}

// Message is an error of the decoder's without the decoder's name.
func Message(err error) string { return strings.TrimPrefix(err.Error(), "toml: ") }
