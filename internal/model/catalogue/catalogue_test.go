package catalogue

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
)

// Everything in the table can be read, is small, and belongs to a provider whose
// address and wire are ours to ask.
func TestTheTable(t *testing.T) {
	if len(table) > 200<<10 {
		t.Errorf("the table has %d KiB, at most 200 may be", len(table)>>10)
	}
	if _, err := time.Parse(time.DateOnly, Date()); err != nil {
		t.Errorf("the date: %v", err)
	}
	levels := []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	forms := regexp.MustCompile(`^(|openrouter|adaptive|budget|(thinking|qwen|together)!?)$`)
	models := 0
	for _, name := range Names() {
		p, ok := FindProvider(name)
		if !ok || p.Name != name || p.Wire == "" || len(p.Servers) == 0 {
			t.Errorf("%s: %+v", name, p)
		}
		for wire, server := range p.Servers {
			if !slices.Contains([]string{"chat", "responses", "messages"}, wire) || server != "" &&
				!strings.HasPrefix(server, "http") {
				t.Errorf("%s: %s at %q", name, wire, server)
			}
		}
		_, text, _ := section(name)
		for line := range strings.Lines(text) {
			id, _, _ := strings.Cut(line, "\t")
			m, ok := Find(name, id)
			models++
			if !ok || m.ID != id || m.Window < 1000 || !forms.MatchString(m.EffortForm) {
				t.Errorf("%s/%s: %+v", name, id, m)
			}
			if _, ok := p.Servers[m.Wire]; !ok {
				t.Errorf("%s/%s speaks %s, which its provider does not", name, id, m.Wire)
			}
			for _, e := range m.Efforts {
				if !slices.Contains(levels, e.Level) || e.Word == "" {
					t.Errorf("%s/%s: effort %+v", name, id, e)
				}
			}
			f := fields(strings.TrimRight(line, "\n"), 8)
			if len(m.Prices) != len(strings.Fields(f[7])) {
				t.Errorf("%s/%s: prices %q", name, id, f[7])
			}
		}
	}
	if models < 500 {
		t.Errorf("the table has %d models only", models)
	}
	for _, name := range []string{
		"openrouter", "deepseek", "moonshot", "zai", "mistral", "groq", "xai", "gemini",
		"together", "fireworks", "cerebras", "ollama", "lmstudio",
	} {
		if _, ok := FindProvider(name); !ok {
			t.Errorf("there is no %s", name)
		}
	}
}

// A name is found as people write it, and another model's facts are nobody's.
func TestMatch(t *testing.T) {
	ids := []string{
		"claude-haiku-4-5", "claude-haiku-4-5-20251001", "gpt-5", "gpt-5-mini", "deepseek/deepseek-chat",
		"other/gpt-oss", "openai/gpt-oss", "kimi-k2-20250905",
	}
	for name, want := range map[string]string{
		"claude-haiku-4-5":          "claude-haiku-4-5",
		"claude-haiku-4-5-20251001": "claude-haiku-4-5-20251001",
		"claude-haiku-4-5-20260101": "claude-haiku-4-5",
		"claude-haiku-4-5-latest":   "claude-haiku-4-5",
		"GPT-5":                     "gpt-5",
		"models/gpt-5":              "gpt-5",
		"openai/gpt-5-2025-08-07":   "gpt-5",
		"deepseek-chat":             "deepseek/deepseek-chat",
		"kimi-k2":                   "kimi-k2-20250905",
		"gpt-oss":                   "", // whose?
		"mine/deepseek-chat":        "", // another's
		"gpt-5-nano":                "",
		"gpt":                       "",
		"":                          "",
	} {
		if got, _ := Match(ids, name); want != "" && got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		} else if _, ok := Match(ids, name); ok != (want != "") {
			t.Errorf("%q: found %t, want %t", name, ok, want != "")
		}
	}
}

func TestProviderAt(t *testing.T) {
	for url, want := range map[string]string{
		"https://openrouter.ai/api/v1": "openrouter", "https://api.openai.com/v1/": "openai",
		"https://api.deepseek.com/anthropic": "deepseek",
		"http://localhost:11434/v1":          "", "https://openai.com.example.org/v1": "",
		"https://example.org/api.openai.com": "",
		"":                                   "", "://": "",
	} {
		if got, _ := ProviderAt(url); got.Name != want {
			t.Errorf("%s: got %q, want %q", url, got.Name, want)
		}
	}
}

// Each kind of token has its price, the sum is rounded once, and a long request
// costs what long requests do.
func TestCost(t *testing.T) {
	prices := []Price{}
	for _, text := range []string{"1.25/10/0.125/0", "200k>2.5/15/0.25/0"} {
		p, err := parsePrice(text)
		if err != nil {
			t.Fatal(err)
		}
		prices = append(prices, p)
	}
	small, _ := parsePrice("0.0005/0/0/0")
	for name, c := range map[string]struct {
		prices []Price
		used   model.Usage
		want   int64
	}{
		"input and output":      {prices, model.Usage{InputTokens: 1000, OutputTokens: 100}, 1_250_000 + 1_000_000},
		"some was cached":       {prices, model.Usage{InputTokens: 1000, CachedTokens: 800}, 200*1250 + 800*125},
		"some was taken up":     {prices, model.Usage{InputTokens: 1000, CacheWriteTokens: 1000}, 1_250_000},
		"more cached than read": {prices, model.Usage{InputTokens: 10, CachedTokens: 80}, 80 * 125},
		"long":                  {prices, model.Usage{InputTokens: 200_001}, 500_002_500},
		"as long as may be":     {prices, model.Usage{InputTokens: 200_000}, 250_000_000},
		"half is rounded up":    {[]Price{small}, model.Usage{InputTokens: 1}, 1},
		"nobody knows":          {nil, model.Usage{InputTokens: 1000}, 0},
		"without end":           {[]Price{{Input: maxDollars * nano}}, model.Usage{InputTokens: 1 << 40}, 1<<63 - 1},
	} {
		if got := Cost(c.prices, c.used); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	for _, bad := range []string{"", "-1", "1/2", "1e9", "0x1", "nan", "1000001", "0.0000000001"} {
		if got, err := ParseDollars(bad); err == nil {
			t.Errorf("%q: got %s, want an error", bad, got)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for b.Loop() {
		if _, ok := Find("openrouter", "z-ai/glm-5"); !ok {
			b.Fatal("not found")
		}
	}
}
