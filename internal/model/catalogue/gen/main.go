// Command gen writes the catalogue's table (make catalogue) from the folder of
// data files of an unpacked npm package, and takes facts only: what a model can
// read and write, what it costs, how it is told how hard to think, and where it
// is asked.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// provider says what the data files do not: what we call one, the variable that
// has its key, and, where the files have a wire that is not ours, its own address
// for one that is. One that is not here is left out: it wants a login of its own,
// or an account's name in its address.
type provider struct{ file, name, key, wire, url string }

var providers = []provider{
	{"anthropic", "", "ANTHROPIC_API_KEY", "", ""},
	{"azure", "", "AZURE_OPENAI_API_KEY", "", ""},
	{"baseten", "", "BASETEN_API_KEY", "", ""},
	{"cerebras", "", "CEREBRAS_API_KEY", "", ""},
	{"deepseek", "", "DEEPSEEK_API_KEY", "", ""},
	{"fireworks", "", "FIREWORKS_API_KEY", "", ""},
	{"google", "gemini", "GEMINI_API_KEY", "chat", "https://generativelanguage.googleapis.com/v1beta/openai"},
	{"groq", "", "GROQ_API_KEY", "", ""},
	{"huggingface", "", "HF_TOKEN", "", ""},
	{"kimi-coding", "", "KIMI_API_KEY", "", ""},
	{"minimax", "", "MINIMAX_API_KEY", "", ""},
	{"minimax-cn", "", "MINIMAX_CN_API_KEY", "", ""},
	{"mistral", "", "MISTRAL_API_KEY", "chat", "https://api.mistral.ai/v1"},
	{"moonshotai", "moonshot", "MOONSHOT_API_KEY", "", ""},
	{"moonshotai-cn", "moonshot-cn", "MOONSHOT_CN_API_KEY", "", ""},
	{"nvidia", "", "NVIDIA_API_KEY", "", ""},
	{"openai", "", "OPENAI_API_KEY", "", ""},
	{"opencode", "", "OPENCODE_API_KEY", "", ""},
	{"openrouter", "", "OPENROUTER_API_KEY", "chat", "https://openrouter.ai/api/v1"},
	{"qwen-token-plan", "qwen", "QWEN_TOKEN_PLAN_API_KEY", "", ""},
	{"together", "", "TOGETHER_API_KEY", "", ""},
	{"vercel-ai-gateway", "vercel", "AI_GATEWAY_API_KEY", "", ""},
	{"xai", "", "XAI_API_KEY", "", ""},
	{"xiaomi", "", "XIAOMI_API_KEY", "", ""},
	{"zai", "", "ZAI_API_KEY", "", ""},
	{"zai-coding-cn", "zai-cn", "ZAI_CODING_CN_API_KEY", "", ""},
	// Of servers on one's own machine nobody can know what they are started with.
	{"", "llamacpp", "", "chat", "http://localhost:8080/v1"},
	{"", "lmstudio", "", "chat", "http://localhost:1234/v1"},
	{"", "ollama", "", "chat", "http://localhost:11434/v1"},
	{"", "vllm", "", "chat", "http://localhost:8000/v1"},
}

// wires are ours, by the data's name of each.
var wires = map[string]string{
	"openai-completions": "chat", "openai-responses": "responses", "azure-openai-responses": "responses",
	"anthropic-messages": "messages",
}

type entry struct {
	ID, Type, API string
	BaseURL       string `json:"baseUrl"`
	Reasoning     bool
	Input         []string
	Cost          struct {
		price
		Tiers []struct {
			Above json.Number `json:"inputTokensAbove"`
			price
		}
	}
	Window int64              `json:"contextWindow"`
	Output int64              `json:"maxTokens"`
	Levels map[string]*string `json:"thinkingLevelMap"`
	Compat struct {
		Form     string `json:"thinkingFormat"`
		Effort   *bool  `json:"supportsReasoningEffort"`
		Adaptive bool   `json:"forceAdaptiveThinking"`
	}
}

type price struct {
	Input, Output json.Number
	Cached        json.Number `json:"cacheRead"`
	Write         json.Number `json:"cacheWrite"`
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("want the folder of data files, the name and the version of the package that they are from")
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]+" "+os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func write(w io.Writer, dir, source string) error {
	var manifest struct{ GeneratedAt string }
	if err := read(filepath.Join(dir, ".manifest.json"), &manifest); err != nil {
		return err
	}
	date, _, _ := strings.Cut(manifest.GeneratedAt, "T")
	fmt.Fprintf(w,
		"# %s: facts about models, written by make catalogue from %s; catalogue.go says what the columns are.\n", date,
		source)
	slices.SortFunc(providers, func(a, b provider) int {
		return cmp.Compare(cmp.Or(a.name, a.file), cmp.Or(b.name, b.file))
	})
	for _, p := range providers {
		if err := p.write(w, dir); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(p.file, p.name), err)
		}
	}
	return nil
}

func read(path string, v any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	return err
}

// write writes a provider's line, and one for each of its models.
func (p provider) write(w io.Writer, dir string) error {
	var models []entry
	if p.file != "" {
		byAPI := map[string]map[string]entry{}
		if err := read(filepath.Join(dir, p.file+".json"), &byAPI); err != nil {
			return err
		}
		for api, entries := range byAPI {
			for _, e := range entries {
				if cmp.Or(p.wire, wires[api]) != "" && e.Type == "chat" && e.Window > 0 && !strings.ContainsAny(e.ID, "\t\n") {
					models = append(models, e)
				}
			}
		}
	}
	slices.SortFunc(models, func(a, b entry) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.API, b.API)) })
	models = slices.CompactFunc(models, func(a, b entry) bool { return a.ID == b.ID })
	servers, count := map[string]string{}, map[string]int{}
	for _, e := range models {
		servers[p.wireOf(e)] = cmp.Or(p.url, e.BaseURL)
		count[p.wireOf(e)]++
	}
	if p.file == "" {
		servers[p.wire] = p.url
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(servers)), func(a, b string) int {
		return cmp.Compare(count[a], count[b])
	})
	fmt.Fprintf(w, "@%s\t%s\t%s=%s", cmp.Or(p.name, p.file), p.key, most, servers[most])
	for _, wire := range slices.Sorted(maps.Keys(servers)) {
		if wire != most {
			fmt.Fprintf(w, " %s=%s", wire, servers[wire])
		}
	}
	fmt.Fprintln(w)
	for _, e := range models {
		wire := p.wireOf(e)
		form, levels := e.thinking(wire)
		if wire == most {
			wire = ""
		}
		images := ""
		if slices.Contains(e.Input, "image") {
			images = "i"
		}
		line := strings.Join([]string{e.ID, short(e.Window), short(e.Output), images, wire, form, levels, e.prices()}, "\t")
		fmt.Fprintln(w, strings.TrimRight(line, "\t"))
	}
	return nil
}

func (p provider) wireOf(e entry) string { return cmp.Or(p.wire, wires[e.API]) }

// short has thousands as k where that is shorter.
func short(n int64) string {
	if n%1000 == 0 {
		return strconv.FormatInt(n/1000, 10) + "k"
	}
	return strconv.FormatInt(n, 10)
}

func (e entry) prices() string {
	text := e.Cost.text()
	for _, t := range e.Cost.Tiers {
		text += " " + t.Above.String() + ">" + t.text()
	}
	return strings.TrimPrefix(text, "0/0/0/0")
}

func (p price) text() string {
	of := func(n json.Number) string { return cmp.Or(n.String(), "0") }
	return of(p.Input) + "/" + of(p.Output) + "/" + of(p.Cached) + "/" + of(p.Write)
}

var order = []string{"off", "minimal", "low", "medium", "high", "xhigh", "max"}

// thinking says how a model is told how hard to think, and which levels it has,
// with what is sent for each where that is another word.
func (e entry) thinking(wire string) (form, levels string) {
	switch effort := e.Compat.Effort == nil || *e.Compat.Effort; {
	case !e.Reasoning:
		return "", ""
	case wire == "messages" && e.Compat.Adaptive:
		form = "adaptive"
	case wire == "messages":
		form = "budget"
	case wire == "chat":
		switch form = e.Compat.Form; form {
		case "openrouter":
		case "deepseek", "zai":
			form = "thinking"
		case "qwen", "together":
		default:
			if form = ""; !effort {
				return "", ""
			}
		}
		if form != "" && form != "openrouter" && !effort {
			form += "!" // on or off is all that it knows
		}
	}
	var has []string
	for _, level := range order {
		word, listed := e.Levels[level]
		named := strings.Replace(level, "off", "none", 1)
		switch {
		case listed && word == nil,
			!listed && (level == "xhigh" || level == "max"),
			!listed && level == "off" && form == "",             // leaving it out is not none
			!listed && level == "minimal" && form == "adaptive", // is no level of it
			strings.HasSuffix(form, "!") && level != "off" && level != "high":
		case listed && form != "budget" && !strings.HasSuffix(form, "!") && !strings.EqualFold(*word, named) &&
			level != "off":
			has = append(has, named+"="+*word)
		default:
			has = append(has, named)
		}
	}
	return form, strings.Join(has, ",")
}
