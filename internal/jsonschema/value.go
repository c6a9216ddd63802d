package jsonschema

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"noused/internal/format"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDigits bounds the numbers that are divided.
const maxDigits = 10_000

// kindOf is the JSON type of a value.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func sorted[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}

// decimal is a number: 0.digits × 10^exponent, the digits without zeros around
// them. Zero has no digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// parseDecimal reads a JSON number of any length. False: it is none, or its
// exponent is beyond a billion.
func parseDecimal(s string) (decimal, bool) {
	if s == "" {
		return decimal{}, false
	}
	s, negative := strings.CutPrefix(s, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(s), "e")
	exponent := 0
	if power != "" {
		e, err := strconv.Atoi(power)
		if err != nil || e > 1e9 || e < -1e9 {
			return decimal{}, false
		}
		exponent = e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent += len(whole) - (len(whole) + len(fraction) - len(digits))
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return decimal{}, true
	}
	return decimal{negative, digits, exponent}, true
}

// decimal is a value's number; false for other values.
func (c *checker) decimal(v any) (decimal, bool) {
	n, ok := v.(json.Number)
	if !ok || !c.charge(len(n)/16) {
		return decimal{}, false
	}
	return parseDecimal(string(n))
}

// whole reports whether a value is a whole number, however it is written.
func (c *checker) whole(v any) bool {
	d, ok := c.decimal(v)
	return ok && d.exponent >= len(d.digits)
}

func (d decimal) compare(other decimal) int {
	if order := cmp.Compare(d.sign(), other.sign()); order != 0 || d.digits == "" {
		return order
	}
	return d.sign() * cmp.Or(cmp.Compare(d.exponent, other.exponent), cmp.Compare(d.digits, other.digits))
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// multipleOf reports whether d is a whole number of times other, which is above
// 0. The last digit of d is not 0, so where its last place is below that of other
// it is none; neither is one of more than maxDigits digits, which is not tried.
func (d decimal) multipleOf(other decimal) bool {
	if d.digits == "" {
		return true
	}
	shift := (d.exponent - len(d.digits)) - (other.exponent - len(other.digits))
	if shift < 0 || len(d.digits) > maxDigits {
		return false
	}
	a, _ := new(big.Int).SetString(d.digits, 10)
	b, _ := new(big.Int).SetString(other.digits, 10)
	a.Mul(a, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), b))
	return a.Mod(a, b).Sign() == 0
}

// count is the number as a count; false if it is negative or not whole.
func (d decimal) count() (int, bool) {
	switch {
	case d.negative || d.exponent < len(d.digits):
		return 0, false
	case d.digits == "":
		return 0, true
	case d.exponent > 15:
		return math.MaxInt, true
	}
	i, err := strconv.Atoi(d.digits + strings.Repeat("0", d.exponent-len(d.digits)))
	return i, err == nil
}

// canonical appends a form of v that equal values share, and no others.
func (c *checker) canonical(b []byte, v any) []byte {
	if !c.charge(1) {
		return b
	}
	switch v := v.(type) {
	case string:
		c.charge(len(v) / 16)
		b = strconv.AppendInt(append(b, 's'), int64(len(v)), 10)
		return append(append(b, ':'), v...)
	case json.Number:
		d, ok := c.decimal(v)
		if !ok {
			return append(append(append(b, 'x'), v...), ';')
		}
		b = append(strconv.AppendInt(append(b, 'n'), int64(d.sign()), 10), '.')
		return append(strconv.AppendInt(append(append(b, d.digits...), 'e'), int64(d.exponent), 10), ';')
	case []any:
		b = append(b, '[')
		for _, item := range v {
			b = c.canonical(b, item)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for _, name := range sorted(v) {
			b = c.canonical(c.canonical(b, name), v[name])
		}
		return append(b, '}')
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

// display is a value in a message.
func display(v any) string {
	switch v := v.(type) {
	case string:
		return quoted(v)
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	case json.Number:
		return shortened(string(v))
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}

func quoted(s string) string { return "'" + shortened(s) + "'" }

// shortened is a text, or its beginning and its end.
func shortened(text string) string {
	if len(text) <= maxProblem {
		return text
	}
	return format.Clip(text, maxProblem/2) + format.CutStart(text, maxProblem/2)
}

// pointer is the place as a JSON pointer, "" for the whole value.
func (p *place) pointer() string {
	var tokens []string
	for ; p != nil; p = p.up {
		token := p.name
		if p.item {
			token = strconv.Itoa(p.index)
		}
		tokens = append(tokens, token)
	}
	slices.Reverse(tokens)
	return pointer(tokens)
}

func pointer(tokens []string) string {
	var p jsontext.Pointer
	for _, t := range tokens {
		p = p.AppendToken(t)
	}
	return string(p)
}
