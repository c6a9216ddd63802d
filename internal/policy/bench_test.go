package policy

import (
	"errors"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
)

// An ordinary line beside the least that could be done for it: split at blanks,
// compare the first words.
func BenchmarkRule(b *testing.B) {
	s := rulesOf(b, sensible+denials)
	line := "git diff --stat HEAD && go test ./internal/policy 2>&1 | tail -20"
	call := bashCall(line, true)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d := s.Decide(call); d.Verdict != Allow {
				b.Fatal(d)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		allowed := [][]string{{"git", "diff"}, {"go", "test"}, {"tail"}}
		for b.Loop() {
			words := strings.Fields(line)
			for _, rule := range allowed {
				if slices.Equal(words[:len(rule)], rule) {
					break
				}
			}
		}
	})
	b.Run("in the sandbox", func(b *testing.B) {
		call := bashCall(line, false)
		for b.Loop() {
			s.Decide(call)
		}
	})
	b.Run("no rules", func(b *testing.B) {
		call := bashCall(line, false)
		for b.Loop() {
			(*Set)(nil).Decide(call)
		}
	})
}

// hostile are texts that nest, or only repeat.
var hostile = []string{
	"(", "$(", "{ ", "{", "`", "\\`", `"$(`, "${a:-", "$((", "((", "[[ (", "[[ ! ", "[[ a && ", "! ", "time ", "if ",
	"while ", "until ", "coproc ", "f() ",
	"function f ", "f() { ", "a|", "a&&", "a||", "a;", "a\n", "a&", "<(", ">(", "case a in a) ", "$((-", "$((a?", "$((a=",
	"$[", "a[", "${a[", "${a/",
	"let -", "a=(", "@(", "<<a;", "<<a\n", "for i in a; do ", "select i in a; do ", "\\", "'", "\"", "#\n", "# \\\n",
	"a #\n", "x && #\n", "$", "~", "a ", "env ", "sh ", "env sh ", "sh -c ",
	"env 'a b' ", "sh -c 'a b' ", "sudo 'sh -c \"a b\"' ", "eval ", "eval 'a b' ", "xargs git ", "git - ", "a=b ", "a=",
	"é", "\xff", "2>&1 ", ">a ", "\t",
}

func hostileLines() (lines []string) {
	for _, unit := range hostile {
		lines = append(lines, strings.Repeat(unit, maxLine/len(unit)))
	}
	for _, unit := range []string{"(", "$(", "{ ", "`", "$(("} {
		lines = append(lines, strings.Repeat(unit, 1<<20/len(unit)))
	}
	for _, unit := range []string{"'$(", "\"", "' a b "} {
		lines = append(lines, "sh -c '"+strings.Repeat(unit, 10_000)+"'")
	}
	return lines
}

func BenchmarkHostile(b *testing.B) {
	s := rulesOf(b, sensible+denials)
	for _, line := range hostileLines() {
		call := bashCall(line, true)
		if len(line) > maxLine {
			continue
		}
		b.Run(strings.ReplaceAll(line[:min(len(line), 12)], "/", "_"), func(b *testing.B) {
			for b.Loop() {
				s.Decide(call)
			}
		})
	}
}

// No line takes more of a stack than a few megabytes, however it nests: a stack
// that overflows ends the daemon. None is allowed, and none panics.
func TestHostileLinesAreBounded(t *testing.T) {
	s := rulesOf(t, sensible+denials)
	for _, line := range hostileLines() {
		for _, outside := range []bool{true, false} {
			done := make(chan Decision)
			go func() { done <- s.Decide(bashCall(line, outside)) }() // a stack of its own; ends with Decide
			if d := <-done; outside && d.Verdict == Allow {
				t.Errorf("%.20q… is allowed", line)
			}
		}
	}
	if got := stackBytes(); got > 64<<20 {
		t.Errorf("the stacks have %d MiB", got>>20)
	}
}

// What nests without end is given up early, and not parsed to its end; what people
// write is not near.
func TestNestingIsBounded(t *testing.T) {
	for _, unit := range []string{
		"(", "$(", "{ ", "\"$(", "${a:-", "$((", "((", "$[", "a[", "${a[", "if ", "while ", "<(",
		"f() ", "time ", "coproc ",
	} {
		if _, err := parse(strings.Repeat(unit, maxLine/len(unit))); !errors.Is(err, errDeep) {
			t.Errorf("%q again and again: got %v", unit, err)
		}
	}
	if _, err := parse(strings.Repeat("a", maxLine+1)); !errors.Is(err, errLong) {
		t.Errorf("a long line: got %v", err)
	}
	for _, c := range [][2]string{{"(", ")"}, {"$(echo ", ")"}, {"{ ", "; }"}, {"if a; then ", "; fi"}} {
		line := strings.Repeat(c[0], 20) + "a" + strings.Repeat(c[1], 20)
		if _, err := parse(line + strings.Repeat("; a", 500)); err != nil {
			t.Errorf("%s: got %v", line, err)
		}
	}
}

func stackBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	runtime.KeepAlive(sample)
	return sample[0].Value.Uint64()
}
