package setup

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxName is how long the name of a provider is at most, in bytes.
const maxName = 60

// ServerName is what a server of models at an address is called: its host, and its port
// where the address names one.
func ServerName(baseURL *url.URL) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(baseURL.Hostname()))
	name = strings.Trim(name[:min(len(name), maxName-len("-65535"))], "-.")
	if port := baseURL.Port(); port != "" {
		name += "-" + port
	}
	return cmp.Or(strings.Trim(name, "-."), "server")
}

// AddServer has config.toml of that folder know a server of models that speaks chat
// completions, and returns the name of its section [providers.NAME]: that of one which has the
// address already, else the given one, with a number behind it where that is another's or
// taken says so. Undo removes the section again, unless the file has been changed since.
func AddServer(configDir, name, baseURL string, taken func(name string) bool) (called string, undo func() error,
	err error,
) {
	var before, after []byte
	err = change(configDir, func(text []byte) ([]byte, error) {
		var edit error
		before = text
		called, after, edit = withServer(text, name, baseURL, taken)
		return after, edit
	})
	return called, func() error {
		return change(configDir, func(text []byte) ([]byte, error) {
			if bytes.Equal(text, after) {
				return before, nil
			}
			return text, nil
		})
	}, err
}

func withServer(text []byte, name, baseURL string, taken func(name string) bool) (string, []byte, error) {
	var values struct {
		Providers map[string]struct {
			BaseURL string `toml:"base_url"`
		} `toml:"providers"`
	}
	if err := toml.Unmarshal(text, &values); err != nil {
		return "", nil, fmt.Errorf("it is no TOML as it stands: %w", err)
	}
	for known, p := range values.Providers {
		if p.BaseURL == baseURL {
			return known, text, nil
		}
	}
	called := name
	for i := 2; ; i++ {
		if _, has := values.Providers[called]; !has && !taken(called) {
			break
		}
		called = fmt.Sprintf("%s-%d", name, i)
	}
	out := bytes.TrimRight(text, "\n")
	if len(out) > 0 {
		out = append(out, "\n\n"...)
	}
	section := called
	if strings.Contains(section, ".") {
		section = strconv.Quote(section)
	}
	out = fmt.Appendf(out, "[providers.%s]\nbase_url = %q\n", section, baseURL)
	if err := toml.Unmarshal(out, &values); err != nil || values.Providers[called].BaseURL != baseURL {
		return "", nil, fmt.Errorf("it cannot be changed without touching something else: write base_url = %q under "+
			"[providers.%s] yourself", baseURL, section)
	}
	return called, out, nil
}
