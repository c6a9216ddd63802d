package format

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCountsAndSizes(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Count(0, "turn"), "0 turns"},
		{Count(1, "turn"), "1 turn"},
		{Count(2, "turn"), "2 turns"},
		{Size(0), "0 bytes"},
		{Size(1), "1 byte"},
		{Size(1023), "1023 bytes"},
		{Size(1536), "1.5 KiB"},
		{Size(5 << 20), "5.0 MiB"},
		{Size(3 << 30), "3.0 GiB"},
		{Short(999), "999"},
		{Short(11248), "11.2k"},
		{Short(1_500_000), "1.5M"},
		{Elapsed(-time.Second), "0s"},
		{Elapsed(59*time.Second + 999*time.Millisecond), "59s"},
		{Elapsed(182 * time.Second), "3m02s"},
		{Elapsed(125 * time.Minute), "2h05m"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestAges(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		ago         time.Duration
		long, short string
	}{
		{-time.Hour, "just now", "now"},
		{59 * time.Second, "just now", "now"},
		{3 * time.Minute, "3 min ago", "3m"},
		{2*time.Hour + 59*time.Minute, "2 h ago", "2h"},
		{24 * time.Hour, "1 day ago", "1d"},
		{5 * 24 * time.Hour, "5 days ago", "5d"},
		{28 * 24 * time.Hour, "2026-02-01", "28d"},
		{140 * 24 * time.Hour, "2025-10-12", "20w"},
	} {
		if long, short := Age(now.Add(-c.ago), now), ShortAge(now.Add(-c.ago), now); long != c.long || short != c.short {
			t.Errorf("%s: got %q and %q, want %q and %q", c.ago, long, short, c.long, c.short)
		}
	}
	if Age(time.Time{}, now) != "" || ShortAge(time.Time{}, now) != "" {
		t.Error("a time that is not known has an age")
	}
}

func FuzzCuts(f *testing.F) {
	for _, text := range []string{"", "a", "naïve", "日本語", "a\xffb", "🙂🙂", "e\u0301"} {
		for most := range 6 {
			f.Add(text, most)
		}
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = min(max(most, 0), 1<<10)
		valid := strings.ToValidUTF8(text, "")
		for name, got := range map[string]string{"Cut": Cut(text, most), "CutStart": CutStart(text, most)} {
			if len(got) > most || !utf8.ValidString(got) {
				t.Errorf("%s(%q, %d): got %q", name, text, most, got)
			}
			if whole := len(text) <= most; whole && got != valid {
				t.Errorf("%s(%q, %d): got %q, want all of it", name, text, most, got)
			}
		}
		if utf8.ValidString(text) {
			if got := Cut(text, most); !strings.HasPrefix(text, got) || most <= len(text) && len(got) <= most-utf8.UTFMax {
				t.Errorf("Cut(%q, %d): got %q", text, most, got)
			}
			if got := CutStart(text, most); !strings.HasSuffix(text, got) || most <= len(text) && len(got) <= most-utf8.UTFMax {
				t.Errorf("CutStart(%q, %d): got %q", text, most, got)
			}
			n := utf8.RuneCountInString(text)
			switch got := Fit(text, most); {
			case n <= most && got != text:
				t.Errorf("Fit(%q, %d): got %q", text, most, got)
			case n > most && (utf8.RuneCountInString(got) != max(most, 1) || !strings.HasSuffix(got, "…")):
				t.Errorf("Fit(%q, %d): got %q", text, most, got)
			}
		}
		clipped := Clip(text, most)
		if short := len(text) <= most; short && clipped != valid || !short && clipped != Cut(text, most)+"…" {
			t.Errorf("Clip(%q, %d): got %q", text, most, clipped)
		}
	})
}

func TestLine(t *testing.T) {
	const text = " a\r\n\tb\x1b[1m\u202ec\x00\u0085d\xff "
	if got, want := Line(text), "a b [1m c d\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
