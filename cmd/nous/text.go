package main

import (
	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// style is plain.Style, by the names that this package has for it.
type style struct{ plain.Style }

const (
	asDim = plain.Dim
	asRed = plain.Red
)

func (s style) paint(look, text string) string { return s.Paint(look, text) }

func modelName(m protocol.ModelInfo) string { return plain.ModelName(m) }

// printer prints as the global flags and the two streams say.
func (a *app) printer() *plain.Printer {
	return &plain.Printer{
		Out: a.out, Err: a.err, OutStyle: a.outStyle.Style, ErrStyle: a.errStyle.Style, JSON: a.json, Raw: a.raw,
	}
}

func (a *app) print(text string) { a.printer().Print(text) }

func (a *app) println(text string) { a.printer().Println(text) }

func (a *app) printSpans(spans ...plain.Span) { a.printer().Spans(spans...) }

func (a *app) printJSON(value []byte) { a.printer().JSONLine(value) }

func (a *app) printTable(header []string, rows [][]string) { a.printer().Table(header, rows) }

func (a *app) printPairs(pairs [][2]string) { a.printer().Pairs(pairs) }

// rawFlag is for commands that print whole texts.
func (a *app) rawFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.raw, "raw", false, "print texts as they are, with what could drive a terminal")
}
