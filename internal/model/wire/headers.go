package wire

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Bounds of the headers that a configuration adds.
const (
	maxHeaders     = 32
	maxHeaderBytes = 8 << 10 // of one value
)

// Headers that are not for a configuration to set: those of the connection, those
// that say what a request is, and those that have the key.
var (
	ours = []string{
		"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host",
		"Keep-Alive",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}
	keys = []string{"Api-Key", "Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"}
)

var headerName = pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")

// CheckHeaders says which of the headers may not be sent, without its value.
func CheckHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return fmt.Errorf("there are %d, at most %d may be", len(headers), maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch value, canonical := headers[name], http.CanonicalHeaderKey(name); {
		case !headerName().MatchString(name):
			return fmt.Errorf("%.40q is no name of a header", name)
		case slices.Contains(keys, canonical):
			return fmt.Errorf("%s is not for headers to set: api_key_env names the variable that has the key", canonical)
		case slices.Contains(ours, canonical):
			return fmt.Errorf("%s is not for headers to set", canonical)
		case len(value) > maxHeaderBytes:
			return fmt.Errorf("the value of %s is longer than %d KiB", canonical, maxHeaderBytes>>10)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }):
			return errors.New("the value of " + canonical +
				" has a character that no header can have: a line's end or a letter beyond ASCII")
		}
	}
	return nil
}

func (c *Client) addHeaders(to http.Header) {
	for name, value := range c.options.Headers {
		to.Set(name, value)
	}
}
