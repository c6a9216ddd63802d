package policy

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// theBash runs lines in a real bash in which no command can be found and no
// builtin is left: each command comes to a function that says which words it was
// called with. It is a restricted one, in an empty folder, so that a line that we
// misjudge can neither name a program by its path nor write a file.
type theBash struct {
	path, dir string
	prelude   string
}

func newBash(t testing.TB) *theBash {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here to compare with")
	}
	b := &theBash{path: path, dir: t.TempDir()}
	out, err := exec.Command(path, "--norc", "--noprofile", "-c", "compgen -b").Output()
	if err != nil {
		t.Fatal(err)
	}
	builtins := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return name == "printf" || name == "enable" || name == "return"
	})
	b.prelude = "command_not_found_handle() { printf '%s\\0' $# \"$@\" >&9; return $STATUS; }\n" +
		"enable -n " + strings.Join(builtins, " ") + " enable\n"
	return b
}

// run returns the commands that bash calls for a line, each as its words in
// quotes, sorted; whether the first succeeds is for both cases.
func (b *theBash) run(t testing.TB, line string) []string {
	t.Helper()
	all := map[string]int{}
	for _, status := range []string{"0", "1"} {
		count := map[string]int{}
		for _, called := range b.once(t, line, status) {
			count[called]++
		}
		for called, n := range count {
			all[called] = max(all[called], n)
		}
	}
	var list []string
	for called, n := range all {
		for range n {
			list = append(list, called)
		}
	}
	slices.Sort(list)
	return list
}

func (b *theBash) once(t testing.TB, line, status string) []string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, "--norc", "--noprofile", "-r", "-c", b.prelude+line)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=/nonexistent", "LC_ALL=C.UTF-8", "STATUS=" + status, "HOME=/nonexistent"}
	cmd.ExtraFiles = []*os.File{w, w, w, w, w, w, w} // 9 is the last
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // how it ended is the line's own
	return records(t, out.String())
}

func records(t testing.TB, text string) (list []string) {
	t.Helper()
	words := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
	if text == "" {
		return nil
	}
	for len(words) > 0 {
		n, err := strconv.Atoi(words[0])
		if err != nil || n >= len(words) {
			t.Fatalf("got %q from bash", text)
		}
		list = append(list, fmt.Sprintf("%q", words[1:n+1]))
		words = words[n+1:]
	}
	return list
}

// plainly is what we say that a line runs, in the form of theBash; ok is false
// for a line that no rule can allow.
func plainly(line string) (list []string, ok bool) {
	l := readLine(line)
	for _, c := range l.plain {
		var words []string
		for _, w := range c {
			words = append(words, w.text)
		}
		list = append(list, fmt.Sprintf("%q", words))
	}
	slices.Sort(list)
	return list, l.why == ""
}

// comparable tells whether a line can be given to theBash: what is left of it
// there is all seen.
func comparable(line string) bool {
	for _, c := range readLine(line).plain {
		if name := c[0].text; strings.Contains(name, "/") || name == "printf" || name == "return" {
			return false
		}
	}
	return len(line) < 1000
}

// What we say that a plain line runs, bash runs: these words, and nothing else.
func TestBashRunsWhatWeRead(t *testing.T) {
	b := newBash(t)
	for _, line := range ordinary {
		want, ok := plainly(line)
		if !ok || !comparable(line) {
			continue
		}
		if got := b.run(t, line); !slices.Equal(got, want) {
			t.Errorf("%q: bash runs %s, we read %s", line, got, want)
		}
	}
}

// None of the lines that try to get past a rule is plain, unless bash runs just
// what we read.
func TestBashAndTheLinesThatTry(t *testing.T) {
	b := newBash(t)
	for _, c := range past {
		want, ok := plainly(c.line)
		if !ok || !comparable(c.line) {
			continue
		}
		if got := b.run(t, c.line); !slices.Equal(got, want) {
			t.Errorf("%s: %q: bash runs %s, we read %s", c.name, c.line, got, want)
		}
	}
}

// Whatever the line: if a rule could allow it, bash runs just what we read.
func FuzzAgainstBash(f *testing.F) {
	b := newBash(f)
	seed(f)
	f.Fuzz(func(t *testing.T, line string) {
		want, ok := plainly(line)
		if !ok || !comparable(line) {
			return
		}
		if got := b.run(t, line); !slices.Equal(got, want) {
			t.Errorf("%q: bash runs %s, we read %s", line, got, want)
		}
	})
}

// tokens are what lines are put together of, most of them harmless, so that many
// lines are plain; the rest looks for what is read differently.
var tokens = strings.Split("git|status| |  |\t|\n|;|&&|OR|PIPE|2>&1|>&2|1>&2|'|'a b'|\"a "+
	"b\"|''|\"\"|\\ |\\a|\\2|\\;|\\'|\\\"|\\\\|\"\\\\\"|\"\\a\"|\"\\\"\"|'\\'|"+
	"#|'#'|\\#|x#y|~|a~b|=|a=b|:|a:~|-|--|/|.|..|,|+|@|%|^|[|]|{}|a{b|1|2|12|!|$|'$'|\\$|*|'*'|é|'é'|if|then|fi|do|done|in|time|{|}|(|)|<|&|echo|ls|go|\"|`|$(|\\\n|<<E|\nE\n|git status|;git status", "|")

func put(choices []byte) string {
	var b strings.Builder
	for _, c := range choices {
		b.WriteString(strings.NewReplacer("OR", "||", "PIPE", "|").Replace(tokens[int(c)%len(tokens)]))
		if c >= 128 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Lines that are put together at random, always the same: bash runs just what we
// read of those that are plain.
func TestRandomLinesAgainstBash(t *testing.T) {
	b := newBash(t)
	random := rand.New(rand.NewPCG(14, 3))
	for compared := 0; compared < 200; {
		choices := make([]byte, 1+random.IntN(12))
		for i := range choices {
			choices[i] = byte(random.IntN(256))
		}
		line := put(choices)
		want, ok := plainly(line)
		if !ok || !comparable(line) {
			continue
		}
		compared++
		if got := b.run(t, line); !slices.Equal(got, want) {
			t.Errorf("%q: bash runs %s, we read %s", line, got, want)
		}
	}
}

const noStatus = "[[policy.rule]]\ntool = \"bash\"\ndecision = \"deny\"\ncommand = [\"git\", \"status\"]\n"

// unseen gives a line that a rule does not deny to bash, which must not run what
// is denied, and reports whether it could be given. Functions could call
// themselves for ever.
func (b *theBash) unseen(t *testing.T, denies *Set, line string) bool {
	t.Helper()
	file, err := parse(line)
	if err != nil || len(line) > 1000 || denies.Decide(bashCall(line, false)).Verdict != Allow {
		return false
	}
	safe := true
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.FuncDecl, *syntax.WhileClause, *syntax.ForClause, *syntax.CoprocClause:
			safe = false
		}
		return safe
	})
	if !safe {
		return false
	}
	for _, called := range b.run(t, line) {
		if strings.HasPrefix(called, `["git" "status"`) {
			t.Errorf("%q: bash runs %s, which is denied", line, called)
		}
	}
	return true
}

// Lines that are put together at random, always the same: of those in which we
// see nothing that is denied, bash runs nothing that is.
func TestRandomLinesAgainstADeny(t *testing.T) {
	b, denies := newBash(t), rulesOf(t, noStatus)
	random := rand.New(rand.NewPCG(14, 4))
	for compared := 0; compared < 200; {
		choices := make([]byte, 1+random.IntN(12))
		for i := range choices {
			choices[i] = byte(random.IntN(256))
		}
		if b.unseen(t, denies, put(choices)) {
			compared++
		}
	}
}

// As TestRandomLinesAgainstADeny, with whatever can be put together.
func FuzzDenyAgainstBash(f *testing.F) {
	b, denies := newBash(f), rulesOf(f, noStatus)
	f.Add([]byte{0, 2, 1, 2, 10})
	f.Fuzz(func(t *testing.T, choices []byte) { b.unseen(t, denies, put(choices)) })
}

// As FuzzAgainstBash, with lines put together of tokens.
func FuzzTokensAgainstBash(f *testing.F) {
	b := newBash(f)
	f.Add([]byte{0, 2, 1, 2, 10})
	f.Fuzz(func(t *testing.T, choices []byte) {
		line := put(choices)
		want, ok := plainly(line)
		if !ok || !comparable(line) {
			return
		}
		if got := b.run(t, line); !slices.Equal(got, want) {
			t.Errorf("%q: bash runs %s, we read %s", line, got, want)
		}
	})
}

func seed(f *testing.F) {
	for _, line := range ordinary {
		f.Add(line)
	}
	for _, c := range past {
		f.Add(c.line)
	}
	for _, c := range pastDeny {
		f.Add(c.line)
	}
}
