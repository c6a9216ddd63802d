package protocol

// MaxValues is how many values a message of a program that is not ours may have, more or less: what
// is made of a message takes many times its memory where it has many small ones.
const MaxValues = 100_000

// Values is how many values a JSON text has, more or less, and how deep its lists and objects are
// nested. It does not count on where there are more than most.
func Values(text []byte, most int) (n, depth int) {
	open := 0
	for i := 0; i < len(text) && n <= most; i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			n++
			open++
			depth = max(depth, open)
		case '}', ']':
			open--
		case ',':
			n++
		}
	}
	return n, depth
}
