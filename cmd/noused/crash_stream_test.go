package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
)

// What a client saw of an answer is in the session after the daemon was killed in the
// middle of it, and says that it was cut; an answer that was not announced is not there.
func TestKilledInAStream(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	d := unstarted(t, "noused")
	d.write("noused/config.toml", "[model]\ndelay = \"50us\"\n", 0o600)
	d.Start()
	var text strings.Builder
	text.WriteString("?a thought\n")
	for n := range 4000 {
		fmt.Fprintf(&text, "word-%d \"%c\" ", n, 'à'+rune(n%20))
	}
	prompt, err := json.Marshal(text.String())
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for range 20 {
		w := d.commands()
		id := into[protocol.Session](t, w.request(`{"id":"n","type":"new_session","payload":{}}`)).SessionID
		events := d.events(protocol.SubscribeParams{SessionID: id})
		run := into[protocol.PromptAccepted](t,
			w.request(fmt.Sprintf(`{"id":"p","type":"prompt","payload":{"wait":false,"text":%s}}`, prompt))).RunID
		heard, message := "", ""
		for left := rng.IntN(2000); ; left-- {
			ev, err := next(events)
			if err != nil {
				break // all that was announced has been read
			}
			switch ev := ev.(type) {
			case protocol.MessageStart:
				if ev.Role == "assistant" {
					message = ev.MessageID
				}
			case protocol.MessageUpdate:
				heard += ev.Delta
			}
			if left == 0 {
				_ = d.Cmd.Process.Signal(syscall.SIGKILL)
			}
		}
		<-d.Gone
		d.Start()
		w = d.commands()
		into[protocol.AbortAccepted](t, w.request(fmt.Sprintf(`{"id":"a","type":"abort","payload":{"session_id":%q}}`, id)))
		await(t, d.events(protocol.SubscribeParams{SessionID: id, After: new(uint64)}), endOf(run))
		found := false
		for _, text := range into[protocol.Messages](t,
			w.request(fmt.Sprintf(`{"id":"m","type":"get_messages","payload":{"session_id":%q}}`, id))).Messages {
			m := decode[protocol.Message](t, text)
			if m.Role == "assistant" && m.Text == "" && m.Thinking == "" {
				t.Fatalf("an answer without a word: %s", text)
			}
			if m.ID == message && message != "" {
				found = true
				if !strings.HasPrefix(m.Text, heard) || m.StopReason != "error" {
					t.Fatalf("a client heard %d bytes, the session has %d, stop reason %q", len(heard), len(m.Text), m.StopReason)
				}
			}
		}
		if heard != "" && !found {
			t.Fatalf("%d bytes were announced, and the session has none of them", len(heard))
		}
		if found {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no answer was cut")
	}
	t.Logf("%d answers were cut", cut)
}
