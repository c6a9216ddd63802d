package theme

import (
	"image/color"
	"math"
	"reflect"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
)

// Backgrounds that people have: black, and those of common schemes.
var (
	darkBackgrounds  = []string{"#000000", "#1e1e1e", "#282c34", "#002b36", "#300a24"}
	lightBackgrounds = []string{"#ffffff", "#fdf6e3", "#eff1f5", "#f8f8f2"}
)

// styles are the styles of a theme, and of code, by role.
func styles(roles ...any) map[string]lipgloss.Style {
	all := map[string]lipgloss.Style{}
	for _, of := range roles {
		v := reflect.ValueOf(of)
		for i := range v.NumField() {
			all[v.Type().Name()+"."+v.Type().Field(i).Name] = v.Field(i).Interface().(lipgloss.Style)
		}
	}
	return all
}

// luminance is the relative luminance of WCAG 2.
func luminance(c color.Color) float64 {
	r, g, b, _ := c.RGBA()
	linear := func(v uint32) float64 {
		s := float64(v) / 0xffff
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

func contrast(a, b color.Color) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func coloured(c color.Color) bool {
	_, none := c.(lipgloss.NoColor)
	return c != nil && !none
}

func TestTextIsReadableOnEveryBackground(t *testing.T) {
	for _, dark := range []bool{true, false} {
		backgrounds := lightBackgrounds
		if dark {
			backgrounds = darkBackgrounds
		}
		for role, style := range styles(New(dark, true), NewSyntax(dark)) {
			fg, bg := style.GetForeground(), style.GetBackground()
			if !coloured(fg) {
				if coloured(bg) {
					t.Errorf("%s sets a background and leaves the text's colour to the terminal", role)
				}
				continue
			}
			want := 4.5
			if role == "Theme.Border" {
				want = 3 // no text (WCAG 1.4.11)
			}
			on := map[string]color.Color{}
			if coloured(bg) {
				on["its own background"] = bg
			} else {
				for _, hex := range backgrounds {
					on[hex] = lipgloss.Color(hex)
				}
			}
			for name, bg := range on {
				if got := contrast(fg, bg); got < want {
					t.Errorf("dark %v: %s on %s has a contrast of %.2f, want %.1f", dark, role, name, got, want)
				}
			}
		}
	}
}

// On the backgrounds of diffs, and of what the user says, code has its colours.
func TestBandsLeaveTextReadable(t *testing.T) {
	for _, dark := range []bool{true, false} {
		look := New(dark, true)
		front := styles(NewSyntax(dark))
		front["Dim"], front["Accent"] = look.Dim, look.Accent
		for role, style := range front {
			for _, band := range []lipgloss.Style{look.AddedOn, look.UserOn} {
				if got := contrast(style.GetForeground(), band.GetBackground()); got < 4.5 {
					t.Errorf("dark %v: %s has a contrast of %.2f on %v, want 4.5", dark, role, got, band.GetBackground())
				}
			}
		}
		for band, text := range map[string][2]lipgloss.Style{
			"added": {look.AddedOn, look.Added}, "removed": {look.RemovedOn, look.Removed}, "user": {look.UserOn, look.User},
		} {
			if got := contrast(text[1].GetForeground(), text[0].GetBackground()); got < 4.5 {
				t.Errorf("dark %v: what is %s has a contrast of %.2f, want 4.5", dark, band, got)
			}
		}
		line := Band(look.AddedOn, look.Added.Render("+a")+"b", 5)
		if got := ansi.Strip(line); got != "+ab  " || strings.Count(line, ";48;2;") != 2 {
			t.Errorf("dark %v: got %q, want five cells, on the background also behind a colour's end", dark, line)
		}
	}
	if got := Band(New(true, false).AddedOn, "+a", 5); got != "+a" {
		t.Errorf("without colours: got %q, want the line as it is", got)
	}
}

// In 16 colours the palette is the terminal's: what can be asked is that a role
// keeps its hue and none becomes the background.
func TestSixteenColours(t *testing.T) {
	index := func(c color.Color) string {
		names := []string{
			"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
			"black+", "red+", "green+", "yellow+", "blue+", "magenta+", "cyan+", "white+",
		}
		for i, name := range names {
			if colorprofile.ANSI.Convert(c) == colorprofile.ANSI.Convert(lipgloss.ANSIColor(i)) {
				return name
			}
		}
		return "?"
	}
	for _, dark := range []bool{true, false} {
		hues := map[string]string{
			"Theme.Error": "red", "Theme.Removed": "red", "Theme.OK": "green", "Theme.Added": "green",
			"Theme.Tool": "magenta", "Theme.User": "blue", "Theme.Warn": "red",
		}
		if dark {
			hues["Theme.User"], hues["Theme.Warn"] = "cyan", "yellow" // which most palettes make too pale for white
		}
		for role, style := range styles(New(dark, true), NewSyntax(dark)) {
			fg, bg := style.GetForeground(), style.GetBackground()
			if !coloured(fg) {
				continue
			}
			got := index(fg)
			if hue, ok := hues[role]; ok && strings.TrimSuffix(got, "+") != hue {
				t.Errorf("dark %v: %s becomes %s, want %s", dark, role, got, hue)
			}
			if !coloured(bg) && (dark && got == "black" || !dark && (got == "white" || got == "white+")) {
				t.Errorf("dark %v: %s becomes %s, the background", dark, role, got)
			}
			if coloured(bg) && strings.TrimSuffix(got, "+") == strings.TrimSuffix(index(bg), "+") {
				t.Errorf("dark %v: %s becomes %s on %s", dark, role, got, index(bg))
			}
		}
	}
}

func TestNoColour(t *testing.T) {
	for _, dark := range []bool{true, false} {
		for role, style := range styles(New(dark, false)) {
			if coloured(style.GetForeground()) || coloured(style.GetBackground()) {
				t.Errorf("dark %v: %s has a colour", dark, role)
			}
		}
	}
	for role, style := range styles(Theme{}, Syntax{}) {
		if got := style.Render("text"); got != "text" {
			t.Errorf("the zero %s makes %q of text", role, got)
		}
	}
}
