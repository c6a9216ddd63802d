package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
)

// rivalTime is for how long a rival is still reported after it was last heard. One that lives
// tries to get the name more often.
const rivalTime = time.Minute

// nameTrouble is what the status calls it.
const nameTrouble = "name"

// rival is another daemon that wants the name.
type rival struct {
	fleet.Rival
	heard time.Time
}

// rival takes note of another daemon that finds its name taken: of two machines with one
// name, those who send commands should know.
func (l *link) rival(m *nats.Msg) {
	var by fleet.Presence
	h := l.host
	if len(m.Data) > fleet.MaxPresence || json.Unmarshal(m.Data, &by) != nil || by.Name != h.o.Name ||
		by.Epoch == h.o.Epoch {
		return
	}
	r := &rival{fleet.Rival{Version: short128(plain(by.Version)), Epoch: short128(plain(by.Epoch))}, time.Now()}
	if len(by.Workdirs) > 0 {
		r.Workdir = short128(plain(by.Workdirs[0]))
	}
	if was := h.rival.Swap(r); was == nil || was.Rival != r.Rival {
		h.nudge()
	}
	h.status.report(nameTrouble, "another daemon of the fleet wants this one's name, and takes no commands", r.problem())
}

func (r *rival) problem() error {
	text := fmt.Sprintf("another daemon wants this name too, and takes no commands (epoch %s, version %s", r.Epoch,
		r.Version)
	if r.Workdir != "" {
		text += ", in " + r.Workdir
	}
	return errors.New(text + "): give one of the two another name in [fleet]")
}

// forgetRival forgets one that was not heard of for a while.
func (h *Host) forgetRival(now time.Time) {
	if r := h.rival.Load(); r != nil && now.Sub(r.heard) > rivalTime && h.rival.CompareAndSwap(r, nil) {
		h.status.over(nameTrouble, "no other daemon of the fleet wants this one's name any more")
	}
}
