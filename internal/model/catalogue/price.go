package catalogue

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"noused/internal/model"
)

// Price is what a model's tokens cost, in US dollars for a million of each kind.
// It counts for calls that have more than Above tokens of input.
type Price struct {
	Above                             int64
	Input, Output, Cached, CacheWrite Dollars
}

// Dollars is an amount in billionths of a US dollar.
type Dollars int64

// maxDollars is more than a million tokens of anything cost.
const maxDollars = 1_000_000

// nano is how many of a Dollars one dollar is.
const nano = 1_000_000_000

// ParseDollars reads an amount as people write it, as in 0.125. At most nine
// decimals count.
func ParseDollars(text string) (Dollars, error) {
	r, ok := new(big.Rat).SetString(text)
	if !ok || strings.ContainsAny(text, "/eEpPxX_") {
		return 0, fmt.Errorf("%.40q is no amount, want dollars as in 0.125", text)
	}
	if r.Sign() < 0 || r.Cmp(big.NewRat(maxDollars, 1)) > 0 {
		return 0, fmt.Errorf("%.40s is out of bounds, want 0 to %d dollars", text, maxDollars)
	}
	r.Mul(r, big.NewRat(nano, 1))
	if !r.IsInt() {
		return 0, fmt.Errorf("%.40s has more than nine decimals", text)
	}
	return Dollars(r.Num().Int64()), nil
}

// String is the amount as people write it, without more decimals than it has.
func (d Dollars) String() string {
	text := fmt.Sprintf("%d.%09d", d/nano, d%nano)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Cost is what a model call costs, in billionths of a dollar, each call rounded
// once, half up. It is 0 where no price is known.
func Cost(prices []Price, u model.Usage) int64 {
	price, ok := priceFor(prices, u.InputTokens)
	if !ok {
		return 0
	}
	plain := max(0, u.InputTokens-u.CachedTokens-u.CacheWriteTokens)
	sum := new(big.Int)
	for _, part := range []struct {
		tokens int64
		price  Dollars
	}{
		{plain, price.Input},
		{u.CachedTokens, price.Cached},
		{u.CacheWriteTokens, price.CacheWrite},
		{u.OutputTokens, price.Output},
	} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part.tokens), big.NewInt(int64(part.price))))
	}
	const million = 1_000_000
	sum.Add(sum, big.NewInt(million/2))
	sum.Quo(sum, big.NewInt(million))
	if !sum.IsInt64() {
		return math.MaxInt64
	}
	return sum.Int64()
}

func priceFor(prices []Price, input int64) (price Price, ok bool) {
	for _, p := range prices {
		if p.Above == 0 || input > p.Above {
			if !ok || p.Above > price.Above {
				price, ok = p, true
			}
		}
	}
	return price, ok
}

// parsePrice reads "input/output/cached/cache write", with "above>" before it
// where it only counts from there.
func parsePrice(text string) (p Price, err error) {
	if above, rest, ok := strings.Cut(text, ">"); ok {
		p.Above, text = count(above), rest
	}
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return p, errors.New("want four amounts")
	}
	for i, dst := range []*Dollars{&p.Input, &p.Output, &p.Cached, &p.CacheWrite} {
		var e error
		*dst, e = ParseDollars(parts[i])
		err = errors.Join(err, e)
	}
	// Who names no price for the cache charges what all input costs.
	if p.Cached == 0 {
		p.Cached = p.Input
	}
	if p.CacheWrite == 0 {
		p.CacheWrite = p.Input
	}
	return p, err
}
