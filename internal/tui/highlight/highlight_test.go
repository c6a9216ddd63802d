package highlight

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var kindNames = []string{
	"", "comment", "keyword", "type", "func", "string", "number", "name", "tag", "meta", "added",
	"removed",
}

// told is code with what each piece is before it: ‹keyword return›.
func told(code, lang string) string {
	var out strings.Builder
	for _, token := range Scan(code, lang) {
		if token.Kind == Text {
			out.WriteString(token.Text)
		} else {
			out.WriteString("‹" + kindNames[token.Kind] + " " + token.Text + "›")
		}
	}
	return out.String()
}

func TestLanguages(t *testing.T) {
	for _, c := range []struct{ lang, code, want string }{
		{
			"go", "func (t *T) Add(a int) error { return `a\nb` + f('x', 0x1f) } // end",
			"‹keyword func› (t *T) ‹func Add›(a ‹type int›) ‹type error› { ‹keyword return› ‹string `a\nb`› + ‹func " +
				"f›(‹string 'x'›, ‹number 0x1f›) } ‹comment // end›",
		},
		{"go", "type X struct{ a.type }", "‹keyword type› ‹type X› ‹keyword struct›{ a.type }"},
		{
			"python", "@app.get\ndef f(x=1e-3):\n  \"\"\"a\n  b\"\"\"\n  return r'\\' + None # c",
			"‹meta @app›.get\n‹keyword def› ‹func f›(x=‹number 1e-3›):\n  ‹string \"\"\"a\n  b\"\"\"›\n  ‹keyword return› " +
				"‹string r'\\'› + ‹number None› ‹comment # c›",
		},
		{"js", "a / b; x = /['\"]/g", "a / b; x = ‹string /['\"]/g›"},
		{
			"tsx", "let a: string = `x ${f(\"}\")} y`",
			"‹keyword let› a: ‹type string› = ‹string `x ›${‹func f›(‹string \"}\"›)}‹string  y`›",
		},
		{
			"rust", "#[test]\nfn f<'a>(x: &'a str) { p!('c', r#\"a\"b\"#) /* a /* b */ c */ }",
			"‹meta #[test]›\n‹keyword fn› ‹func f›<'a>(x: &'a ‹type str›) { ‹func p›!(‹string 'c'›, ‹string r#\"a\"b\"#›) " +
				"‹comment /* a /* b */ c */› }",
		},
		{"c", "#include <a.h>\nint x = MAX;", "‹meta #include› ‹string <a.h>›\n‹type int› x = MAX;"},
		{
			"java", "@Override public Foo f() { return MAX; }",
			"‹meta @Override› ‹keyword public› ‹type Foo› ‹func f›() { ‹keyword return› ‹number MAX›; }",
		},
		{
			"kotlin", "val s = \"a $b ${c + \"d\"}\"",
			"‹keyword val› s = ‹string \"a ›‹name $b›‹string  ›${c + ‹string \"d\"›}‹string \"›",
		},
		{
			"ruby", "def ok?; @a = :b; \"#{c[\"d\"]}\"; end",
			"‹keyword def› ‹func ok?›; ‹name @a› = ‹name :b›; ‹string \"›#{c[‹string \"d\"›]}‹string \"›; ‹keyword end›",
		},
		{
			"bash", "if a \"$x\" ${y}#z; then # c\n  it's\nfi",
			"‹keyword if› a ‹string \"›‹name $x›‹string \"› ‹name ${y}›#z; ‹keyword then› ‹comment # c›\n  it‹string " +
				"'s›\n‹keyword fi›",
		},
		{"console", "$ git log \"x\"\nit's done\n", "‹meta $ ›git log ‹string \"x\"›\nit's done\n"},
		{"sql", "SELECT count(*) from t -- c", "‹keyword SELECT› ‹func count›(*) ‹keyword from› t ‹comment -- c›"},
		{
			"html", "<a href='x'>&amp;</a><!-- <b> -->",
			"<‹tag a› ‹name href›=‹string 'x'›>‹number &amp;›</‹tag a›>‹comment <!-- <b> -->›",
		},
		{"css", ".a { color: #fff; top: 1.5em }", "‹tag .a› { ‹name color›: ‹number #fff›; ‹name top›: ‹number 1.5em› }"},
		{"json", `{"a": [-1.5, true, "b"]}`, `{‹name "a"›: [-‹number 1.5›, ‹number true›, ‹string "b"›]}`},
		{"yaml", "- a-b: 'c' # d\n  x: http://y\n", "- ‹name a-b›: ‹string 'c'› ‹comment # d›\n  ‹name x›: http://y\n"},
		{"toml", "[a]\nb = \"c\"", "‹tag [a]›\n‹name b› = ‹string \"c\"›"},
		{"make", "all: $(X) # c", "‹name all›: $(X) ‹comment # c›"},
		{"dockerfile", "FROM a\nRUN copy $X", "‹keyword FROM› a\n‹keyword RUN› copy ‹name $X›"},
		{"clojure", "(defn f [x] (g :k))", "(‹keyword defn› ‹func f› [x] (‹func g› ‹name :k›))"},
		{"haskell", "f' :: Int -- c", "f' :: ‹type Int› ‹comment -- c›"},
		{"diff", "--- a\n@@ 1\n-b\n+c\n d", "‹meta --- a›\n‹meta @@ 1›\n‹removed -b›\n‹added +c›\n d"},
		{
			"markdown", "# a\nb `c`\n```\n# d\n```\n> e",
			"‹name # a›\nb ‹string `c`›\n‹string ```›\n‹string # d›\n‹string ```›\n‹comment > e›",
		},
		{"what", "func x", "func x"},
	} {
		if got := told(c.code, c.lang); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.lang, got, c.want)
		}
	}
}

func TestNamesOfLanguages(t *testing.T) {
	for name, want := range map[string]string{
		"a.go": "go", "src/App.TSX": "typescript", "Dockerfile.dev": "dockerfile", "a/Makefile": "make",
		`C:\a\b.ps1`:     "powershell",
		"CMakeLists.txt": "cmake", "notes.txt": "", "go": "", "": "", "a.unknown": "", ".bashrc": "bash", "x.tar.gz": "",
		" ": "",
	} {
		if got := OfFile(name); got != want {
			t.Errorf("%q is in %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"Rust,ignore": true, "{.python}": true, "c++": true, "C#": true, "ts:src/a.ts": true, "main.go": true, "sh": true,
		"": false, "text": false, "c c++": false, "plain": false, strings.Repeat("go", 200): false,
	} {
		if Known(name) != want {
			t.Errorf("%q is known: %t, want %t", name, !want, want)
		}
	}
	seen := map[string]bool{}
	for _, l := range languages {
		for name := range strings.SplitSeq(l.names, " ") {
			if seen[name] || name != strings.ToLower(name) {
				t.Errorf("%q is the name of two languages, or has capitals", name)
			}
			seen[name] = true
		}
		if got := OfFile("x" + strings.Fields(l.files + " .x")[0]); l.files != "" && l.files[0] == '.' &&
			!strings.HasPrefix(l.names, got) {
			t.Errorf("%s: a file of it is in %q", l.names, got)
		}
	}
}

// holds checks what is true of every text: nothing of it is changed, and no token
// ends within a character.
func holds(t interface{ Fatalf(string, ...any) }, code, lang string) {
	var out strings.Builder
	for _, token := range Scan(code, lang) {
		if token.Text == "" || utf8.ValidString(code) && !utf8.ValidString(token.Text) {
			t.Fatalf("%s: %q has the token %q", lang, code, token.Text)
		}
		out.WriteString(token.Text)
	}
	if out.String() != code {
		t.Fatalf("%s: %q becomes %q", lang, code, out.String())
	}
}

func TestTheTokensAreTheText(t *testing.T) {
	var parts, names []string
	for _, l := range languages {
		name, _, _ := strings.Cut(l.names, " ")
		names = append(names, name)
		parts = append(parts, l.open, l.close, l.hole, l.marks)
		parts = append(parts, strings.Fields(l.comments)...)
		for _, q := range l.quotes {
			parts = append(parts, q.open, q.close)
		}
	}
	parts = append(parts, " ", "\n", "\\", "a", "x1", "日本", "0x", "1.", ".", "(", ")", "{", "}", "<", "=", "/", "-",
		"é\xff", "#[", "#include <", "$ ")
	word := rapid.SampledFrom(parts)
	rapid.Check(t, func(t *rapid.T) {
		code := strings.Join(rapid.SliceOfN(word, 0, 60).Draw(t, "code"), "")
		holds(t, code, rapid.SampledFrom(names).Draw(t, "language"))
	})
}

func FuzzScan(f *testing.F) {
	f.Add("func f() { return \"x\" }", uint8(0))
	f.Add("\"a #{b \"c\" '\\", uint8(14))
	f.Fuzz(func(t *testing.T, code string, lang uint8) {
		name, _, _ := strings.Cut(languages[int(lang)%len(languages)].names, " ")
		holds(t, code, name)
	})
}

// Texts that are slow to read where a scanner looks ahead again and again: four times
// the text must not be more than four times the work, give or take.
func BenchmarkScan(b *testing.B) {
	for name, c := range map[string]struct{ lang, again string }{
		"go":         {"go", "func f(x int) string { return fmt.Sprint(x, \"y\") } // as it was\n"},
		"quotes":     {"bash", "'"},
		"holes":      {"js", "`${"},
		"marks":      {"bash", "${"},
		"tags":       {"html", "<&"},
		"directives": {"c", "#include <\n"},
		"slashes":    {"js", "(/"},
		"comments":   {"rust", "/*"},
	} {
		for _, size := range []struct {
			name  string
			bytes int
		}{{"16k", 16 << 10}, {"64k", 64 << 10}} {
			code := strings.Repeat(c.again, size.bytes/len(c.again))
			b.Run(name+"/"+size.name, func(b *testing.B) {
				b.SetBytes(int64(len(code)))
				for b.Loop() {
					Scan(code, c.lang)
				}
			})
		}
	}
}
