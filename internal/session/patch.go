package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// document is the object that tools patch together (RFC 7396), decoded, so that
// a patch costs what it is long and not what is there. The zero document is {}.
type document struct {
	root *value
	text jsontext.Value // the root's, once somebody has asked for it
}

// value is an object's members, or the text of anything else.
type value struct {
	members map[string]*value
	text    jsontext.Value
	size    int // of its JSON, in bytes, at most
}

// encoded returns the document's JSON, the members in order. It must not be
// changed.
func (d *document) encoded() jsontext.Value {
	if d.text == nil {
		root := d.object()
		d.text = root.appendTo(make([]byte, 0, root.size))
	}
	return d.text
}

func (d *document) size() int { return d.object().size }

func (d *document) object() *value {
	if d.root == nil {
		return newObject()
	}
	return d.root
}

// merge applies a patch. Numbers keep their digits.
func (d *document) merge(patch jsontext.Value) error {
	p, err := decodeValue(patch)
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	d.root, d.text = merged(d.object(), p), nil
	return nil
}

// sizeAfter is what size would be after the patch.
func (d *document) sizeAfter(patch jsontext.Value) (int, error) {
	p, err := decodeValue(patch)
	if err != nil {
		return 0, fmt.Errorf("patch: %w", err)
	}
	return mergedSize(d.object(), p), nil
}

func newObject() *value { return &value{members: map[string]*value{}, size: len("{}")} }

func (v *value) isNull() bool { return v.members == nil && v.text.Kind() == jsontext.KindNull }

// memberSize is what an object's member of that size takes, with its name.
func memberSize(name string, size int) int {
	quoted, _ := jsontext.AppendQuote(nil, name)
	return len(quoted) + len(":,") + size
}

// merged returns target, which it changes, with patch merged in: objects deep,
// arrays replaced, null deletes. A nil target is one that is not there.
func merged(target, patch *value) *value {
	if patch.members == nil {
		return patch
	}
	if target == nil || target.members == nil {
		target = newObject()
	}
	for name, p := range patch.members {
		old := target.members[name]
		if old != nil {
			target.size -= memberSize(name, old.size)
		}
		if p.isNull() {
			delete(target.members, name)
			continue
		}
		next := merged(old, p)
		target.members[name] = next
		target.size += memberSize(name, next.size)
	}
	return target
}

// mergedSize is the size of what merged would return.
func mergedSize(target, patch *value) int {
	if patch.members == nil {
		return patch.size
	}
	if target == nil || target.members == nil {
		target = newObject()
	}
	size := target.size
	for name, p := range patch.members {
		old := target.members[name]
		if old != nil {
			size -= memberSize(name, old.size)
		}
		if !p.isNull() {
			size += memberSize(name, mergedSize(old, p))
		}
	}
	return size
}

func decodeValue(text jsontext.Value) (*value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text)) // which it reads in place
	v, err := readValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func readValue(dec *jsontext.Decoder) (*value, error) {
	if dec.PeekKind() != jsontext.KindBeginObject {
		text, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		text = text.Clone()
		if err := text.Compact(); err != nil {
			return nil, err
		}
		return &value{text: text, size: len(text)}, nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	object := newObject()
	for dec.PeekKind() != jsontext.KindEndObject {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		member, err := readValue(dec)
		if err != nil {
			return nil, err
		}
		object.members[name] = member
		object.size += memberSize(name, member.size)
	}
	_, err := dec.ReadToken()
	return object, err
}

func (v *value) appendTo(out []byte) []byte {
	if v.members == nil {
		return append(out, v.text...)
	}
	out = append(out, '{')
	for i, name := range slices.Sorted(maps.Keys(v.members)) {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name)
		out = v.members[name].appendTo(append(out, ':'))
	}
	return append(out, '}')
}

// Patched is the JSON object that tools have patched together. It must not be
// changed.
func (s *State) Patched() jsontext.Value { return s.patched.encoded() }

// PatchedSize is about how long Patched is, in bytes, and AfterPatch how long it
// would be after a patch.
func (s *State) PatchedSize() int { return s.patched.size() }

// AfterPatch is PatchedSize after a patch. It reads the patch alone.
func (s *State) AfterPatch(patch jsontext.Value) (int, error) { return s.patched.sizeAfter(patch) }

// AssetsSize is about how much the assets hold, in bytes.
func (s *State) AssetsSize() int { return s.assetsSize }

// AssetSize is about what an asset holds, in bytes.
func AssetSize(a model.Asset) int {
	const names = 100 // of its fields
	return names + len(a.ID) + len(a.Kind) + len(a.MediaType) + len(a.Path) + len(a.Tool) + len(a.Metadata)
}
