package tool

import (
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/cmdline"
)

// others are the fields of an object that nobody knows. A descriptor may have some
// (amplifier-protocols §1).
type others map[string]jsontext.Value

// ignored says of each of the document's unknown fields that it does nothing.
func (doc *document) ignored() []string {
	list := doc.Others.ignored("", doc)
	list = append(list, doc.Transport.Others.ignored("transport.", doc.Transport.Transport)...)
	for name, op := range doc.Operations {
		if op != nil {
			list = append(list, op.Others.ignored("operations."+name+".", op)...)
		}
	}
	slices.Sort(list)
	return list
}

// ignored has a line for each field. of has those that are known.
func (o others) ignored(within string, of any) (list []string) {
	for name := range o {
		if !strings.HasPrefix(name, "$") {
			list = append(list, within+name+" does nothing: there is no such field"+cmdline.DidYouMean(name, fieldNames(of)))
		}
	}
	return list
}

// fieldNames are the names that a struct's fields have in a file.
func fieldNames(of any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.Indirect(reflect.ValueOf(of)).Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
