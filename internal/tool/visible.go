package tool

import (
	"slices"
	"strings"
)

// visible are the images that clients show, and models that see.
var visible = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Visible reports a media type that models see.
func Visible(mediaType string) bool { return slices.Contains(visible, MediaType(mediaType)) }

// MediaType is a media type without its parameters, in small letters.
func MediaType(text string) string {
	kind, _, _ := strings.Cut(text, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}
