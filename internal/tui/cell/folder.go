package cell

import "strings"

// maxFolder is how many bytes of a path are looked at.
const maxFolder = 4096

// Folder is a path in at most width cells: the user's home as ~, and, where it
// does not fit, without what lies in its middle. What a path says of where one is
// are its beginning and its end.
func Folder(path, home string, width int) string {
	if home != "" && home != "/" {
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(home, "/")); ok && (rest == "" || rest[0] == '/') {
			path = "~" + rest
		}
	}
	path = Line(path, maxFolder)
	if Width(path) <= width {
		return path
	}
	tail := TruncateLeft(path, max(width*2/3, 1))
	return strings.TrimSuffix(Truncate(path, width-Width(tail)+1), "…") + tail
}
