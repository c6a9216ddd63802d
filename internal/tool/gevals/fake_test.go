package gevals

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool/tooltest"
)

// trace is where a player notes, in its working directory, that it started and
// each line that it gets.
const trace = "trace"

// usual is a player's manifest, unless its script has another.
const usual = `{"name":"fake","version":"1.0.0","protocolVersion":"0.0.1","operations":{"run":{"description":"runs",` +
	`"params":{"type":"object","properties":{"n":{"type":"integer","default":1}}}}}}`

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		"player": func() int { return newPlayer().play() },
		"echo":   func() int { return newPlayer().echo() },
	})
}

// A player is an extension that does what its script says, one step a line; the
// n-th process of a module plays the n-th scene of the script, or the last. A
// step that begins with "!" is one of these, any other is written to stdout as
// it is, but for $ID, the id of the latest request, and $NEXT, the next one.
//
//	!get         read a request
//	!init …      read one, answer it with that manifest, or with the usual one
//	!ok …        answer it with a success that says that, or "did it"
//	!print "…"   write that to stdout, escapes and all, without a line's end
//	!xs N        write that many letters, without a line's end
//	!logs N      write that many logs, numbered
//	!stderr "…"  write that to stderr
//	!noise N     write that many lines to stderr
//	!input       answer with the length of the request
//	!env         answer with the environment
//	!term        wait for SIGTERM
//	!immortal    ignore SIGTERM
//	!await FILE  read a FIFO to its end
//	!hold        hold the FIFO of the test
//	!closes      close stdout
//	!child       leave a child behind that holds stdout
//	!floods      write logs for ever
//	!blocks      wait to be killed
//	!waits       wait for the end of stdin
//	!exit N      exit with that status
//	!dies        die of SIGKILL
//
// It does !init first unless a scene begins with !cold. After its scene it
// answers everything, "again", until it is shut down, and then holds the FIFO
// of the test, if there is one, until its end. Like extensions built on the
// common SDK it dies of a line over 65,535 bytes, unless WIDE is set.
type player struct {
	in    *bufio.Scanner
	steps []string
	id    jsontext.Value
	size  int
	down  bool // a shutdown is the latest request
}

func newPlayer() *player {
	tooltest.Append(trace, "start")
	text, _ := os.ReadFile(trace)
	starts := 0
	for line := range strings.Lines(string(text)) {
		if line == "start\n" {
			starts++
		}
	}
	scenes := strings.Split(os.Getenv("SCRIPT"), "\n!next\n")
	p := &player{in: bufio.NewScanner(os.Stdin), steps: strings.Split(scenes[min(starts, len(scenes))-1], "\n")}
	if os.Getenv("WIDE") != "" {
		p.in.Buffer(nil, 1<<20)
	}
	if p.steps[0] != "!cold" {
		p.steps = slices.Insert(p.steps, 0, "!init")
	}
	return p
}

// get reads a request; false is the end of stdin, or of the player.
func (p *player) get() bool {
	if !p.in.Scan() {
		return false
	}
	var r struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
	}
	if err := json.Unmarshal(p.in.Bytes(), &r); err != nil {
		panic(err)
	}
	p.id, p.size, p.down = r.ID, len(p.in.Bytes()), r.Method == "shutdown"
	if p.size < 10_000 {
		tooltest.Append(trace, p.in.Text())
	}
	return true
}

func (p *player) write(line string) {
	n, _ := strconv.Atoi(string(p.id))
	fmt.Println(strings.NewReplacer("$ID", string(p.id), "$NEXT", strconv.Itoa(n+1)).Replace(line))
}

func (p *player) succeed(message string) {
	text, _ := json.Marshal(message)
	p.write(`{"jsonrpc":"2.0","id":$ID,"result":{"success":true,"message":` + string(text) + `}}`)
}

func (p *player) play() int {
	for _, step := range p.steps {
		if status := p.step(step); status >= 0 {
			return status
		}
	}
	for p.get() {
		if p.down {
			p.write(`{"jsonrpc":"2.0","id":$ID,"result":{}}`)
			if os.Getenv(tooltest.FIFO) != "" {
				tooltest.Hold()
			}
			return 0
		}
		p.succeed("again")
	}
	if err := p.in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "reading standard input:", err)
		return 1
	}
	return 0
}

// step returns the exit status of a player that has had enough, or -1.
func (p *player) step(step string) int {
	verb, arg, _ := strings.Cut(step, " ")
	n, _ := strconv.Atoi(arg)
	switch verb {
	case "!cold", "":
	case "!get", "!init":
		if !p.get() {
			if p.in.Err() != nil {
				fmt.Fprintln(os.Stderr, "reading standard input:", p.in.Err())
				return 1
			}
			return 0
		}
		if verb == "!init" {
			if arg == "" {
				arg = usual
			}
			p.write(`{"jsonrpc":"2.0","id":$ID,"result":` + arg + `}`)
		}
	case "!ok":
		if arg == "" {
			arg = "did it"
		}
		p.succeed(arg)
	case "!print":
		text, err := strconv.Unquote(arg)
		if err != nil {
			panic(err)
		}
		io.WriteString(os.Stdout, strings.ReplaceAll(text, "$ID", string(p.id)))
	case "!xs":
		io.WriteString(os.Stdout, strings.Repeat("x", n))
	case "!logs":
		for i := range n {
			fmt.Println(logLine(fmt.Sprint("line ", i)))
		}
	case "!stderr":
		text, err := strconv.Unquote(arg)
		if err != nil {
			panic(err)
		}
		io.WriteString(os.Stderr, strings.ReplaceAll(text, "$ID", string(p.id)))
	case "!noise":
		io.WriteString(os.Stderr, strings.Repeat("noise\n", n))
	case "!input":
		p.succeed(strconv.Itoa(p.size))
	case "!env":
		p.succeed(strings.Join(os.Environ(), "\n"))
	case "!term":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println(logLine("ready"))
		<-c
	case "!immortal":
		signal.Ignore(syscall.SIGTERM)
	case "!await":
		os.ReadFile(arg)
	case "!hold":
		tooltest.Hold()
	case "!closes":
		os.Stdout.Close()
	case "!child":
		self, _ := os.Executable()
		child := exec.Command(self)
		child.Env = []string{tooltest.Mode + "=player", "SCRIPT=!cold\n!blocks"}
		child.Stdout, child.Dir = os.Stdout, os.TempDir()
		if err := child.Start(); err != nil {
			return 99
		}
	case "!floods":
		w := bufio.NewWriter(os.Stdout)
		for {
			if _, err := fmt.Fprintln(w, logLine("flood")); err != nil {
				return 0
			}
		}
	case "!blocks":
		tooltest.Block()
	case "!waits":
		for p.in.Scan() {
		}
	case "!exit":
		return n
	case "!dies":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		tooltest.Block()
	default:
		p.write(step)
	}
	return -1
}

func logLine(message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":%q}}`, message)
}

// echo is the least that an extension can be, for measuring: it leaves no
// trace, and answers by rote.
func (p *player) echo() int {
	for p.in.Scan() {
		line := p.in.Bytes()
		id, _, _ := strings.Cut(string(line[strings.Index(string(line), `"id":`)+5:]), ",")
		result := echoResult
		if strings.Contains(string(line), `"method":"initialize"`) {
			result = usual
		}
		os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + id + `,"result":` + result + "}\n")
		if strings.Contains(string(line), `"method":"shutdown"`) {
			return 0
		}
	}
	return 0
}

const echoResult = `{"success":true,"message":"did it","outputs":{"n":"1"}}`
