// Command gen prints what is generated from the command table and the events of
// package protocol: docs/protocol-openapi-like.json, the wire as a document; and
// with the argument python or typescript, that document's payloads as types of
// that language.
//
// It refuses to know where these files are kept: the caller redirects it.
package main

import (
	"fmt"
	"os"

	"noused/internal/protocol"
)

func main() {
	doc, err := protocol.Document()
	text := string(doc) + "\n"
	if err == nil && len(os.Args) > 1 {
		text, err = typesIn(os.Args[1], doc)
	}
	if err == nil {
		_, err = fmt.Print(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// typesIn are the document's types in a language.
func typesIn(language string, doc []byte) (string, error) {
	read, err := readDocument(doc)
	if err != nil {
		return "", err
	}
	switch language {
	case "python":
		return python(read), nil
	case "typescript":
		return typescript(read), nil
	default:
		return "", fmt.Errorf("%q: want python or typescript", language)
	}
}
