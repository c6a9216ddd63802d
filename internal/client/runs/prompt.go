package runs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// ApprovalPrompt shows the approvals of a run that is followed and of its child sessions, one
// after the other, and takes answers where a person is there. It belongs to one goroutine, but
// for the reader's.
type ApprovalPrompt struct {
	c       *Console
	person  bool                // standard input and error are a terminal
	shown   string              // the id of the approval that was shown last
	waiting []protocol.Approval // the first of them is the open one
	lines   chan string         // what was typed; nil before the first approval
	noMore  bool                // the end of the input has come
	dangle  bool                // the last line on standard error is the offer
	cut     bool                // something else stands behind the offer
	form    *approval.Filler    // that is being filled in, of the open approval

	Allow func(protocol.Approval) // answers in the place of a person, nil: does not
}

// errTyped says that a line was typed while an approval is open.
var errTyped = errors.New("typed")

// NewApprovalPrompt asks where a person is there and wants text.
func (c *Console) NewApprovalPrompt() *ApprovalPrompt {
	return &ApprovalPrompt{c: c, person: !c.JSON && c.PersonThere()}
}

// See takes the events that are about approvals.
func (q *ApprovalPrompt) See(ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.Status:
		switch {
		case ev.Code == protocol.StatusApprovalRequested && ev.Approval != nil:
			one := *ev.Approval
			one.SessionID, one.RunID = ev.SessionID, ev.RunID // the event says them once
			q.Ask(one)
		case ev.Code == protocol.StatusApprovalResolved:
			q.resolved(ev)
		}
	case protocol.AgentEnd:
		q.remove(func(one protocol.Approval) bool { return one.RunID == ev.RunID })
	}
}

// End says that nothing is asked any more: the run is over.
func (q *ApprovalPrompt) End() { q.waiting, q.form = nil, nil }

// Knows reports whether an approval waits here.
func (q *ApprovalPrompt) Knows(id string) bool {
	return slices.ContainsFunc(q.waiting, func(one protocol.Approval) bool { return one.ApprovalID == id })
}

// CatchUp makes up for events that may have been missed: these are all that wait.
func (q *ApprovalPrompt) CatchUp(pending []protocol.Approval) {
	gone := q.remove(func(one protocol.Approval) bool {
		return !slices.ContainsFunc(pending, func(p protocol.Approval) bool { return p.ApprovalID == one.ApprovalID })
	})
	if gone > 0 {
		q.c.Notef("the approval has been answered meanwhile")
	}
	for _, one := range pending {
		q.Ask(one)
	}
}

// Ask shows an approval, once those that are open are answered, or has it allowed. One that
// waits already is asked again after a restart.
func (q *ApprovalPrompt) Ask(one protocol.Approval) {
	known := q.Knows(one.ApprovalID)
	if !known {
		q.waiting = append(q.waiting, one)
	}
	switch {
	case q.Allow != nil:
		if !q.c.JSON {
			q.c.Notef("allowed (--approvals allow): %s", approval.Summary(one, plain.LineWidth))
		}
		q.Allow(one)
	case !known && (len(q.waiting) == 1 || !q.person):
		q.show(one)
	}
}

// remove takes away what does not wait any more, and shows what is open then.
func (q *ApprovalPrompt) remove(is func(protocol.Approval) bool) (removed int) {
	before, open := len(q.waiting), ""
	if before > 0 {
		open = q.waiting[0].ApprovalID
	}
	q.waiting = slices.DeleteFunc(q.waiting, is)
	if len(q.waiting) == 0 || q.waiting[0].ApprovalID != open {
		q.form = nil
	}
	if len(q.waiting) > 0 && q.waiting[0].ApprovalID != open && q.person {
		q.show(q.waiting[0])
	}
	return before - len(q.waiting)
}

// show shows the approval that is open, and offers to answer it.
func (q *ApprovalPrompt) show(one protocol.Approval) {
	if q.c.JSON || q.Allow != nil || q.shown == one.ApprovalID { // asked again after a restart
		return
	}
	q.shown = one.ApprovalID
	here := q.person && q.foreground() && !q.noMore
	if here {
		q.forget()
	}
	text := approval.Text(one)
	if q.c.ErrStyle.Terminal {
		text = plain.Fold(text, plain.WidthOf(q.c.Err))
	}
	fmt.Fprint(q.c.Err, text)
	if approval.Hides(text) {
		q.c.Notef(approval.Hidden)
	}
	for _, o := range one.Options {
		q.c.Notef("%s", q.c.AnswerLine(one, o))
	}
	if here {
		q.offer(one)
		q.read()
	}
}

// resolved reports an answer from anywhere, ours too.
func (q *ApprovalPrompt) resolved(ev protocol.Status) {
	dangled := q.dangle
	if q.dangle {
		fmt.Fprintln(q.c.Err)
		q.dangle = false
	}
	if !q.c.JSON {
		q.c.Notef("%s", approval.Resolution(ev))
	}
	first := len(q.waiting) > 0 && q.waiting[0].ApprovalID == ev.ApprovalID
	q.remove(func(one protocol.Approval) bool { return one.ApprovalID == ev.ApprovalID })
	if dangled && !first && len(q.waiting) > 0 {
		q.offerAgain()
	}
}

// Pause ends the line of the offer, as something else is shown now: the run goes on while a
// child of it asks.
func (q *ApprovalPrompt) Pause() {
	if q.dangle {
		fmt.Fprintln(q.c.Err)
		q.dangle, q.cut = false, true
	}
}

// Resume makes the offer again that Pause has ended.
func (q *ApprovalPrompt) Resume() {
	if q.cut && len(q.waiting) > 0 {
		q.offerAgain()
	}
}

// offerAgain says once more what can be typed: something else stands behind it.
func (q *ApprovalPrompt) offerAgain() {
	if q.form == nil {
		q.offer(q.waiting[0])
	} else {
		q.offerField()
	}
}

// offerField asks for the next field of the form.
func (q *ApprovalPrompt) offerField() {
	fmt.Fprint(q.c.Err, q.form.Prompt())
	q.dangle, q.cut = true, false
}

// offer says what can be typed.
func (q *ApprovalPrompt) offer(one protocol.Approval) {
	fmt.Fprint(q.c.Err, approval.Offer(one)+", and Enter; the approval waits: ")
	q.dangle, q.cut = true, false
}

// foreground tells whether what is typed is for nous: one in the background would
// be stopped by reading it.
func (q *ApprovalPrompt) foreground() bool {
	f, ok := q.c.In.(*os.File)
	if !ok {
		return false
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// forget drops what was typed before the approval was there: it is no answer to it.
func (q *ApprovalPrompt) forget() {
	if f, ok := q.c.In.(*os.File); ok {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	}
	for q.lines != nil {
		select {
		case _, more := <-q.lines:
			q.noMore = q.noMore || !more
			if !more {
				return
			}
		default:
			return
		}
	}
}

// read has lines read from now on. Nothing ends a read of a terminal but the
// program's end.
func (q *ApprovalPrompt) read() {
	if q.lines != nil {
		return
	}
	q.lines = make(chan string, 1)
	go func() {
		defer close(q.lines)
		in := bufio.NewScanner(q.c.In)
		for in.Scan() {
			q.lines <- in.Text()
		}
	}()
}

// Typed runs f, which waits for what happens, with a context that ends with errTyped
// when somebody answers. Their line is taken then.
func (q *ApprovalPrompt) Typed(ctx context.Context, f func(context.Context) error) error {
	if len(q.waiting) == 0 || q.lines == nil || q.noMore {
		return f(ctx)
	}
	waits, cut := context.WithCancelCause(ctx)
	line, done, ended := "", make(chan struct{}), make(chan struct{})
	got := false
	go func() { // ends with f
		defer close(ended)
		select {
		case line, got = <-q.lines:
			q.noMore = !got
			cut(errTyped)
		case <-done:
		}
	}()
	err := f(waits)
	close(done)
	<-ended
	cut(nil)
	if errors.Is(err, errTyped) {
		err = nil
	}
	switch {
	case got:
		q.answer(ctx, line)
	case q.noMore && len(q.waiting) > 0:
		fmt.Fprintln(q.c.Err)
		q.dangle = false
		q.c.Notef("the input has ended here: answer in another terminal with nous approve or nous deny")
	}
	return err
}

// answer sends what was typed, unless the approval has been answered meanwhile.
func (q *ApprovalPrompt) answer(ctx context.Context, line string) {
	q.dangle = false // Enter has ended it
	one := q.waiting[0]
	if q.form != nil {
		q.field(ctx, line)
		return
	}
	letter, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
	option := approval.Typed(one, letter)
	if option == "" || reason != "" && option != protocol.OptionDeny {
		q.offer(one)
		return
	}
	if option == protocol.OptionAccept {
		q.fill(ctx)
		return
	}
	q.send(ctx, protocol.ApproveParams{ApprovalID: one.ApprovalID, Option: option, Reason: strings.TrimSpace(reason)})
}

// fill begins to have a form filled in.
func (q *ApprovalPrompt) fill(ctx context.Context) {
	f, err := approval.NewFiller(q.waiting[0].Schema)
	if err != nil {
		q.c.Complain(err.Error())
		q.offer(q.waiting[0])
		return
	}
	q.form = f
	q.next(ctx)
}

// field takes what was typed into the form.
func (q *ApprovalPrompt) field(ctx context.Context, line string) {
	if err := q.form.Fill(line); err != nil {
		q.c.Complain(err.Error())
	}
	q.next(ctx)
}

// next asks for the next field, or sends the form where there is none.
func (q *ApprovalPrompt) next(ctx context.Context) {
	if !q.form.Done() {
		q.offerField()
		return
	}
	content := q.form.Content()
	q.form = nil
	q.send(ctx, protocol.ApproveParams{
		ApprovalID: q.waiting[0].ApprovalID, Option: protocol.OptionAccept, Content: content,
	})
}

func (q *ApprovalPrompt) send(ctx context.Context, p protocol.ApproveParams) {
	_, err := client.Call(ctx, q.c.Daemon, protocol.Approve, p)
	var wire *protocol.Error
	switch {
	case err == nil:
	case errors.As(err, &wire) && wire.Reason() == protocol.ApprovalResolved: // the event says by whom
	default:
		q.c.Complain(protocol.ErrorText(err))
		q.offer(q.waiting[0])
	}
}

// FillIn has the user fill in a form, line by line.
func FillIn(ctx context.Context, p *plain.Printer, from io.Reader, q protocol.Approval) (jsontext.Value, error) {
	f, err := approval.NewFiller(q.Schema)
	if err != nil {
		return nil, err
	}
	p.Notef("%s", approval.FormAsks(q))
	in := bufio.NewScanner(from)
	for !f.Done() {
		fmt.Fprint(p.Err, f.Prompt())
		if !in.Scan() {
			return nil, errors.New("the form was not filled in to its end; it still waits")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := f.Fill(in.Text()); err != nil {
			p.Complain(err.Error())
		}
	}
	return f.Content(), nil
}
