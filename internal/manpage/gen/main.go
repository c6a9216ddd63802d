// Command gen makes a manual page of a document in Markdown, on standard output:
//
//	gen docs/tools.md noused-tools 7 'how tools are made' 2026-11-22 v0.1.0
//
// It refuses what it has no form for, rather than leave it out.
package main

import (
	"fmt"
	"os"
	"strconv"

	"noused/internal/manpage"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 6 {
		return fmt.Errorf("want FILE NAME SECTION SUMMARY DATE VERSION, and got %q", args)
	}
	section, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	page, err := convert(text, manpage.Title{
		Name: args[1], Section: section, Summary: args[3], Date: args[4], Source: "noused " + args[5],
	})
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	_, err = os.Stdout.Write(page)
	return err
}
