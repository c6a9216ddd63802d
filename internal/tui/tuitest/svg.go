package tuitest

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// Of a cell, in units of the picture.
const (
	cellWidth  = 8.4
	cellHeight = 18
	margin     = 14
)

// svg draws the screen in a monospaced font of the reader's own. Every run says
// how wide it is, so that the columns meet whatever the font.
func (s *screen) svg() string {
	back, front := "#11151c", "#e6e6e6"
	if s.light {
		back, front = "#fdfdfb", "#1c1c1c"
	}
	cols, rows := s.vt.Size()
	width, height := float64(cols)*cellWidth+2*margin, rows*cellHeight+2*margin
	var out strings.Builder
	fmt.Fprintf(&out,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.1f %d" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14">`+"\n", width, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", back)
	for y, row := range s.rows() {
		for _, r := range runs(row) {
			fg, bg := orElse(rgb(r.style.fg), front), orElse(rgb(r.style.bg), back)
			if r.style.reverse {
				fg, bg = bg, fg
			}
			x, top, wide := margin+float64(r.x)*cellWidth, margin+y*cellHeight, float64(r.n)*cellWidth
			if bg != back {
				fmt.Fprintf(&out, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, top, wide, cellHeight, bg)
			}
			if strings.TrimSpace(r.text) == "" {
				continue
			}
			fmt.Fprintf(&out,
				`<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs" fill="%s"%s xml:space="preserve">%s</text>`+"\n",
				x, top+cellHeight-5, wide, fg, attributes(r.style), html.EscapeString(r.text))
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func attributes(s style) string {
	var out string
	if s.bold {
		out += ` font-weight="bold"`
	}
	if s.italic {
		out += ` font-style="italic"`
	}
	if s.underline {
		out += ` text-decoration="underline"`
	}
	return out
}

func orElse(colour, other string) string {
	if colour == "" {
		return other
	}
	return colour
}

// The sixteen colours that terminals name, as xterm has them.
var sixteen = [16]string{
	"#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5",
	"#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff",
}

// rgb turns a number of the palette into a colour.
func rgb(colour string) string {
	n, err := strconv.Atoi(colour)
	if err != nil {
		return colour
	}
	switch {
	case n < 16:
		return sixteen[n]
	case n < 232:
		level := func(i int) int {
			if i == 0 {
				return 0
			}
			return 55 + 40*i
		}
		n -= 16
		return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
	default:
		grey := 8 + 10*(n-232)
		return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
	}
}
