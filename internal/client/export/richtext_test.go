package export

import (
	"regexp"
	"strings"
	"testing"

	"noused/internal/plaintext"
)

func TestRichText(t *testing.T) {
	for source, want := range map[string]string{
		"# Head\n\nsome **bold** `a<b`": "<h1>Head</h1>\n<p>some <strong>bold</strong> <code>a&lt;b</code></p>\n",
		"```go\nif a < b {\n\t}\n```":   "<pre><code class=\"language-go\">if a &lt; b {\n\t}\n</code></pre>\n",
		"- one\n- two":                  "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n",
		"vector<int> and <path>":        "<p>vector&lt;int&gt; and &lt;path&gt;</p>\n",
		"<div onclick=x>\nhi\n</div>":   "<p>&lt;div onclick=x&gt;\nhi\n&lt;/div&gt;</p>\n",
		"[a](https://x.org/?a=1&b=2 \"t\")": "<p><a href=\"https://x.org/?a=1&amp;b=2\" rel=\"noopener " +
			"noreferrer\">a</a></p>\n",
		"[a *b*](javascript:alert(1))":         "<p>a <em>b</em></p>\n",
		"[a](JaVa&#115;cript:alert(1))":        "<p>a</p>\n",
		"[a](java&Tab;script:alert(1))":        "<p>a</p>\n",
		"[a](data:text/html,x)":                "<p>a</p>\n",
		"[a][b]\n\n[b]: vbscript:x":            "<p>a</p>\n",
		"<javascript:alert(1)>":                "<p>javascript:alert(1)</p>\n",
		"![p](https://x.org/p.png)":            "<p><a href=\"https://x.org/p.png\" rel=\"noopener noreferrer\">p</a></p>\n",
		"![p](data:image/png;base64,aaaa)":     "<p>p</p>\n",
		"[![p](https://x.org/p)](javascript:)": "<p><a href=\"https://x.org/p\" rel=\"noopener noreferrer\">p</a></p>\n",
		strings.Repeat("> ", 30) + "deep":      "",
		strings.Repeat("[", 20000):             "",
	} {
		if got := string(richText(source)); got != want {
			t.Errorf("%.60q: got %q, want %q", source, got, want)
		}
	}
}

var (
	tag  = regexp.MustCompile(`<[/!?a-zA-Z][^>]*>`)
	fine = regexp.MustCompile(
		`^</?(h[1-6]|p|strong|em|del|code|pre|ul|ol|li|blockquote|hr|br|a|table|thead|tbody|tr|th|td|input)( (class="language-[^"]*"|rel="noopener noreferrer"|href="[^"]*"|start="[0-9]+"|style="text-align:(left|right|center)"|align="(left|right|center)"|checked=""|disabled=""|type="checkbox"))*( /)?>$`)
	href = regexp.MustCompile(`(?i)href="([a-z][a-z0-9+.-]*):`)
)

func FuzzRichText(f *testing.F) {
	for _, source := range []string{
		"[a](javascript:x)", "<script>x</script>", "![a](data:x)", "<http://x> www.x.org a@b.org",
		"- [x] a\n\n|a|b|\n|-|:-:|\n|c|d|",
		"[a]\n\n[a]: <java\nscript:x> 'y\"'", "```a\"onload=x\nb\n```", "&lt;b&gt; \\<b>",
	} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		got := string(richText(plaintext.Text(source)))
		for _, found := range tag.FindAllString(got, -1) {
			if !fine.MatchString(found) {
				t.Fatalf("%q: the page has %s", source, found)
			}
		}
		for _, m := range href.FindAllStringSubmatch(got, -1) {
			switch strings.ToLower(m[1]) {
			case "http", "https", "mailto":
			default:
				t.Fatalf("%q: a link leads to %s: %s", source, m[1], got)
			}
		}
	})
}

func TestMarkdownOfDangerousTextsIsCode(t *testing.T) {
	for source, want := range map[string]string{
		"a [b](https://x.org) <path> vector<int>": "> a [b](https://x.org) <path> vector<int>",
		"a [b](javascript:x)":                     "> ```\n> a [b](javascript:x)\n> ```",
		"a [b](&#106;avascript:x)":                "> ```\n> a [b](&#106;avascript:x)\n> ```",
		"![b](data:text/html,x)":                  "> ```\n> ![b](data:text/html,x)\n> ```",
		"<javascript:x>":                          "> ```\n> <javascript:x>\n> ```",
		"[b]: javascript:x":                       "> ```\n> [b]: javascript:x\n> ```",
		"<a href=javascript:x>b</a>":              "> ```\n> <a href=javascript:x>b</a>\n> ```",
		"<script>x</script>":                      "> ```\n> <script>x</script>\n> ```",
		"`[b](javascript:x)` is code":             "> `[b](javascript:x)` is code",
	} {
		if got := quotedText(source); got != want {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
}
