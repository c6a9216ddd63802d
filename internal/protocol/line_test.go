package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"noused/internal/budget"
)

// read is what a reader yields of a source: lines, and "too long: " with the
// prefix of those over the limit.
func read(t testing.TB, l *LineReader) (out []string, end error) {
	t.Helper()
	for {
		line, err := l.Next()
		var long *LineTooLongError
		switch {
		case errors.As(err, &long):
			if line != nil {
				t.Fatalf("a line and an error: %q, %v", line, err)
			}
			out = append(out, "too long: "+string(long.Prefix))
		case err != nil:
			return out, err
		default:
			out = append(out, string(line))
		}
	}
}

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 3<<10)
	for _, c := range []struct {
		name, in string
		limit    int
		want     []string
	}{
		{"nothing", "", 9, nil},
		{"lines", "one\ntwo\n", 9, []string{"one", "two"}},
		{"CR LF", "one\r\ntwo\r\n", 9, []string{"one", "two"}},
		{"one CR only", "one\r\r\n!\n", 9, []string{"one\r", "!"}},
		{"a CR inside", "o\rne\n", 9, []string{"o\rne"}},
		{"empty lines", "\n\r\n\none\n\n", 9, []string{"one"}},
		{"an unfinished last line", "one\ntwo", 9, []string{"one", "two"}},
		{"an unfinished last CR", "one\n\r", 9, []string{"one"}},
		{"other separators", "a\u2028b\u0085c\x00d\ve\n", 99, []string{"a\u2028b\u0085c\x00d\ve"}},
		{"exactly the limit", "123456789\n", 9, []string{"123456789"}},
		{"exactly the limit and CR", "123456789\r\n", 9, []string{"123456789"}},
		{"exactly the limit, unfinished", "123456789", 9, []string{"123456789"}},
		{"one over", "1234567890\nnext\n", 9, []string{"too long: 1234567890", "next"}},
		{"one over and CR", "1234567890\r\nnext\n", 9, []string{"too long: 1234567890", "next"}},
		{"one over, unfinished", "1234567890", 9, []string{"too long: 1234567890"}},
		{"far over", long + "\nnext\n", 9, []string{"too long: " + long[:1024], "next"}},
		{"far over, unfinished", "first\n" + long, 9, []string{"first", "too long: " + long[:1024]}},
		{"two over", "1234567890\n1234567890\nnext\n", 9, []string{"too long: 1234567890", "too long: 1234567890", "next"}},
		{
			"larger than the first buffer", strings.Repeat("y", 100<<10) + "\nnext\n", 1 << 20,
			[]string{strings.Repeat("y", 100<<10), "next"},
		},
	} {
		for name, src := range map[string]io.Reader{
			"at once":           strings.NewReader(c.in),
			"byte by byte":      iotest.OneByteReader(strings.NewReader(c.in)),
			"data with the end": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			got, end := read(t, NewLineReader(src, c.limit))
			for i, line := range got { // how much of a long line was read is chance
				line = strings.TrimSuffix(line, "\r")
				if i < len(c.want) && len(line) > len("too long: ") && strings.HasPrefix(line, "too long: ") &&
					strings.HasPrefix(c.want[i], line) {
					got[i] = c.want[i]
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(end, io.EOF) {
				t.Errorf("%s, %s: end %v (-want +got):\n%s", c.name, name, end, diff)
			}
		}
	}
}

func TestLineReaderKeepsItsError(t *testing.T) {
	broken := errors.New("broken")
	l := NewLineReader(io.MultiReader(strings.NewReader("one\ntw"), iotest.ErrReader(broken)), 9)
	got, err := read(t, l)
	if diff := cmp.Diff([]string{"one", "tw"}, got); diff != "" || !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v (-want +got):\n%s", err, broken, diff)
	}
	if _, err := l.Next(); !errors.Is(err, broken) {
		t.Errorf("asked again: got %v, want %v", err, broken)
	}
}

func TestLineReaderGivesUpOnAStuckSource(t *testing.T) {
	if _, err := NewLineReader(stuck{}, 9).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v, want %v", err, io.ErrNoProgress)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// More decides whether replies are held back for one more: what it promises
// must be there, or a client waits for ever.
func TestMoreNeverPromisesALineThatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		name, rest string
		want       bool
	}{
		{"nothing", "", false},
		{"a line", "two\n", true},
		{"one byte", "2\n", true},
		{"half a line", "tw", false},
		{"an empty line", "\n", false},
		{"empty lines", "\r\n\n\r\n", false},
		{"a line behind empty ones", "\n\r\ntwo\n", true},
		{"half a line behind empty ones", "\n\r\ntw", false},
	} {
		end := errors.New("would block")
		l := NewLineReader(io.MultiReader(strings.NewReader("one\n"+c.rest), iotest.ErrReader(end)), 9)
		if line, err := l.Next(); string(line) != "one" || err != nil {
			t.Fatalf("%s: first line: got %q, %v", c.name, line, err)
		}
		got := l.More()
		if got != c.want || got != l.More() {
			t.Errorf("%s: got %t, then %t, want %t", c.name, got, l.More(), c.want)
		}
		line, err := l.Next()
		if want := strings.Trim(c.rest, "\r\n"); string(line) != want || want == "" && !errors.Is(err, end) {
			t.Errorf("%s: the next line: got %q, %v, want %q", c.name, line, err, want)
		}
	}
}

func TestLineReaderStaysSmall(t *testing.T) {
	const limit = 1 << 20
	endless := io.MultiReader(io.LimitReader(repeat('x'), 100<<20), strings.NewReader("\nnext\n"))
	l := NewLineReader(endless, limit)
	got, _ := read(t, l)
	if diff := cmp.Diff([]string{"too long: " + strings.Repeat("x", 1<<10), "next"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if cap(l.buf) > limit+lineBuffer {
		t.Errorf("the reader holds %d bytes, want at most the limit of %d and one read", cap(l.buf), limit)
	}
	l = NewLineReader(io.MultiReader(strings.NewReader(strings.Repeat("x", limit)+"\n"), strings.NewReader("next\n")),
		limit)
	for range 2 {
		if _, err := l.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(l.buf) > keepBuffer {
		t.Errorf("the reader keeps %d bytes after a large line, want at most %d", cap(l.buf), keepBuffer)
	}
}

type repeat byte

func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// chunks hands a source out in reads of the sizes it is given.
type chunks struct {
	src   []byte
	sizes []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.src) == 0 {
		return 0, io.EOF
	}
	n := 1
	if len(c.sizes) > 0 {
		n, c.sizes = int(c.sizes[0]), c.sizes[1:]
	}
	n = copy(p, c.src[:min(n, len(c.src))])
	c.src = c.src[n:]
	return n, nil
}

// FuzzLineReader compares the reader with the obvious way to cut a text that
// is all there into lines.
func FuzzLineReader(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\nthree"), []byte{1, 2, 3}, uint16(4))
	f.Add([]byte(strings.Repeat("x", 300)+"\n\r\nlast"), []byte{255, 0, 255}, uint16(299))
	f.Add([]byte("\r\n\r\r\n\r"), []byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, text, sizes []byte, limit16 uint16) {
		limit := int(limit16)
		var want []string
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			line = bytes.TrimSuffix(line, []byte("\r"))
			switch {
			case len(line) > limit:
				want = append(want, fmt.Sprintf("too long: %d", limit))
			case len(line) > 0:
				want = append(want, "line: "+string(line))
			}
		}
		var got []string
		l := NewLineReader(&chunks{bytes.Clone(text), sizes}, limit)
		for {
			promised := l.More()
			line, err := l.Next()
			var long *LineTooLongError
			switch {
			case errors.As(err, &long):
				got = append(got, fmt.Sprintf("too long: %d", long.Limit))
				if len(long.Prefix) == 0 || !bytes.Contains(text, long.Prefix) {
					t.Fatalf("prefix %q is not from %q", long.Prefix, text)
				}
				continue
			case err == nil:
				got = append(got, "line: "+string(line))
				continue
			case !errors.Is(err, io.EOF):
				t.Fatal(err)
			case promised:
				t.Fatal("More promised a line, Next had none")
			}
			break
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d, %q (-want +got):\n%s", limit, text, diff)
		}
	})
}

// What a line takes beyond the first 8 KiB is taken from the budget as it arrives,
// and given back when the line is done with.
func TestLinesShareABudget(t *testing.T) {
	const limit = 64 << 10
	b := budget.New(limit)
	long := strings.Repeat("x", limit/2)
	one := NewLineReader(strings.NewReader(long+"\nnext\n"), limit).Within(b)
	other := NewLineReader(strings.NewReader(long+"\nnext\n"), limit).Within(b)
	if line, err := one.Next(); len(line) != len(long) || err != nil || b.Used() == 0 {
		t.Fatalf("got %d bytes, %v, %d in use", len(line), err, b.Used())
	}
	var refused *LineTooLongError
	if _, err := other.Next(); !errors.As(err, &refused) || !refused.NoRoom || len(refused.Prefix) == 0 {
		t.Errorf("got %v, want that there is no room", err)
	}
	if _, o := TooLong(refused); AsError(o.Err()).Code != CommandRejected {
		t.Errorf("got %v", o.Err())
	}
	one.Shrink()
	for _, l := range []*LineReader{one, other} {
		if line, err := l.Next(); string(line) != "next" || err != nil {
			t.Errorf("got %q, %v, want the next line", line, err)
		}
		l.Close()
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are still in use", b.Used())
	}
}
