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

// Models asks the server once for the names of its models with a GET of path
// (which may have a query) below the base URL, and returns them sorted. What
// can be no name is left out. It blocks until the answer is there or ctx ends,
// whose cause is the error then; errors of the server are *Error, any other is
// about the options.
func Models(ctx context.Context, o Options, d Defaults, path string, header http.Header) ([]string, error) {
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
		return nil, c.tell(err, 1)
	}
	req.Header = header
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "noused")
	listed, err := c.list(req)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, c.tell(err, 1)
	}
	names := []string{}
	for _, name := range listed[:min(len(listed), maxNames)] {
		if name != "" && len(name) <= maxName && name == line(c.secrets.Replace(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (c *Client) list(req *http.Request) ([]string, error) {
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
	type entry struct {
		ID jsontext.Value `json:"id"`
	}
	var list struct {
		Data *[]entry `json:"data"`
	}
	if jsontext.Value(body).Kind() == jsontext.KindBeginArray {
		list.Data = &[]entry{}
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
	names := make([]string, len(*list.Data))
	for i, e := range *list.Data {
		names[i] = Text(e.ID)
	}
	return names, nil
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

// Lists reports whether a server that tells of these models takes the name: it
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
