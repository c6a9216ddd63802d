package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// strictVendor is what one vendor is strict about: how its model answers, what of
// the answer has to come back, and in which words it refuses what does not.
// The rows are strictVendors.
type strictVendor struct {
	name  string
	wire  string // "chat", "messages" or "responses"
	model string
	host  string // whose place the server takes, through a proxy; "": nobody's
	path  string // before /v1

	think    string // chat: the member that thinking has; "parts" and "tags" are in the content
	needed   bool   // chat: the member is on every message of a tool exchange, no matter who made it
	bridge   bool   // chat: nobody may speak after a tool but the assistant
	marked   bool   // chat: cache marks are wanted
	call     string // chat: further members of the first call of a message
	whole    string // chat: further members of the message, as they come back
	pieces   string // chat: and as they are streamed, with commas in between
	unsigned string // messages: how a block of thinking is signed: "absent", "empty", or as Anthropic does

	id     func(n int) string // of the nth call
	status int
	refuse string // the body of a refusal, %q for why
}

// say is what the model is to answer.
type say struct {
	thinking, text string
	calls          []string // arguments
	tool           string   // "": read
}

func (a say) called() string { return cmp.Or(a.tool, "read") }

// vendorServer plays the model of a conversation whose turns the
// prompts number: in each it calls two tools at once, then one, then it answers.
// It refuses every request in which an answer does not come back as it was given.
type vendorServer struct {
	strictVendor
	url string

	mu       sync.Mutex
	requests int
	refused  []string
	given    map[string][]jsontext.Value // what is to come back, by the answer's first call or its text
	calls    int                         // that were made
	last     []jsontext.Value            // the messages of the request before
	head     string                      // what is before them
	tools    []string                    // of each request
	searched bool                        // by the answer before: the next request may have more tools
	named    map[string]bool             // tools that were called
	held     map[string]bool             // prompts whose answer was held
	release  chan struct{}               // lets the answer go on
}

func serveVendor(t *testing.T, v strictVendor) *vendorServer {
	t.Helper()
	s := &vendorServer{
		strictVendor: v, given: map[string][]jsontext.Value{}, held: map[string]bool{},
		named: map[string]bool{}, release: make(chan struct{}),
	}
	server := httptest.NewServer(unlisted(s.ServeHTTP))
	t.Cleanup(server.Close)
	s.url = server.URL + v.path + "/v1"
	if v.host != "" {
		s.url = "http://" + v.host + v.path + "/v1"
	}
	return s
}

// asked is a request: its messages as they came, and what is before them.
type asked struct {
	head     string
	messages []jsontext.Value
	heard    []heardMessage
	tools    int
	marks    int
}

func (s *vendorServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the daemon is gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	got, err := s.read(r.URL.Path, body)
	if err == nil {
		err = s.keepTools(body)
	}
	if err == nil {
		err = inOrder(got.heard)
	}
	if err == nil {
		err = s.sameBeginning(body, got)
	}
	if err != nil {
		s.refused = append(s.refused, fmt.Sprintf("request %d: %v", s.requests, err))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.status)
		_, _ = fmt.Fprintf(w, s.refuse, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s.answer(w, r, got)
}

// read reads a request of the vendor's wire and checks it against its rules.
func (s *vendorServer) read(path string, body []byte) (asked, error) {
	switch {
	case s.wire == "chat" && path == s.path+"/v1/chat/completions":
		return s.readChat(body)
	case s.wire == "messages" && path == s.path+"/v1/messages":
		return s.readMessages(body)
	case s.wire == "responses" && path == s.path+"/v1/responses":
		return s.readResponses(body)
	}
	return asked{}, fmt.Errorf("unknown path %s", path)
}

// keepTools remembers which tools a request has.
func (s *vendorServer) keepTools(body []byte) error {
	r, err := of[struct {
		Tools jsontext.Value `json:"tools"`
	}](body)
	s.tools = append(s.tools, cacheMark.ReplaceAllString(string(r.Tools), ""))
	return err
}

var cacheMark = regexp.MustCompile(`,"cache_control":\{"type":"ephemeral"\}`)

// sameBeginning wants a request to begin with the bytes of the one before, but
// for the marks.
func (s *vendorServer) sameBeginning(body []byte, got asked) error {
	text := cacheMark.ReplaceAllString(string(body), "")
	begins := s.head
	if s.searched {
		begins = cacheMark.ReplaceAllString(got.head, "")
	}
	for i, m := range s.last {
		if i > 0 {
			begins += ","
		}
		begins += cacheMark.ReplaceAllString(string(m), "")
	}
	if n := len(s.tools); n > 1 && !s.searched && s.tools[n-1] != s.tools[n-2] {
		return fmt.Errorf("the request has other tools than the one before: %s, not %s", s.tools[n-1], s.tools[n-2])
	}
	s.searched = false
	s.head, s.last = cacheMark.ReplaceAllString(got.head, ""), got.messages
	if strings.HasPrefix(text, begins) {
		return nil
	}
	n := 0
	for n < min(len(text), len(begins)) && text[n] == begins[n] {
		n++
	}
	return fmt.Errorf("the request does not begin as the one before: %.150s, not %.150s", text[max(0, n-40):],
		begins[max(0, n-40):])
}

// answer goes on with the conversation.
func (s *vendorServer) answer(w http.ResponseWriter, r *http.Request, got asked) {
	prompt, step := "", 0
	for _, m := range slices.Backward(got.heard) {
		if m.role == "user" && strings.Contains(m.text, "turn ") {
			prompt = m.text
			break
		}
		if m.role == "assistant" && m.text != "The tool has answered." {
			step++
		}
	}
	prompt = prompt[max(0, strings.LastIndex(prompt, "turn ")):]
	turn, _, _ := strings.Cut(prompt, ":")
	a := say{
		thinking: fmt.Sprintf("I think of %s, \"step\" %d.\nGrüße 🦊", turn, step),
		calls:    []string{`{"path": "page.txt",  "limit": 5}`},
	}
	switch step {
	case 0:
		a.calls = append(a.calls, `{"path":"p\u0061ge.txt"}`)
	case 1:
		a.text = "Once more, in " + turn + "."
	default:
		a.text, a.calls = turn+" is done", nil
	}
	if strings.Contains(prompt, "FIND") {
		a = s.find(a, turn, step)
	}
	if strings.Contains(prompt, "STALL") && step == 1 && !s.held[prompt] || strings.Contains(prompt, "HOLD") && step == 2 {
		s.held[prompt] = true
		release := s.release
		if step == 1 {
			release = nil
		}
		s.hold(w, r, a, release)
		return
	}
	s.emit(w, a, "")
}

// hold streams the answer's thinking and half of its text, and waits for the
// release, or for the daemon to be gone.
func (s *vendorServer) hold(w http.ResponseWriter, r *http.Request, a say, release chan struct{}) {
	stop := "\x00" // ends what is streamed in one piece
	s.emit(&held{w, func() {
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		s.mu.Lock()
	}}, a, stop)
}

// held waits where a NUL is written.
type held struct {
	http.ResponseWriter
	wait func()
}

func (h *held) Write(b []byte) (int, error) {
	before, after, found := bytes.Cut(b, []byte("\x00"))
	if !found {
		return h.ResponseWriter.Write(b)
	}
	_, _ = h.ResponseWriter.Write(before)
	h.wait()
	_, err := h.ResponseWriter.Write(after)
	return len(b), err
}

// emit streams an answer the vendor's way, with stop between the halves of its
// text, and remembers what is to come back.
func (s *vendorServer) emit(w http.ResponseWriter, a say, stop string) {
	var ids []string
	s.named[a.called()] = true
	for range a.calls {
		s.calls++
		ids = append(ids, s.id(s.calls))
	}
	key := a.text
	if len(ids) > 0 {
		key = ids[0]
	}
	begun, rest, back := map[string]func(say, []string) (string, string, []jsontext.Value){
		"chat": s.sayChat, "messages": s.sayMessages, "responses": s.sayResponses,
	}[s.wire](a, ids)
	if _, err := io.WriteString(w, begun+stop); err != nil {
		return
	}
	if _, err := io.WriteString(w, rest); err == nil {
		s.given[key] = back
	}
}

// halves of a text, which are streamed one after the other.
func halves(text string) (string, string) { return text[:len(text)/2], text[len(text)/2:] }

// data are events that are only data.
func data(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

// quoted is a text as JSON.
func quoted(text string) string {
	q, _ := jsontext.AppendQuote(nil, text)
	return string(q)
}

// same reports that two JSON values say the same.
func same(a, b jsontext.Value) bool {
	a, b = a.Clone(), b.Clone()
	return a.Canonicalize() == nil && b.Canonicalize() == nil && string(a) == string(b)
}

// of reads a value as T.
func of[T any](v jsontext.Value) (T, error) {
	var out T
	err := json.Unmarshal(v, &out)
	return out, err
}
