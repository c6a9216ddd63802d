// Package catalogue has facts about models that people use: who serves them,
// where and over which wire, how much they read and write, whether they have
// eyes, how hard they can be told to think, and what they cost (models-today.md
// §2). The facts stand in table.tsv, which make catalogue writes and which has its
// date in its first line.
//
// Concurrency: everything may be called from anywhere; nothing is kept but what a
// Catalogue was made with.
//
// It refuses to guess: a model of a provider that it does not know has no facts,
// whatever it is called, and nothing is read before somebody asks.
package catalogue

import (
	_ "embed"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// table has a line for each provider, "@name, key variable, servers", followed by
// its models: id, window, output, "i" for eyes, wire where it is not the
// provider's first, how it is told to think, the levels of that, prices.
//
//go:embed table.tsv
var table string

// Date is the day that the facts are of, as in 2006-01-02.
func Date() string {
	date, _, _ := strings.Cut(strings.TrimPrefix(table, "# "), ":")
	return date
}

// Provider is somebody who serves models. Servers has a base URL for each of its
// wires ("chat", "responses" or "messages"), "" where everybody has one of their
// own; Wire is the one that most of its models are asked over. KeyVariable is ""
// where no key is wanted.
type Provider struct {
	Name, KeyVariable, Wire string
	Servers                 map[string]string
}

// Model is what is known of a model. Counts are of tokens, and 0 where nobody
// says. Wire is one of its provider's.
type Model struct {
	Provider, ID, Wire string
	Window, Output     int64
	Images             bool
	EffortForm         string   // how it is told to think, in the words of model.Effort
	Efforts            []Effort // that it has, the least first
	Prices             []Price  // the first is without Above; none: not known
	Source             string   // where the facts are from, in words
}

// Effort is a level of thinking, and the word that the model has for it.
type Effort struct{ Level, Word string }

// Levels are the names of a model's efforts.
func (m Model) Levels() []string {
	names := make([]string, len(m.Efforts))
	for i, e := range m.Efforts {
		names[i] = e.Level
	}
	return names
}

// Word is what a model calls a level.
func (m Model) Word(level string) (string, bool) {
	i := slices.IndexFunc(m.Efforts, func(e Effort) bool { return e.Level == level })
	if i < 0 {
		return "", false
	}
	return m.Efforts[i].Word, true
}

// Names are those of all providers, sorted.
func Names() []string {
	var names []string
	for line := range strings.Lines(table) {
		if name, ok := strings.CutPrefix(line, "@"); ok {
			name, _, _ = strings.Cut(name, "\t")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// FindProvider returns the provider of that name.
func FindProvider(name string) (Provider, bool) {
	line, _, ok := section(name)
	if !ok {
		return Provider{}, false
	}
	return parseProvider(line), true
}

// ProviderAt returns the provider that a base URL belongs to, by its host.
func ProviderAt(baseURL string) (Provider, bool) {
	host := hostOf(baseURL)
	if host == "" || strings.HasPrefix(host, "localhost:") {
		return Provider{}, false
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "@") || !strings.Contains(line, host) {
			continue
		}
		p := parseProvider(strings.TrimRight(line, "\n"))
		for _, server := range p.Servers {
			if hostOf(server) == host {
				return p, true
			}
		}
	}
	return Provider{}, false
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// section is a provider's line and the lines of its models.
func section(name string) (line, models string, ok bool) {
	if name == "" || strings.ContainsAny(name, "\t\n") {
		return "", "", false
	}
	_, rest, ok := strings.Cut(table, "\n@"+name+"\t")
	if !ok {
		return "", "", false
	}
	rest, _, _ = strings.Cut(rest, "\n@")
	line, models, _ = strings.Cut(rest, "\n")
	return "@" + name + "\t" + line, models, true
}

func parseProvider(line string) Provider {
	f := fields(line, 3)
	p := Provider{Name: strings.TrimPrefix(f[0], "@"), KeyVariable: f[1], Servers: map[string]string{}}
	for i, server := range strings.Fields(f[2]) {
		wire, address, _ := strings.Cut(server, "=")
		if i == 0 {
			p.Wire = wire
		}
		p.Servers[wire] = address
	}
	return p
}

// fields are the columns of a line, "" for those that it leaves out.
func fields(line string, n int) []string {
	f := strings.Split(line, "\t")
	return append(f, make([]string, max(0, n-len(f)))...)
}

// Find returns what is known of a provider's model. The name may have what it is
// listed without, and the other way round: a vendor before it, a date or "-latest"
// behind it. Where more than one could be meant, none is.
func Find(provider, name string) (Model, bool) {
	head, models, ok := section(provider)
	if !ok {
		return Model{}, false
	}
	var ids []string
	lines := map[string]string{}
	wanted := tail(undated(strings.ToLower(strings.TrimPrefix(name, "models/"))))
	for line := range strings.Lines(models) {
		id, _, _ := strings.Cut(line, "\t")
		if lower := strings.ToLower(id); strings.Contains(lower, wanted) && tail(undated(lower)) == wanted {
			ids, lines[id] = append(ids, id), strings.TrimRight(line, "\n")
		}
	}
	id, ok := Match(ids, name)
	if !ok {
		return Model{}, false
	}
	return parseModel(lines[id], parseProvider(head)), true
}

// Match finds the id that a name means: itself, or the only one that is the same
// without a date, a vendor, or both.
func Match(ids []string, name string) (string, bool) {
	name = strings.ToLower(strings.TrimPrefix(name, "models/"))
	for _, same := range []func(id string) bool{
		func(id string) bool { return id == name },
		func(id string) bool { return id == undated(name) },
		func(id string) bool { return undated(id) == undated(name) },
		func(id string) bool { return oneHasVendor(id, name) && tail(id) == tail(name) },
		func(id string) bool { return oneHasVendor(id, name) && tail(id) == undated(tail(name)) },
	} {
		var found []string
		for _, id := range ids {
			if same(strings.ToLower(id)) {
				found = append(found, id)
			}
		}
		if len(found) > 0 {
			return found[0], len(found) == 1
		}
	}
	return "", false
}

// dated is the end of a name that says which of its versions a model is.
var dated = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`-(20\d{6}|20\d\d-\d\d-\d\d|latest)$`) })

func undated(id string) string { return dated().ReplaceAllString(id, "") }

func tail(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// oneHasVendor: two vendors' models are two models, whatever they are called.
func oneHasVendor(a, b string) bool { return strings.Contains(a, "/") != strings.Contains(b, "/") }

// parseModel reads a line of the table, which the tests have read whole.
func parseModel(line string, p Provider) Model {
	f := fields(line, 8)
	m := Model{
		Provider: p.Name, ID: f[0], Wire: f[4], Window: count(f[1]), Output: count(f[2]), Images: f[3] == "i",
		EffortForm: f[5], Source: "the catalogue of " + Date(),
	}
	if m.Wire == "" {
		m.Wire = p.Wire
	}
	for _, level := range strings.FieldsFunc(f[6], func(r rune) bool { return r == ',' }) {
		name, word, other := strings.Cut(level, "=")
		if !other {
			word = name
		}
		m.Efforts = append(m.Efforts, Effort{name, word})
	}
	for _, text := range strings.Fields(f[7]) {
		if p, err := parsePrice(text); err == nil {
			m.Prices = append(m.Prices, p)
		}
	}
	return m
}

func count(text string) int64 {
	digits, thousands := strings.CutSuffix(text, "k")
	n, _ := strconv.ParseInt(digits, 10, 64)
	if thousands {
		n *= 1000
	}
	return n
}
