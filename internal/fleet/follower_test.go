package fleet

import (
	"bytes"
	"strings"
	"testing"
)

// What the real server sends passes, however it is split.
func TestFollowTheProtocol(t *testing.T) {
	text := "INFO {\"server_id\":\"x\"} \r\nPONG\r\n+OK\r\nPING\r\n-ERR 'Permissions Violation for Publish to \"x\"'\r\n" +
		"MSG a.b 1 5\r\nMSG \n\r\nMSG a.b 1 _INBOX.x 0\r\n\r\nHMSG a 22 12 14\r\nNATS/1.0\r\n\r\nxx\r\nHMSG a 22 r.r 12 " +
		"12\r\nNATS/1.0\r\n\r\n\r\n"
	for size := 1; size <= len(text); size++ {
		var f follower
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if err := f.follow(rest[:min(size, len(rest))]); err != nil {
				t.Fatalf("in parts of %d bytes, before %q: %v", size, rest, err)
			}
		}
		if f.skip != 0 || f.ended || len(f.line) != 0 {
			t.Fatalf("in parts of %d bytes: %+v is left", size, f)
		}
	}
}

// No bytes, split anywhere, have the library's parser make room for more than is allowed.
func FuzzFollow(f *testing.F) {
	for _, seed := range []string{
		"INFO {}\r\nMSG a 1 5\r\nhello\r\nPING\r\n", "MSG a 1 9000000000000000000\r\n",
		"-ERR \nMSG a 1 10\r\nMSG a 1 9000000000000000000\r\n",
		"HMSG a 1 2 3\r\nabc\r\n", "MSG a 1 1\r\n\n\r\nMSG a 1 999999999999\r\n", "MSG \n1 2 3\r\nINFO \nMSG",
		"PINGMSG a 1 9\n+OK\r\nMSG\ta b 3\r\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		var whole, parts follower
		err := whole.follow(text)
		var inParts error
		for rest := text; len(rest) > 0 && inParts == nil; {
			n := min(int(step)+1, len(rest))
			inParts = parts.follow(rest[:n])
			rest = rest[n:]
		}
		if (err == nil) != (inParts == nil) {
			t.Fatalf("whole: %v, in parts: %v", err, inParts)
		}
		if largest := parsed(text); err == nil && largest > maxMessage {
			t.Fatalf("a message of %d bytes passes", largest)
		}
	})
}

// parsed is the largest size that the library's parser finds; it stops where that fails.
// It goes by parser.go of nats.go, where a line's first byte may be its end.
func parsed(text []byte) (largest uint64) {
	for len(text) > 0 {
		args, verb := text, ""
		for _, v := range []string{"HMSG", "MSG", "-ERR", "INFO", "PING", "PONG", "+OK"} {
			if len(text) >= len(v) && strings.EqualFold(string(text[:len(v)]), v) {
				args, verb = text[len(v):], v
				break
			}
		}
		switch verb {
		case "":
			return largest
		case "PING", "PONG", "+OK":
			_, text, _ = bytes.Cut(args, []byte{'\n'})
			continue
		}
		if len(args) == 0 || args[0] != ' ' && args[0] != '\t' {
			return largest
		}
		args = bytes.TrimLeft(args, " \t")
		if len(args) == 0 {
			return largest
		}
		end := bytes.IndexByte(args[1:], '\n') + 1
		if end == 0 {
			return largest
		}
		line := args[:end]
		text = args[end+1:]
		if verb == "-ERR" || verb == "INFO" {
			continue
		}
		words := bytes.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) })
		if least := map[string]int{"MSG": 3, "HMSG": 4}[verb]; len(words) != least && len(words) != least+1 {
			return largest
		}
		size := uint64(0)
		for _, digit := range words[len(words)-1] {
			if digit < '0' || digit > '9' {
				return largest
			}
			size = size*10 + uint64(digit-'0')
		}
		largest = max(largest, size)
		if size >= uint64(len(text)) {
			return largest
		}
		_, text, _ = bytes.Cut(text[size+1:], []byte{'\n'})
	}
	return largest
}

func BenchmarkFollow(b *testing.B) {
	text := bytes.Repeat([]byte("MSG noused.box.evt.ses-1 12 $JS.ACK.x 512\r\n"+strings.Repeat("x", 512)+"\r\n"), 58)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var f follower
	for b.Loop() {
		if err := f.follow(text); err != nil {
			b.Fatal(err)
		}
	}
}
