package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/proc"
	"noused/internal/tool/tooltest"
)

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		"env": func() int {
			for _, kv := range os.Environ() {
				fmt.Println(kv)
			}
			return 0
		},
	})
}

func TestACallsEndHasItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := WithTimeout(t.Context(), time.Minute)
		defer cancel()
		inner, stop := context.WithCancel(ctx)
		defer stop()
		<-inner.Done()
		if f := Interrupted(inner); f.Code != Timeout || f.Message != "no result within 1m0s" {
			t.Errorf("got %+v, want a timeout", f)
		}
		said, abort := context.WithCancelCause(t.Context())
		abort(errors.New("the user said so"))
		if f := Interrupted(said); f.Code != Aborted || f.Message != "the user said so" {
			t.Errorf("got %+v, want an abort that gives its cause", f)
		}
		plain, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		<-plain.Done()
		if f := Interrupted(plain); f.Code != Aborted {
			t.Errorf("got %+v: the caller's own deadline is an abort", f)
		}
	})
}

func TestWhatASandboxNeedsIsSaidInTheDescriptorsWords(t *testing.T) {
	for err, want := range map[*proc.Error]string{
		{Reason: "no Landlock", Forbidden: true, Weak: true}: "no Landlock; sandbox_required=false runs the tool without",
		{Reason: "the workdir is hidden", Forbidden: true}:   "the workdir is hidden",
	} {
		var f *Fault
		if got := unconfined(err); !errors.As(got, &f) || f.Code != Forbidden || f.Message != want {
			t.Errorf("got %v, want forbidden: %s", got, want)
		}
	}
}
