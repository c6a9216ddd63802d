package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"noused/internal/client/export"
	"noused/internal/cmdline"
)

func (a *app) exportCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "export [SESSION]",
		Short: "Write a session's conversation as a document",
		Long: `Write a session's conversation, from its root to its leaf, to standard output.

  md    Markdown. A text with dangerous links or active HTML is put into a code
        block.
  html  One web page that needs no other file; images are in it. The Markdown
        of assistants is rendered, without HTML of theirs. It also has the
        session's tree and its other branches, and can be searched.
  json  What the daemon has, indented. --json prints it on one line.

Characters that could control a terminal are removed from md and html, and
escaped in json.`,
		Example: `  nous export > talk.md
  nous export --format html ses-… > talk.html`,
		Args:              cmdline.Wants(0, 1, "SESSION, the id of a session, or nothing"),
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			write := exporters[format]
			if write == nil {
				return cmdline.Errorf("--format %s: want md, json or html", format)
			}
			if a.json && cmd.Flags().Changed("format") && format != "json" {
				return cmdline.Errorf("--json and --format %s exclude each other", format)
			}
			scope, err := a.scopeOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			doc, err := a.document(cmd.Context(), scope.SessionID, format)
			if err != nil {
				return err
			}
			if a.json {
				write = export.JSONLine
			}
			return write(a.out, doc)
		},
	}
	cmd.Flags().StringVar(&format, "format", "md", "the document's `format`: md, json or html")
	completeWords(cmd, "format", "md", "json", "html")
	return cmd
}

// document reads a session over one connection.
func (a *app) document(ctx context.Context, session, format string) (*export.Document, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return export.Read(ctx, sender{a, c}, session, format, a.far != nil)
}

// exporters write a session in each of the formats.
var exporters = map[string]func(io.Writer, *export.Document) error{
	"md":   func(w io.Writer, doc *export.Document) error { return export.Markdown(w, doc, loaded) },
	"json": export.JSON,
	"html": func(w io.Writer, doc *export.Document) error { return export.HTML(w, doc, richText) },
}
