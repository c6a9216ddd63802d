package builtin

import (
	"bufio"
	"bytes"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"noused/internal/format"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// tree is the content of all files below dir, links with their target.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || d.IsDir():
		case d.Type()&os.ModeSymlink != 0:
			link, _ := os.Readlink(path)
			all[rel] = "-> " + link
		default:
			all[rel] = content(t, path)
		}
		return err
	}))
	return all
}

// expect compares, and takes "…" at the end of want for anything.
func expect(t *testing.T, got, want string) {
	t.Helper()
	if start, ok := strings.CutSuffix(want, "…"); ok && strings.HasPrefix(got, start) {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func encoded(t *testing.T, encode func(*bytes.Buffer, image.Image) error) string {
	t.Helper()
	var b bytes.Buffer
	must(t, encode(&b, image.NewGray(image.Rect(0, 0, 30, 20))))
	return b.String()
}

func TestRead(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "line %d\n", i+1)
	}
	dir := files(t, map[string]string{
		"a.txt": "one\ntwo\nthree\n", "open.txt": "no end", "empty": "", "crlf.txt": "a\r\nb\r\n",
		"bom.txt":  "\xef\xbb\xbfx\n",
		"long.txt": long + "\nnext\n", "many.txt": many.String(), "wide.txt": strings.Repeat(strings.Repeat("x", 1000)+"\n",
			100),
		"nul.bin": "ab\x00cd", "latin.txt": "caf\xe9\n", "late.bin": strings.Repeat("fine\n", 1990) + "\xff\n",
		"utf16.txt": "\xff\xfea\x00",
		"prog.pdf":  "%PDF-1.7\n\x00", "Makefile": "all:\n", "src/main.go": "package main\n", "~home": "not home\n",
		"p.png":  encoded(t, func(b *bytes.Buffer, i image.Image) error { return png.Encode(b, i) }),
		"p.jpeg": encoded(t, func(b *bytes.Buffer, i image.Image) error { return jpeg.Encode(b, i, nil) }),
		"p.gif":  encoded(t, func(b *bytes.Buffer, i image.Image) error { return gif.Encode(b, i, nil) }),
		"p.webp": "RIFF\x24\x00\x00\x00WEBPVP8 ", "p.svg": "<svg/>\n",
	})
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.Symlink("a.txt", filepath.Join(dir, "link")))
	size := func(name string) int { return len(content(t, filepath.Join(dir, name))) }
	for _, c := range []struct{ args, want string }{
		{`{"path":"a.txt"}`, "     1\tone\n     2\ttwo\n     3\tthree\n"},
		{`{"path":"link"}`, "     1\tone\n…"},
		{`{"path":"./src/../a.txt","offset":2}`, "     2\ttwo\n     3\tthree\n"},
		{`{"path":"a.txt","limit":1}`, "     1\tone\n\n[lines 1 to 1; the file goes on: read it with offset 2]"},
		{`{"path":"a.txt","offset":2,"limit":1.0}`, "     2\ttwo\n\n[lines 2 to 2; the file goes on: read it with offset 3]"},
		{`{"path":"a.txt","offset":3,"limit":1}`, "     3\tthree\n"},
		{`{"path":"a.txt","offset":3,"limit":1e30}`, "     3\tthree\n"},
		{`{"path":"a.txt","offset":4}`, "failed: a.txt: offset 4 is past the end: the file has 3 lines"},
		{`{"path":"open.txt"}`, "     1\tno end\n"},
		{`{"path":"empty"}`, "[the file is empty]"},
		{`{"path":"crlf.txt"}`, "     1\ta\n     2\tb\n"},
		{`{"path":"bom.txt"}`, "     1\tx\n"},
		{`{"path":"long.txt"}`, "     1\t" + long[:2*maxLineText] + "… [cut; the line has 6000 bytes]\n     2\tnext\n"},
		{`{"path":"many.txt","offset":4999}`, "  4999\tline 4999\n  5000\tline 5000\n"},
		{`{"path":"p.svg"}`, "     1\t<svg/>\n"},
		{`{"path":"p.png"}`, fmt.Sprintf("p.png is an image: image/png, %d bytes, 30 x 20 pixels", size("p.png"))},
		{`{"path":"p.jpeg"}`, fmt.Sprintf("p.jpeg is an image: image/jpeg, %d bytes, 30 x 20 pixels", size("p.jpeg"))},
		{`{"path":"p.gif"}`, fmt.Sprintf("p.gif is an image: image/gif, %d bytes, 30 x 20 pixels", size("p.gif"))},
		{`{"path":"p.webp"}`, "p.webp is an image: image/webp, 16 bytes"},
		{`{"path":"nul.bin"}`, "failed: nul.bin is not UTF-8 text but application/octet-stream (5 bytes)"},
		{`{"path":"prog.pdf"}`, "failed: prog.pdf is not UTF-8 text but application/pdf (10 bytes)"},
		{`{"path":"latin.txt"}`, "failed: latin.txt is not UTF-8 text but text/plain in an unknown encoding (5 bytes)"},
		{`{"path":"late.bin"}`, "failed: late.bin is not UTF-8 text but text/plain in an unknown encoding (9952 bytes)"},
		{`{"path":"utf16.txt"}`, "failed: utf16.txt is not UTF-8 text but text/plain; charset=utf-16le (4 bytes)"},
		{`{"path":"src"}`, "failed: src is a folder; use ls to see what is in it"},
		{`{"path":"pipe"}`, "failed: pipe is not a regular file but a named pipe"},
		{`{"path":"a.txt/x"}`, "failed: a.txt/x: not a directory"},
		{`{"path":"makefile"}`, "failed: makefile does not exist; did you mean Makefile?"},
		{`{"path":"src/mian.go"}`, "failed: src/mian.go does not exist; did you mean src/main.go?"},
		{`{"path":"b.txt"}`, "failed: b.txt does not exist; did you mean a.txt?"},
		{`{"path":"quite-another"}`, "failed: quite-another does not exist"},
		{`{"path":"lib/main.go"}`, "failed: lib/main.go does not exist, nor does its folder"},
		{`{"path":"a\u0000b"}`, "failed: a\x00b: invalid argument"},
		{`{"path":"~home"}`, "     1\tnot home\n"},
	} {
		t.Run(c.args, func(t *testing.T) { expect(t, do(t, dir, "read", c.args).text(), c.want) })
	}

	t.Setenv("HOME", dir)
	expect(t, do(t, "/", "read", `{"path":"~/a.txt","limit":1}`).text(), "     1\tone\n…")
	expect(t, do(t, "/", "ls", `{"path":"~/src"}`).text(), "        13  main.go")
}

// The parts of a long file, read one after the other as each says, are the
// file, and each is no longer than a model may get.
func TestReadInParts(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		line := rapid.StringMatching(`[a-zä€]{0,300}`)
		want := rapid.SliceOfN(line, 1, 400).Draw(r, "lines")
		want = append(want, strings.Repeat("end ", 10))
		dir := files(t, map[string]string{"f": strings.Join(want, "\n")})
		got := []string{}
		for offset := 1; offset > 0; {
			text := do(t, dir, "read", map[string]any{"path": "f", "offset": offset}).text()
			if len(text) > maxText+200 || strings.Count(text, "\n") > maxLines+2 {
				r.Fatalf("got a part of %d bytes", len(text))
			}
			offset = 0
			for row := range strings.Lines(text) {
				if n, line, ok := strings.Cut(row, "\t"); ok {
					got = append(got, strings.TrimSuffix(line, "\n"))
					if fmt.Sprint(len(got)) != strings.TrimSpace(n) {
						r.Fatalf("got number %s for line %d", n, len(got))
					}
				} else if i := strings.Index(row, "with offset "); i >= 0 {
					fmt.Sscanf(row[i:], "with offset %d", &offset)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("-want +got\n%s", diff)
		}
	})
}

func TestWrite(t *testing.T) {
	dir := files(t, map[string]string{"old": "old\n", "target": "t\n", "folder/": ""})
	must(t, os.Chmod(filepath.Join(dir, "old"), 0o751))
	for link, to := range map[string]string{"link": "target", "chain": "link", "dangling": "new/far", "loop": "loop"} {
		must(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for _, c := range []struct{ path, want string }{
		{"old", "replaced old, 5 bytes"},
		{"new.txt", "created new.txt, 5 bytes"},
		{"a/b/c.txt", "created a/b/c.txt, 5 bytes"},
		{"chain", "replaced chain, 5 bytes"},
		{"dangling", "created dangling, 5 bytes"},
		{"folder", "failed: folder is a folder"},
		{"loop", "failed: loop: too many levels of symbolic links"},
		{"pipe", "failed: pipe is not a regular file but a named pipe"},
		{"old/under", "failed: old/under: not a directory"},
	} {
		expect(t, do(t, dir, "write", map[string]any{"path": c.path, "content": "ä\n<&"}).text(), c.want)
	}
	must(t, os.Remove(filepath.Join(dir, "pipe")))
	const now = "ä\n<&"
	want := map[string]string{
		"old": now, "new.txt": now, "a/b/c.txt": now, "target": now, "new/far": now,
		"link": "-> target", "chain": "-> link", "dangling": "-> new/far", "loop": "-> loop",
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dir, "old")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("got %v, %v, want the mode it had", info.Mode(), err)
	}
	expect(t, do(t, dir, "write", `{"path":"old","content":""}`).text(), "replaced old, 0 bytes")
}

// What cannot be written stays as it was, and nothing is left beside it.
func TestWriteRefused(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everything")
	}
	dir := files(t, map[string]string{"read-only": "x", "folder/f": "x"})
	must(t, os.Chmod(filepath.Join(dir, "read-only"), 0o400))
	must(t, os.Chmod(filepath.Join(dir, "folder"), 0o500))
	defer os.Chmod(filepath.Join(dir, "folder"), 0o700)
	for _, path := range []string{"read-only", "folder/f", "folder/new"} {
		expect(t, do(t, dir, "write", map[string]any{"path": path, "content": "y"}).text(), "failed: "+path+
			": permission denied")
	}
	if diff := cmp.Diff(map[string]string{"read-only": "x", "folder/f": "x"}, tree(t, dir)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestEdit(t *testing.T) {
	for _, c := range []struct{ name, before, args, after, want string }{
		{
			"a line", "one\ntwo\nthree\nfour\nfive\nsix\n", `{"old_text":"four","new_text":"4"}`,
			"one\ntwo\nthree\n4\nfive\nsix\n",
			"edited f, 1 place\n@@ -2,5 +2,5 @@\n      2\ttwo\n      3\tthree\n-     4\tfour\n+     4\t4\n      5\tfive\n     " +
				" 6\tsix",
		},
		{
			"lines become more", "a\nb\nc\n", `{"old_text":"b\n","new_text":"b1\nb2\n"}`, "a\nb1\nb2\nc\n",
			"edited f, 1 place\n@@ -1,3 +1,4 @@\n      1\ta\n-     2\tb\n+     2\tb1\n+     3\tb2\n      4\tc",
		},
		{
			"a line goes", "a\nb\nc", `{"old_text":"b\n","new_text":""}`, "a\nc",
			"edited f, 1 place\n@@ -1,3 +1,2 @@\n      1\ta\n-     2\tb\n      2\tc",
		},
		{
			"everywhere", "x x\ny\nz\nz\nz\nx", `{"old_text":"x","new_text":"w\nw","replace_all":true}`,
			"w\nw w\nw\ny\nz\nz\nz\nw\nw",
			"edited f, 3 places\n@@ -1,3 +1,5 @@\n-     1\tx x\n+     1\tw\n+     2\tw w\n+     3\tw\n      4\ty\n      " +
				"5\tz\n@@ -4,3 +6,4 @@\n      6\tz\n      7\tz\n-     6\tx\n+     8\tw\n+     9\tw",
		},
		{
			"the only line goes", "a\n", `{"old_text":"a\n","new_text":""}`, "",
			"edited f, 1 place\n@@ -1,1 +0,0 @@\n-     1\ta",
		},
		{
			"line ends stay", "a\r\nb\r\nc\r\n", `{"old_text":"a\nb\n","new_text":"x\ny\nz\n"}`, "x\r\ny\r\nz\r\nc\r\n",
			"edited f, 1 place\n…",
		},
		{
			"line ends of new lines", "a\r\nb\r\n", `{"old_text":"a","new_text":"x\ny"}`, "x\r\ny\r\nb\r\n",
			"edited f, 1 place\n…",
		},
		{
			"line ends as given", "a\r\nb\nc\n", `{"old_text":"b\n","new_text":"x\ny\n"}`, "a\r\nx\ny\nc\n",
			"edited f, 1 place\n…",
		},
		{"other bytes", "caf\xe9 x\n", `{"old_text":"x","new_text":"y"}`, "caf\xe9 y\n", "edited f, 1 place\n…"},
		{
			"not there", "alpha\nbeta\n", `{"old_text":"completely different","new_text":""}`, "",
			"failed: f: old_text was not found",
		},
		{"in an empty file", "", `{"old_text":"a","new_text":""}`, "", "failed: f: old_text was not found"},
		{
			"white space", "a\n\tif x  {\n", `{"old_text":"    if x {","new_text":""}`, "",
			`failed: f: old_text was not found; line 2 has it with other white space: "\tif x  {"` +
				"\nthe file has there:\n     2\t\tif x  {",
		},
		{
			"similar", "a\nfunc serve(ctx) {\n", `{"old_text":"func server(ctx) {","new_text":""}`, "",
			`failed: f: old_text was not found; the most similar line is 2: "func serve(ctx) {"` +
				"\nthe file has there:\n     2\tfunc serve(ctx) {",
		},
		{
			"begins alike", "a\nb\nc\n", `{"old_text":"a\nb\nd","new_text":""}`, "",
			`failed: f: old_text was not found; it begins like line 1, but line 3 is "c"` +
				"\nthe file has there:\n     1\ta\n     2\tb\n     3\tc",
		},
		{"too long", "a\nb", `{"old_text":"b\nc","new_text":""}`, "", "failed: f: old_text was not found; it begins like " +
			"line 2, but the file ends before it does\nthe file has there:\n     2\tb"},
		{
			"twice", "x\ny\nx\n", `{"old_text":"x","new_text":"z"}`, "",
			"failed: f: old_text is there more than once, at lines 1, 3; give more of the text around it, or set replace_all",
		},
		{
			"twice, one over the other", "aaa\n", `{"old_text":"aa","new_text":"z"}`, "",
			"failed: f: old_text is there more than once, at lines 1, 1; …",
		},
		{
			"very often", strings.Repeat("x\n", 50), `{"old_text":"x","new_text":"z"}`, "",
			"failed: f: old_text is there more than once, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more; …",
		},
		{"no change", "x\n", `{"old_text":"x","new_text":"x"}`, "", "failed: f: old_text and new_text are the same"},
		{
			"no change but line ends", "a\r\nb\r\n", `{"old_text":"a\nb","new_text":"a\r\nb"}`, "",
			"failed: f: old_text and new_text differ only in how lines end, which edit leaves as it is",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := files(t, map[string]string{"f": c.before})
			o := do(t, dir, "edit", `{"path":"f",`+c.args[1:])
			expect(t, o.text(), c.want)
			if !o.Success {
				c.after = c.before
			}
			if diff := cmp.Diff(map[string]string{"f": c.after}, tree(t, dir)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	dir := files(t, map[string]string{
		"main.go": "x", "often": strings.Repeat("x", maxPlaces+1),
		"grows": strings.Repeat("x", 100),
	})
	expect(t, do(t, dir, "edit", `{"path":"often","old_text":"x","new_text":"y","replace_all":true}`).text(),
		"failed: often: old_text is there more than 100000 times")
	expect(t, do(t, dir, "edit", `{"path":"grows","old_text":"x","new_text":"`+strings.Repeat("y", 1<<20)+
		`","replace_all":true}`).text(),
		"failed: grows: the file would have 104857600 bytes, and edit leaves at most 67108864")
	must(t, os.Truncate(filepath.Join(dir, "often"), maxEdit+1))
	expect(t, do(t, dir, "edit", `{"path":"often","old_text":"xy","new_text":"y"}`).text(),
		"failed: often has 67108865 bytes; edit takes files of at most 67108864")
	expect(t, do(t, dir, "edit", `{"path":"Main.go","old_text":"x","new_text":"y"}`).text(),
		"failed: Main.go does not exist; did you mean main.go?")
	expect(t, do(t, dir, "edit", `{"path":".","old_text":"x","new_text":"y"}`).text(), "failed: . is a folder; …")
}

// Several edits are made one after another, and where one of them does not fit,
// none is.
func TestEditSeveralPlaces(t *testing.T) {
	const before = "one\ntwo\nthree\nfour\nfour\n"
	for _, c := range []struct{ name, edits, after, want string }{
		{
			"in order",
			`[{"old_text":"three","new_text":"3"},{"old_text":"one\n","new_text":""},{"old_text":"four","new_text":"4","replace_all":true}]`, "two\n3\n4\n4\n",
			"edited f, 4 places\n@@ -1,5 +1,5 @@\n      1\tone\n      2\ttwo\n-     3\tthree\n+     3\t3\n      4\tfour\n     " +
				" 5\tfour\n@@ -1,3 +1,2 @@\n-     1\tone\n      1\ttwo\n      2\t3\n@@ …",
		},
		{
			"one on the other", `[{"old_text":"two","new_text":"2"},{"old_text":"2\nthree","new_text":"2 3"}]`,
			"one\n2 3\nfour\nfour\n", "edited f, 2 places\n…",
		},
		{
			"the last does not fit", `[{"old_text":"one","new_text":"1"},{"old_text":"  two","new_text":"2"}]`, before,
			"failed: f: no edit was made: edit 2 of 2: old_text was not found; line 2 has it with other white space: " +
				"\"two\"\nthe file has there:\n     2\ttwo",
		},
		{"none", `[]`, before, "-32602 args.edits: empty"},
		{
			"an edit without its text", `[{"old_text":"one","new_text":"1"},{"new_text":"2"}]`, before,
			"-32602 args.edits.1.old_text: missing",
		},
		{
			"an edit with more", `[{"old_text":"one","new_text":"1","path":"g"}]`, before,
			"-32602 args.edits.0.path: there is no such argument",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := files(t, map[string]string{"f": before})
			expect(t, do(t, dir, "edit", `{"path":"f","edits":`+c.edits+`}`).text(), c.want)
			if got := content(t, filepath.Join(dir, "f")); got != c.after {
				t.Errorf("got %q, want %q", got, c.after)
			}
		})
	}
	dir := files(t, map[string]string{"f": before})
	expect(t,
		do(t, dir, "edit", `{"path":"f","old_text":"one","new_text":"1","edits":[{"old_text":"two","new_text":"2"}]}`).text(),
		"-32602 args.edits: give either edits, or old_text and new_text beside path")
	expect(t, do(t, dir, "edit", `{"path":"f"}`).text(), "-32602 args.old_text: missing")
	many := strings.Repeat(`,{"old_text":"one","new_text":"1"}`, maxEdits+1)[1:]
	expect(t, do(t, dir, "edit", `{"path":"f","edits":[`+many+`]}`).text(),
		"-32602 args.edits: has 101 elements, at most 100 may be")
}

// An edition and the one that takes it back leave the file as it was, its diff
// says the lines that are in the files, and an error never comes with a change.
func FuzzEdit(f *testing.F) {
	f.Add("one\ntwo\nthree\n", "two", "2", false)
	f.Add("a\r\nb\r\n", "a\nb", "x\ny\nz", false)
	f.Add("x x\ny\nx", "x", "y\n", true)
	f.Add("aaa", "aa", "", true)
	f.Fuzz(func(t *testing.T, text, before, after string, all bool) {
		if before == "" {
			t.Skip()
		}
		e, err := change(text, before, after, all)
		if err != nil {
			if err.Error() == "" || !utf8.ValidString(err.Error()) && utf8.ValidString(text) {
				t.Fatalf("got error %q", err)
			}
			return
		}
		got := e.apply()
		if len(e.at) == 0 || !all && len(e.at) != 1 {
			t.Fatalf("got %d places", len(e.at))
		}
		if want := len(text) + len(e.at)*(len(e.after)-len(e.before)); len(got) != want {
			t.Fatalf("got %d bytes, want %d", len(got), want)
		}
		if e.after != "" && !all && !mostlyCRLF(text) && !mostlyCRLF(got) {
			if back, err := change(got, e.after, e.before, false); err == nil && back.apply() != text {
				t.Fatalf("got %q back, want %q", back.apply(), text)
			}
		}
		diff := e.diff(brief)
		if n := strings.Count(diff, "\n"); n > (brief.hunks+1)*(2*brief.lines+2*diffContext+4) {
			t.Fatalf("got a diff of %d lines", n)
		}
		checkDiff(t, diff, text, got)
	})
}

// checkDiff sees that each line of a diff is where it says, and that the headers
// count the lines behind them.
func checkDiff(t *testing.T, diff, text, got string) {
	was, is := rows(text), rows(got)
	checkHeaders(t, diff)
	for line := range strings.Lines(diff) {
		var n int
		head, row, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || strings.HasPrefix(head, "@@") {
			continue
		}
		if _, err := fmt.Sscan(head[1:], &n); err != nil {
			continue // the number of lines left out
		}
		from := is
		if head[0] == '-' {
			from = was
		}
		if n < 1 || n > len(from) || format.Fit(strings.TrimRight(from[n-1], "\r\n"), brief.text) != row {
			t.Fatalf("got %q in the diff\n%s\nof %q\nand %q", line, diff, text, got)
		}
	}
}

func checkHeaders(t *testing.T, diff string) {
	for _, hunk := range strings.Split("\n"+diff, "\n@@ ")[1:] {
		var from, n, newFrom, newN int
		head, lines, _ := strings.Cut(hunk, "\n")
		if _, err := fmt.Sscanf(head, "-%d,%d +%d,%d @@", &from, &n, &newFrom, &newN); err != nil {
			t.Fatalf("%v in the header %q of\n%s", err, head, diff)
		}
		var left, right, cut int
		for line := range strings.SplitSeq(lines, "\n") {
			switch {
			case strings.Contains(line, "more lines]"):
				cut++
			case strings.HasPrefix(line, "-"):
				left++
			case strings.HasPrefix(line, "+"):
				right++
			case strings.HasPrefix(line, " "):
				left, right = left+1, right+1
			}
		}
		if cut == 0 && (left != n || right != newN) {
			t.Fatalf("the header %q, but %d and %d lines, in\n%s", head, left, right, diff)
		}
	}
}

func TestLs(t *testing.T) {
	dir := files(t, map[string]string{"b.txt": "12345", "a/": "", ".hidden": "", "C": "", "new\nline": "", "empty/": ""})
	must(t, os.Symlink("/no/where", filepath.Join(dir, "link")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	all := strings.Join([]string{
		"         0  .hidden", "         0  C", "         -  a/", "         5  b.txt", "         -  empty/",
		"         -  link -> /no/where", `         0  "new\nline"`, "         -  pipe",
	}, "\n")
	for _, c := range []struct{ args, want string }{
		{`{}`, all},
		{`{"path":""}`, all},
		{`{"path":"."}`, all},
		{`{"path":"b.txt"}`, "         5  b.txt"},
		{`{"path":"empty"}`, "[the folder is empty]"},
		{`{"path":"emtpy"}`, "failed: emtpy does not exist"},
		{`{"path":"EMPTY"}`, "failed: EMPTY does not exist; did you mean empty?"},
	} {
		t.Run(c.args, func(t *testing.T) { expect(t, do(t, dir, "ls", c.args).text(), c.want) })
	}
}

func TestBoundedLists(t *testing.T) {
	content := map[string]string{"matches.txt": strings.Repeat("match\n", 700)}
	for i := range 1200 {
		content[fmt.Sprintf("many/%04d", i)] = ""
	}
	dir := files(t, content)
	for op, c := range map[string]struct {
		args       string
		lines      int
		first, end string
	}{
		"ls":   {`{"path":"many"}`, 1001, "         0  0000\n", "\n         0  0999\n[and 200 more]"},
		"find": {`{"pattern":"*","path":"many"}`, 1001, "many/0000\n", "\nmany/0999\n[and 200 more]"},
		"grep": {`{"pattern":"match"}`, 501, "matches.txt:1: match\n", "\nmatches.txt:500: match\n[and 200 more]"},
	} {
		text := do(t, dir, op, c.args).text()
		if n := strings.Count(text, "\n") + 1; n != c.lines || !strings.HasPrefix(text, c.first) ||
			!strings.HasSuffix(text, c.end) {
			t.Errorf("%s: got %d lines, %.60q … %q", op, n, text, text[max(0, len(text)-60):])
		}
	}
}

// repo is a working copy with things to ignore.
func repo(t *testing.T) string {
	dir := files(t, map[string]string{
		".git/config": "", ".git/info/exclude": "secret.txt\n",
		".gitignore": "# a comment\n*.log\n!keep.log\nbuild/\n/only-here\n\n",
		"main.go":    "package main // TODO\n", "a.log": "TODO\n", "keep.log": "TODO\n", "secret.txt": "TODO\n",
		"only-here":    "TODO\n",
		"build/out.go": "// TODO\n", "sub/.gitignore": "*.tmp\r\n!b.log\n", "sub/a.tmp": "TODO\n", "sub/b.log": "TODO\n",
		"sub/only-here": "x\n", "sub/deep/x.go": "one\ntwo TODO\n", "other/a.tmp": "todo\n", "bin": "TODO\x00\n",
		"Ünï.go": "TODO\n",
	})
	must(t, os.Symlink("sub", filepath.Join(dir, "link")))
	return dir
}

func TestFind(t *testing.T) {
	dir := repo(t)
	for _, c := range []struct{ args, want string }{
		{`{"pattern":"*.go"}`, "main.go\nsub/deep/x.go\nÜnï.go"},
		{`{"pattern":"**/*.go"}`, "main.go\nsub/deep/x.go\nÜnï.go"},
		{`{"pattern":"sub/*"}`, "sub/.gitignore\nsub/b.log\nsub/deep/\nsub/only-here"},
		{`{"pattern":"sub/**/*.{go,log}"}`, "sub/b.log\nsub/deep/x.go"},
		{`{"pattern":"*.log"}`, "keep.log\nsub/b.log"},
		{`{"pattern":"*/"}`, "other/\nsub/\nsub/deep/"},
		{`{"pattern":"deep"}`, "sub/deep/"},
		{`{"pattern":"./*.go"}`, "main.go\nÜnï.go"},
		{`{"pattern":"only-here"}`, "sub/only-here"},
		{`{"pattern":"secret.txt"}`, "[nothing fits]"},
		{`{"pattern":"config"}`, "[nothing fits]"},
		{`{"pattern":"*.tmp"}`, "other/a.tmp"},
		{`{"pattern":"*.go","path":"sub"}`, "sub/deep/x.go"},
		{`{"pattern":"*.log","path":"sub/deep/.."}`, "sub/b.log"},
		{`{"pattern":"*.tmp","path":"sub"}`, "[nothing fits]"},
		{`{"pattern":"*.go","path":"build"}`, "build/out.go"},
		{`{"pattern":"link"}`, "link"},
		{`{"pattern":"*.go","path":"link"}`, "link/deep/x.go"},
		{`{"pattern":"*","path":"main.go"}`, "failed: main.go is not a folder"},
		{`{"pattern":"*","path":"Sub"}`, "failed: Sub does not exist; did you mean sub?"},
	} {
		t.Run(c.args, func(t *testing.T) { expect(t, do(t, dir, "find", c.args).text(), c.want) })
	}
	expect(t, do(t, "/", "find", map[string]any{"pattern": "x.go", "path": dir}).text(),
		filepath.Join(dir, "sub/deep/x.go"))
}

// What is left out is what git leaves out.
func TestIgnoreAsGitDoes(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip(err)
	}
	for _, rules := range []string{
		"", "*", "*.o\n", "/*\n!/src\n", "*\n!*/\n!*.go\n", "*.o\n/*\n!/lib\n", "src/\n", "src\n!src/a.go\n",
		"src/*\n!src/a.go\n", "**/deep\n",
		"src/**/x.o", "/a.go\n", "lib/deep/\n*.go\n!lib/\n", "\\#odd\n\\!odd\n", "a.go \n*.[oc]\n", "deep/x.?\n",
		"!a.go\n*.go\n", "sub*/\n", "lib/**\n",
	} {
		dir := files(t, map[string]string{
			".gitignore": rules, "a.go": "", "b.o": "", "#odd": "", "!odd": "", "src/a.go": "", "src/b.o": "",
			"src/deep/x.o": "", "src/deep/deep/a.go": "",
			"lib/a.go": "", "lib/deep/x.c": "", "lib/deep/a.go": "", "lib/.gitignore": "!x.c\n/a.go\n", "sub/src/a.go": "",
			"subst": "",
		})
		run := func(args ...string) string {
			cmd := exec.Command(git, append([]string{
				"-C", dir, "-c", "core.excludesFile=/dev/null", "-c",
				"core.quotePath=false",
			}, args...)...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
			return string(out)
		}
		run("init", "-q")
		want := strings.Fields(run("ls-files", "--others", "--exclude-standard"))
		got := []string{}
		for _, name := range strings.Fields(do(t, dir, "find", `{"pattern":"*"}`).text()) {
			if !strings.HasSuffix(name, "/") && name != "[nothing" && name != "fits]" {
				got = append(got, name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf(".gitignore %q: -want +got\n%s", rules, diff)
		}
	}
}

func TestGrep(t *testing.T) {
	dir := repo(t)
	must(t, os.WriteFile(filepath.Join(dir, "wide.txt"),
		[]byte(strings.Repeat("ä", 5000)+"NEEDLE"+strings.Repeat("z", 5000)+"\r\nNEEDLE \xff\n"), 0o600))
	for _, c := range []struct{ args, want string }{
		{
			`{"pattern":"TODO"}`,
			"keep.log:1: TODO\nmain.go:1: package main // TODO\nsub/b.log:1: TODO\nsub/deep/x.go:2: two TODO\nÜnï.go:1: TODO",
		},
		{`{"pattern":"(?i)^todo$","glob":"*.tmp"}`, "other/a.tmp:1: todo"},
		{`{"pattern":"TODO","glob":"*.go"}`, "main.go:1: package main // TODO\nsub/deep/x.go:2: two TODO\nÜnï.go:1: TODO"},
		{`{"pattern":"TODO","glob":"sub/**"}`, "sub/b.log:1: TODO\nsub/deep/x.go:2: two TODO"},
		{`{"pattern":"o","path":"sub/deep"}`, "sub/deep/x.go:1: one\nsub/deep/x.go:2: two TODO"},
		{`{"pattern":"^t.o TODO$","path":"sub/deep/x.go"}`, "sub/deep/x.go:2: two TODO"},
		{`{"pattern":"TODO","path":"a.log"}`, "a.log:1: TODO"},
		{`{"pattern":"TODO","path":"bin"}`, "failed: bin is binary and was not searched"},
		{`{"pattern":"nowhere to be found"}`, "[no line fits]"},
		{`{"pattern":"NEEDLE","path":"wide.txt"}`, "wide.txt:1: …" + strings.Repeat("ä", 100) + "NEEDLE" +
			strings.Repeat("z", 294) + "…\nwide.txt:2: NEEDLE \uFFFD"},
		{`{"pattern":"x","path":"nowhere"}`, "failed: nowhere does not exist"},
	} {
		t.Run(c.args, func(t *testing.T) { expect(t, do(t, dir, "grep", c.args).text(), c.want) })
	}
}

// A file at the limits of what is searched is searched as far as it says.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccc"), 2)
	f.Add([]byte(strings.Repeat("x", 100)+"\r\n"), 99)
	f.Fuzz(func(t *testing.T, data []byte, keep int) {
		if keep < 1 || keep > 1<<16 {
			t.Skip()
		}
		var want []string
		for line := range strings.Lines(string(data)) {
			want = append(want, line)
		}
		in := newSmallLines(data, keep)
		for i, whole := range want {
			line, size, err := in.next()
			if err != nil {
				t.Fatalf("line %d: %v", i, err)
			}
			bare := strings.TrimSuffix(strings.TrimSuffix(whole, "\n"), "\r")
			if string(line) != bare[:min(len(bare), keep)] || size < len(bare) || size > len(whole) ||
				size == len(line) != (len(bare) <= keep) {
				t.Fatalf("got %q of %d, want %q of %d, at most %d", line, size, bare, len(bare), keep)
			}
			if at := len(line) / 2; !utf8.ValidString(around(line, at, size)) || utf8.RuneCountInString(around(line, at, size)) >
				shownMatch+2 {
				t.Fatalf("got %q", around(line, at, size))
			}
			if row, err := shownLine(1, line, size); err == nil && !utf8.ValidString(row) {
				t.Fatalf("got %q", row)
			}
		}
		if line, _, err := in.next(); err == nil {
			t.Fatalf("got another line %q", line)
		}
	})
}

// A call whose context allows no time at all ends with the code for that.
func TestContextTimeout(t *testing.T) {
	dir := repo(t)
	for _, op := range []string{"find", "grep"} {
		all := serveLines(t, dir, `{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"`+op+
			`","args":{"pattern":"x"},"context":{"timeout":"1ns"}}}`)
		if len(all) != 1 || all[0].Error == nil || all[0].Error.Code != operationTimeout {
			t.Errorf("%s: got %+v, want code %d", op, all, operationTimeout)
		}
	}
}

func newSmallLines(data []byte, keep int) *lines {
	return newLines(bufio.NewReaderSize(bytes.NewReader(data), 16), keep)
}
