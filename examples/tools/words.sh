#!/bin/sh
# go run keeps what it built in Go's cache: the first call compiles, the next ones
# start at once. A Go tool of your own is better built beforehand.
exec go run "$(dirname "$0")/words.go"
