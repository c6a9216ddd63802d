// Command gen prints docs/protocol-openapi-like.json, the wire as a document,
// from the command table and the events of package protocol.
//
// It refuses to know where the document is kept: the caller redirects it.
package main

import (
	"fmt"
	"os"

	"noused/internal/protocol"
)

func main() {
	doc, err := protocol.Document()
	if err == nil {
		_, err = fmt.Printf("%s\n", doc)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
