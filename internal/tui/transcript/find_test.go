package transcript

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"noused/internal/protocol"
)

// found searches to the end and says which match is shown, of how many.
func found(t *Transcript) string {
	for t.Finding() {
		t.FindMore(0)
	}
	t.FindMore(0)
	at, of := t.Found()
	return fmt.Sprintf("%d of %d", at, of)
}

// seen are the matches in a view, with the one that is shown in brackets: reversed
// on a screen without colours.
func seen(t *Transcript, height int) (all []string) {
	for _, line := range t.View(height) {
		line = strings.ReplaceAll(line, "\x1b[m\x1b[1;4;4m", "") // it is written character by character
		for _, m := range regexp.MustCompile("\x1b\\[(7|1;4;4)m(.*?)\x1b\\[m").FindAllStringSubmatch(line, -1) {
			text := ansi.Strip(m[2])
			if m[1] == "7" {
				text = "[" + text + "]"
			}
			all = append(all, text)
		}
	}
	return all
}

func TestFindShowsTheNearestMatchAndWalks(t *testing.T) {
	tr := fresh(Look{Width: 40})
	for i := range 60 {
		apply(tr, said(fmt.Sprint("m", i), "user", fmt.Sprintf("message %d about Boats", i))...)
	}
	tr.View(10)
	tr.Find("boat")
	if got := found(tr); got != "60 of 60" {
		t.Errorf("got %s, want the last one", got)
	}
	if got := fmt.Sprint(seen(tr, 10)); got != "[Boat Boat Boat Boat [Boat]]" {
		t.Errorf("got %s in the view", got)
	}
	for range 7 {
		tr.NextMatch(true)
		tr.View(10)
	}
	if got := found(tr); got != "53 of 60" || !strings.Contains(strings.Join(seen(tr, 10), " "), "[Boat]") {
		t.Errorf("got %s, %q", got, seen(tr, 10))
	}
	tr.Find("message 3")
	if got, see := found(tr), fmt.Sprint(seen(tr, 10)); got != "11 of 11" || !strings.Contains(see, "[message 3]") {
		t.Errorf("got %s, %s: want the nearest above", got, see)
	}
	tr.NextMatch(false) // round the end
	if got := found(tr); got != "1 of 11" {
		t.Errorf("got %s behind the last one", got)
	}
	tr.NextMatch(true)
	tr.Find("message 333")
	if got := found(tr); got != "0 of 0" || !tr.AtEnd() {
		t.Errorf("got %s, at the end %t", got, tr.AtEnd())
	}
	tr.Find("message 7 ")
	if got := found(tr); got != "1 of 1" || tr.AtEnd() {
		t.Errorf("got %s", got)
	}
	tr.EndFind(true)
	if got := tr.View(10); !tr.AtEnd() || !strings.Contains(strings.Join(got, "\n"), "message 59") ||
		len(seen(tr, 10)) > 0 {
		t.Errorf("the search leaves %q", got)
	}
}

// However fast a text is typed, the view at its end is the same.
func TestTheViewOfAMatchIsThatOfTheWholeText(t *testing.T) {
	views := map[string]bool{}
	for _, typed := range [][]string{{"about 3"}, {"a", "about", "about 3"}, {"about 4", "about 40", "about 3"}} {
		tr := fresh(Look{Width: 40})
		for i := range 60 {
			apply(tr, said(fmt.Sprint("m", i), "user", fmt.Sprintf("message %d, about %d", i, i))...)
		}
		tr.View(10)
		for _, text := range typed {
			tr.Find(text)
			found(tr)
			tr.View(10)
		}
		views[strings.Join(tr.View(10), "\n")] = true
	}
	if len(views) != 1 {
		t.Errorf("got %d views of one match: %v", len(views), views)
	}
}

func TestCapitalLettersMatterWhereTheTextHasOne(t *testing.T) {
	tr := fresh(Look{Width: 40})
	apply(tr, said("m1", "user", "Boat boat BOAT, Straße ΣΊΣΥΦΟΣ")...)
	tr.View(10)
	for text, want := range map[string]string{
		"boat": "3 of 3", "Boat": "1 of 1", "BOAT": "1 of 1", "straße": "1 of 1", "σίσυφος": "1 of 1", "  ": "0 of 0",
		"boat, str": "1 of 1",
	} {
		tr.Find(text)
		if got := found(tr); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// What is on the screen is found as it reads there: without its marks, over the
// end of a line that was wrapped, in wide characters, and in code.
func TestFindReadsWhatTheScreenShows(t *testing.T) {
	text := "Here is **a bold** word in a line that is long enough to be wrapped, and " +
		"averyverylongwordthatfitsintonolinewhatsoever at all.\n\n" +
		"日本語の長い文章は折り返されますので見つけるのは難しいですよね。\n\n- a `pointed` list &amp; more\n\n```go\nfunc f(x int) string { return g(x) " +
		"}\n```\n"
	for name, look := range map[string]Look{"colours": {Width: 40, Dark: true, Color: true}, "none": {Width: 40}} {
		text := text
		if !look.Color { // which shows marks
			text = strings.ReplaceAll(text, "**", "")
		}
		tr := fresh(look)
		apply(tr, said("m1", "assistant", text)...)
		tr.View(30)
		for text, want := range map[string]string{
			"is a bold word": "1 of 1", "long enough to be wrapped": "1 of 1", "fitsintonolinewhatsoever": "1 of 1",
			"折り返されますので見つけるのは": "1 of 1", "f(x int)": "1 of 1", "**": "0 of 0", "list & more": "1 of 1", "wrappedand": "0 of 0",
		} {
			tr.Find(text)
			if got := found(tr); got != want {
				t.Errorf("%s: %q: got %s, want %s in\n%s", name, text, got, want, ansi.Strip(strings.Join(tr.View(30), "\n")))
			}
		}
		tr.Find("難しい")
		found(tr)
		for _, line := range tr.View(30) {
			if w := ansi.StringWidth(line); w > 40 {
				t.Errorf("%q takes %d cells", line, w)
			}
		}
	}
}

// What is folded is found, shown, and folded again.
func TestFindUnfolds(t *testing.T) {
	tr := fresh(Look{Width: 60})
	var out strings.Builder
	for i := range 300 {
		fmt.Fprintf(&out, "row %d.\n", i)
	}
	k := call("k1", "bash", `{"command":"rows"}`)
	apply(tr, said("m1", "user", "show rows")...)
	apply(tr, protocol.MessageUpdate{Ref: here, MessageID: "m2", ThinkingDelta: "a hidden thought of row 123."})
	apply(tr, said("m2", "assistant", "", k)[1:]...)
	apply(tr, begun(k), done(k, out.String()))
	apply(tr, said("m3", "assistant", "that was it")...)
	before := strings.Join(tr.View(20), "\n")
	if strings.Contains(before, "row 123") {
		t.Fatal("nothing is folded")
	}
	tr.Find("row 123.")
	if got := found(tr); got != "2 of 2" || !strings.Contains(strings.Join(seen(tr, 20), ""), "[row 123.]") {
		t.Errorf("got %s in\n%s", got, strings.Join(tr.View(20), "\n"))
	}
	tr.NextMatch(true)
	if view := strings.Join(tr.View(20), "\n"); !strings.Contains(ansi.Strip(view), "hidden thought of row 123.") ||
		strings.Contains(view, "row 150") {
		t.Errorf("the thought is shown, and the output folded again:\n%s", view)
	}
	tr.EndFind(true)
	if after := strings.Join(tr.View(20), "\n"); after != before {
		t.Errorf("it leaves\n%s, want\n%s", after, before)
	}
	tr.Find("row 123.")
	found(tr)
	tr.EndFind(false)
	if view := strings.Join(tr.View(20), "\n"); !strings.Contains(view, "row 123.") || tr.AtEnd() {
		t.Errorf("it does not stay:\n%s", view)
	}
}

// While a message streams its matches are counted, and the one that is shown
// stays where it is.
func TestFindWhileAMessageStreams(t *testing.T) {
	tr := fresh(Look{Width: 40})
	apply(tr, said("m1", "user", "find the needle")...)
	tr.View(12)
	tr.Find("needle")
	found(tr)
	for i := range 200 {
		apply(tr, protocol.MessageUpdate{Ref: here, MessageID: "m2", Delta: fmt.Sprintf("one more needle %d here\n\n", i)})
		if got, want := found(tr), fmt.Sprintf("1 of %d", i+2); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if see := seen(tr, 12); len(see) == 0 || see[0] != "[needle]" {
			t.Fatalf("%d: the match has gone: %q", i, see)
		}
	}
	apply(tr, protocol.MessageEnd{Ref: here, MessageID: "m2", Role: "assistant", Text: "no more of it"})
	if got := found(tr); got != "1 of 1" {
		t.Errorf("got %s after the end", got)
	}
	tr.EndFind(true)
	if !tr.AtEnd() {
		t.Error("the view does not follow as before")
	}
}

// A session that is loaded anew is searched anew, and the match stays.
func TestFindGoesOnAfterAReload(t *testing.T) {
	tr := fresh(Look{Width: 80, Dark: true, Color: true})
	list := longSession(200)
	if err := tr.Load(list, nil, nil); err != nil {
		t.Fatal(err)
	}
	tr.View(20)
	tr.Find("the server")
	for range 3 {
		found(tr)
		tr.NextMatch(true)
	}
	before := found(tr)
	if err := tr.Load(list, nil, nil); err != nil {
		t.Fatal(err)
	}
	tr.View(20)
	if got := found(tr); got != before || !strings.HasSuffix(got, " of 50") {
		t.Errorf("got %s, want %s", got, before)
	}
	tr.EndFind(true)
	if !tr.AtEnd() {
		t.Error("the view is not where it was")
	}
}

// Counts are those of a search from the beginning, whatever happens meanwhile.
func TestPropertyOfCounts(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tr := fresh(Look{Width: 30})
		words := rapid.SampledFrom([]string{"ab ", "Ab", "b a", "\n\n", "`ab`", "**a**b ", "日本", "- x\n", "```\n", "&"})
		for i := range rapid.IntRange(1, 30).Draw(r, "steps") {
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				apply(tr, said(fmt.Sprint("u", i), "user", words.Draw(r, "text"))...)
			case 1, 2:
				apply(tr, protocol.MessageUpdate{
					Ref: here, MessageID: fmt.Sprint("m", i/8), Delta: words.Draw(r, "delta"),
					ThinkingDelta: words.Draw(r, "thought"),
				})
			case 3:
				k := call(fmt.Sprint("k", i), "bash", `{"command":"ab"}`)
				apply(tr, begun(k), done(k, strings.Repeat(words.Draw(r, "out")+"\n", 9)))
			case 4:
				tr.Find(rapid.SampledFrom([]string{"a", "ab", "ab a", "A", "日", "`"}).Draw(r, "find"))
			default:
				tr.ToggleAll()
			}
			tr.View(8)
			if tr.find != nil {
				tr.FindMore(0)
				tr.NextMatch(rapid.Bool().Draw(r, "up"))
				tr.View(8)
			}
		}
		if tr.find == nil {
			return
		}
		found(tr)
		_, got := tr.Found()
		for _, b := range tr.blocks {
			b.dirty()
		}
		found(tr)
		if at, want := tr.Found(); got != want || at > want {
			r.Errorf("%q: got %d matches, want %d; shown is %d", tr.find.want.text, got, want, at)
		}
	})
}

// BenchmarkFind looks for a text in 5,000 messages: until one is shown, and until
// all is searched. "seldom" is the text of one message far away, "often" is in
// nearly every one.
func BenchmarkFind(b *testing.B) {
	list := longSession(5000)
	list[8] = jsontext.Value(strings.Replace(string(list[8]), "please", "perhaps", 1))
	for name, text := range map[string]string{"seldom": "perhaps", "often": "e", "never": "nowhere to be found"} {
		for _, part := range []string{"first", "all"} {
			b.Run(name+"/"+part, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					t := New(wide)
					if err := t.Load(list, nil, nil); err != nil {
						b.Fatal(err)
					}
					t.View(50)
					b.StartTimer()
					t.Find(text)
					for t.Finding() && (part == "all" || t.find.waiting) {
						t.FindMore(8e6)
					}
					t.View(50)
				}
			})
		}
	}
}
