package wire

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What is taken of a list of models at most. Gateways tell a description, prices
// and more of each of their hundreds.
const (
	maxList  = 4 << 20 // bytes
	maxNames = 5000
	maxName  = 200 // bytes
)

// Listed is a model as its server lists it. Window is how many tokens it reads,
// 0 where the server does not say.
type Listed struct {
	Name   string
	Window int64
}

// WindowOf is what a list says of how many tokens the model of that name reads, 0
// for nothing.
func WindowOf(listed []Listed, name string) int64 {
	for _, exact := range []bool{true, false} {
		for _, l := range listed {
			if l.Name == name || !exact && Lists([]string{l.Name}, name) {
				return l.Window
			}
		}
	}
	return 0
}

// NamesOf are the names in a list.
func NamesOf(listed []Listed) []string {
	names := make([]string, len(listed))
	for i, l := range listed {
		names[i] = l.Name
	}
	return names
}

// Models asks the server once for its models with a GET of path (which may have a
// query) below the base URL, and returns them sorted by their names. What can be
// no name is left out. It blocks until the answer is there or ctx ends, whose
// cause is the error then; errors of the server are *Error, any other is about
// the options.
func Models(ctx context.Context, o Options, d Defaults, path string, header http.Header) ([]Listed, error) {
	c, err := connect(o, d)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	path, query, _ := strings.Cut(path, "?")
	u := c.url.JoinPath(path)
	if query != "" {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+query, "&")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, c.safeError(err, 1)
	}
	req.Header = header
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "noused")
	c.addHeaders(req.Header)
	listed, err := c.list(req)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, c.safeError(err, 1)
	}
	sound := []Listed{}
	for _, l := range listed[:min(len(listed), maxNames)] {
		if l.Name != "" && len(l.Name) <= maxName && l.Name == line(c.secrets.Replace(l.Name)) {
			sound = append(sound, l)
		}
	}
	slices.SortFunc(sound, func(a, b Listed) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(sound, func(a, b Listed) bool { return a.Name == b.Name }), nil
}

// listing is what servers list of a model. Each has another name for how much it
// reads; what it was loaded with counts more than what it could read.
type listing struct {
	ID     jsontext.Value `json:"id"`
	Loaded Count          `json:"loaded_context_length"` // LM Studio
	VLLM   Count          `json:"max_model_len"`         // vLLM, SGLang
	Length Count          `json:"context_length"`        // OpenRouter, Together, Moonshot
	Window Count          `json:"context_window"`        // Groq
	Max    Count          `json:"max_context_length"`    // Mistral, LM Studio
	Input  Count          `json:"max_input_tokens"`      // Anthropic, gateways
}

// What can be a window, in tokens.
const leastWindow, mostWindow = 1000, 10_000_000

func (e listing) window() int64 {
	for _, n := range []Count{e.Loaded, e.VLLM, e.Length, e.Window, e.Max, e.Input} {
		if n >= leastWindow && n <= mostWindow {
			return int64(n)
		}
	}
	return 0
}

func (c *Client) list(req *http.Request) ([]Listed, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp, resp.Body, time.Now())
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxList+1))
	switch {
	case err != nil:
		return nil, unreachable(err)
	case len(body) > maxList:
		return nil, &Error{Message: fmt.Sprintf("its list of models is longer than %d MiB", maxList>>20)}
	}
	var list struct {
		Data *[]listing `json:"data"`
	}
	if jsontext.Value(body).Kind() == jsontext.KindBeginArray {
		list.Data = &[]listing{}
		err = json.Unmarshal(body, list.Data, lenient)
	} else {
		err = json.Unmarshal(body, &list, lenient)
	}
	if err != nil || list.Data == nil {
		what := page(resp.Header.Get("Content-Type"), body)
		if _, message := said(body); message != "" {
			what = message
		}
		return nil, &Error{Status: resp.StatusCode, Message: "an answer that is no list of models: " + what}
	}
	listed := make([]Listed, len(*list.Data))
	for i, e := range *list.Data {
		listed[i] = Listed{Text(e.ID), e.window()}
	}
	return listed, nil
}

// Address is a base URL without what may be secret in it: user, password, query
// and fragment. It is "" where it is no URL.
func Address(baseURL string) string {
	u, err := url.Parse(baseURL)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// dated is the end of a name that says which of its versions a model is.
var dated = pattern(`-20\d{6}$`)

// Lists reports whether a server that reports these models takes the name: it
// is one of them, or the short form of one, as Anthropic ("-latest", or without
// its date), Gemini (without "models/") and Ollama (without ":latest") have it.
func Lists(names []string, name string) bool {
	name = strings.TrimPrefix(name, "models/")
	return slices.ContainsFunc(names, func(listed string) bool {
		listed = strings.TrimPrefix(listed, "models/")
		return name == listed || name == strings.TrimSuffix(listed, ":latest") ||
			strings.TrimSuffix(name, "-latest") == dated().ReplaceAllString(listed, "")
	})
}

// maxNearest is how many names Nearest returns at most.
const maxNearest = 3

// Nearest are the few names that are most like the one that is meant, the
// likest first: few letters to change, many that are the same from the start.
func Nearest(names []string, name string) []string {
	name = strings.TrimPrefix(name[:min(len(name), maxName)], "models/")
	type near struct {
		name string
		far  int
	}
	all := make([]near, len(names))
	for i, n := range names {
		short := strings.TrimPrefix(n, "models/")
		all[i] = near{n, distance(short, name) - common(short, name)}
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	nearest := []string{}
	for _, n := range all[:min(len(all), maxNearest)] {
		nearest = append(nearest, n.name)
	}
	return nearest
}

// common is the length of what both begin with.
func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
