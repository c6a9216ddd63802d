package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// foreign are the words of the libraries that read the command line.
var foreign = regexp.MustCompile(
	`arg\(s\)|strconv|parsing|invalid argument|unknown (shorthand )?flag|needs an argument|bad flag syntax|group \[`)

func TestWrongCommandLinesAreToldInPlainWords(t *testing.T) {
	for line, want := range map[string]string{
		"now":                                   `unknown command "now"`,
		"docter":                                `unknown command "docter", did you mean doctor?`,
		"--frobnicate":                          `noused has no flag --frobnicate; it has --config, `,
		"-x":                                    `noused has no flag -x; it has --config, `,
		"--socket":                              `--socket wants a value: path`,
		"--=x":                                  `--=x is no flag: want --NAME or --NAME=VALUE`,
		"help nope":                             `unknown command "nope"`,
		"completion nope":                       `completion has no command "nope"`,
		"doctor twice":                          `doctor takes no arguments, and got "twice"`,
		"doctor --fix=perhaps":                  `--fix perhaps: want true or false`,
		"doctor --mend":                         `doctor has no flag --mend; it has --config, `,
		"extension chek":                        `extension has no command "chek", did you mean check?`,
		"extension files now":                   `extension files takes no arguments, and got "now"`,
		"extension check":                       `extension check wants FILE, the descriptor of a tool`,
		"extension check a b":                   `extension check takes 1 argument, and got "b" besides`,
		"extension check a --all --operation x": `--all and --operation exclude each other`,
		"extension check a --args 7":            `--args: want a JSON object, and --operation with it`,
	} {
		var out, errout bytes.Buffer
		status := execute(strings.Fields(line), func(string) string { return "" }, &out, &errout)
		lines := strings.SplitAfter(errout.String(), "\n")
		if status != 2 || out.Len() > 0 || !strings.HasPrefix(lines[0], "noused: "+want) {
			t.Errorf("%s: got status %d, output %q, errors %q, want %q", line, status, out.String(), errout.String(), want)
		}
		if len(lines) != 4 || !strings.HasPrefix(lines[1], "for example: noused") ||
			!strings.HasSuffix(lines[2], " --help says more\n") {
			t.Errorf("%s: got %q, want what is wrong, an example, and where there is more", line, errout.String())
		}
		if words := foreign.FindString(errout.String()); words != "" {
			t.Errorf("%s: %q is a library's way to say it", line, words)
		}
	}
}
