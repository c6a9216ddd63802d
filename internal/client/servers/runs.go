package servers

import (
	"strings"

	"noused/internal/mcpfile"
)

// Runs is a server's program and its arguments, as a shell would take them, or
// its URL, of which it hides what may be secret.
func Runs(s mcpfile.Server) string {
	if s.URL != "" {
		return withoutSecrets(s.URL)
	}
	words := make([]string, 0, len(s.Args)+1)
	for _, w := range append([]string{s.Command}, s.Args...) {
		words = append(words, ShellWord(w))
	}
	return strings.Join(words, " ")
}

// withoutSecrets is a URL without its user, its fragment and the values of its query.
// It may be none yet: variables may stand in it.
func withoutSecrets(address string) string {
	address, _, _ = strings.Cut(address, "#")
	address, query, asked := strings.Cut(address, "?")
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		scheme, rest = "", address
	} else {
		scheme += "://"
	}
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndex(host, "@"); i >= 0 {
		rest = "…@" + strings.TrimPrefix(rest, host[:i+1])
	}
	if !asked {
		return scheme + rest
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		key, _, valued := strings.Cut(pair, "=")
		if pairs[i] = "…"; valued {
			pairs[i] = key + "=…"
		}
	}
	return scheme + rest + "?" + strings.Join(pairs, "&")
}

// ShellWord is a word as a shell would take it.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("@%+=:,./-_${}", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
