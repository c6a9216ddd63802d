package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"noused/internal/client/approval"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// approvalPrompt shows the questions of a run that is followed, and takes answers where a
// person is there. It belongs to one goroutine, but for the reader's.
type approvalPrompt struct {
	a      *app
	person bool               // standard input and error are a terminal
	shown  string             // the id of the question that was shown last
	open   *protocol.Approval // what waits, nil: nothing
	lines  chan string        // what was typed; nil before the first question
	noMore bool               // the end of the input has come
	dangle bool               // the last line on standard error is the offer
	form   *approval.Filler   // that is being filled in, of the open question

	allow func(protocol.Approval) // answers in the place of a person, nil: does not
}

// errTyped says that a line was typed while a question is open.
var errTyped = errors.New("typed")

func (a *app) newApprovalPrompt() *approvalPrompt {
	return &approvalPrompt{a: a, person: !a.json && a.personThere()}
}

// personThere tells whether somebody sees what is asked, and can answer.
func (a *app) personThere() bool { return plain.IsTerminal(a.in) && a.errStyle.Terminal }

// see takes the events that are about questions.
func (q *approvalPrompt) see(ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.Status:
		switch {
		case ev.Code == protocol.StatusApprovalRequested && ev.Approval != nil:
			q.askApproval(*ev.Approval)
		case ev.Code == protocol.StatusApprovalResolved:
			q.resolved(ev)
		}
	case protocol.AgentEnd:
		q.open, q.form = nil, nil
	}
}

// catchUp makes up for events that may have been missed.
func (q *approvalPrompt) catchUp(run string, pending []protocol.Approval) {
	i := slices.IndexFunc(pending, func(p protocol.Approval) bool { return p.RunID == run })
	switch {
	case i >= 0:
		q.askApproval(pending[i])
	case q.open != nil:
		q.open, q.form = nil, nil
		q.a.notef("the approval has been answered meanwhile")
	}
}

func (q *approvalPrompt) askApproval(one protocol.Approval) {
	q.open = &one
	if q.allow != nil {
		if !q.a.json {
			q.a.notef("allowed (--approvals allow): %s", approval.Summary(one, plain.LineWidth))
		}
		q.allow(one)
		return
	}
	if q.a.json || q.shown == one.ApprovalID { // asked again after a restart
		return
	}
	q.shown = one.ApprovalID
	here := q.person && q.foreground()
	if here {
		q.forget()
	}
	text := approval.Text(one)
	if q.a.errStyle.Terminal {
		text = plain.Fold(text, plain.WidthOf(q.a.err))
	}
	fmt.Fprint(q.a.err, text)
	if approval.Hides(text) {
		q.a.notef(approval.Hidden)
	}
	for _, o := range one.Options {
		q.a.notef("%s", q.a.answerLine(one, o))
	}
	if here {
		q.offer(one)
		q.read()
	}
}

// resolved reports an answer from anywhere, ours too.
func (q *approvalPrompt) resolved(ev protocol.Status) {
	if q.open != nil && q.open.ApprovalID == ev.ApprovalID {
		q.open, q.form = nil, nil
	}
	if q.dangle {
		fmt.Fprintln(q.a.err)
		q.dangle = false
	}
	if !q.a.json {
		q.a.notef("%s", approval.Resolution(ev))
	}
}

// offer says what can be typed.
func (q *approvalPrompt) offer(one protocol.Approval) {
	fmt.Fprint(q.a.err, approval.Offer(one)+", and Enter; the approval waits: ")
	q.dangle = true
}

// foreground tells whether what is typed is for nous: one in the background would
// be stopped by reading it.
func (q *approvalPrompt) foreground() bool {
	f, ok := q.a.in.(*os.File)
	if !ok {
		return false
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// forget drops what was typed before the question was there: it is no answer to it.
func (q *approvalPrompt) forget() {
	if f, ok := q.a.in.(*os.File); ok {
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
func (q *approvalPrompt) read() {
	if q.lines != nil {
		return
	}
	q.lines = make(chan string, 1)
	go func() {
		defer close(q.lines)
		in := bufio.NewScanner(q.a.in)
		for in.Scan() {
			q.lines <- in.Text()
		}
	}()
}

// typed runs f, which waits for what happens, with a context that ends with errTyped
// when somebody answers. Their line is taken then.
func (q *approvalPrompt) typed(ctx context.Context, f func(context.Context) error) error {
	if q.open == nil || q.lines == nil || q.noMore {
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
	if got {
		q.answer(ctx, line)
	}
	return err
}

// answer sends what was typed, unless the question has been answered meanwhile.
func (q *approvalPrompt) answer(ctx context.Context, line string) {
	q.dangle = false // Enter has ended it
	one := *q.open
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
func (q *approvalPrompt) fill(ctx context.Context) {
	f, err := approval.NewFiller(q.open.Schema)
	if err != nil {
		q.a.complain(err.Error())
		q.offer(*q.open)
		return
	}
	q.form = f
	q.next(ctx)
}

// field takes what was typed into the form.
func (q *approvalPrompt) field(ctx context.Context, line string) {
	if err := q.form.Fill(line); err != nil {
		q.a.complain(err.Error())
	}
	q.next(ctx)
}

// next asks for the next field, or sends the form where there is none.
func (q *approvalPrompt) next(ctx context.Context) {
	if !q.form.Done() {
		fmt.Fprint(q.a.err, q.form.Prompt())
		q.dangle = true
		return
	}
	content := q.form.Content()
	q.form = nil
	q.send(ctx, protocol.ApproveParams{ApprovalID: q.open.ApprovalID, Option: protocol.OptionAccept, Content: content})
}

func (q *approvalPrompt) send(ctx context.Context, p protocol.ApproveParams) {
	_, err := ask(ctx, q.a, protocol.Approve, p)
	var wire *protocol.Error
	switch {
	case err == nil:
	case errors.As(err, &wire) && wire.Reason() == protocol.ApprovalResolved: // the event says by whom
	default:
		q.a.complain(err.Error())
		q.offer(*q.open)
	}
}

// fillIn has the user fill in a form, line by line.
func (a *app) fillIn(ctx context.Context, q protocol.Approval) (jsontext.Value, error) {
	f, err := approval.NewFiller(q.Schema)
	if err != nil {
		return nil, err
	}
	a.notef("%s", approval.FormAsks(q))
	in := bufio.NewScanner(a.in)
	for !f.Done() {
		fmt.Fprint(a.err, f.Prompt())
		if !in.Scan() {
			return nil, errors.New("the form was not filled in to its end; it still waits")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := f.Fill(in.Text()); err != nil {
			a.complain(err.Error())
		}
	}
	return f.Content(), nil
}
