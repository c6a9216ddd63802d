// Command nous talks to a noused daemon from a terminal or a script.
//
// Concurrency: one goroutine does a command's work; two Ctrl-C are turned into
// two contexts, so that nothing else runs beside it.
//
// It refuses to hold any state of its own, and to read a session's files: what it knows it was
// told over the two sockets.
package main

import (
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for the process around it; it returns the exit
// status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(stdin, stdout, stderr).main(args)
}
