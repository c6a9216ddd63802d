package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

const callbackTime = 5 * time.Second // for a browser to send its request

// callback is the page that the browser comes back to, on this machine.
type callback struct {
	dance   *dance
	address string
	server  *http.Server
	ended   chan struct{}
	answers chan answered
}

// answered is how the person's part of a login ended.
type answered struct {
	code string
	err  error
}

func listen(d *dance) (*callback, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wait for the browser: %w", err)
	}
	c := &callback{
		dance: d, address: "http://" + l.Addr().String() + "/callback",
		ended: make(chan struct{}), answers: make(chan answered, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", c.serve)
	c.server = &http.Server{
		Handler: mux, ReadTimeout: callbackTime, WriteTimeout: callbackTime, MaxHeaderBytes: maxHeader,
	}
	c.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(c.ended)
		_ = c.server.Serve(l)
	}()
	return c, nil
}

// close ends the page once those who look at it have it.
func (c *callback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), callbackTime)
	defer cancel()
	if c.server.Shutdown(ctx) != nil {
		_ = c.server.Close()
	}
	<-c.ended
}

func (c *callback) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	err := c.answer(r.URL.Query())
	switch {
	case errors.Is(err, errStranger):
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintln(w, "This is not the answer to the login that is under way.")
	case err != nil:
		_, _ = fmt.Fprintln(w, "The login failed. The terminal says why.")
	default:
		_, _ = fmt.Fprintln(w, "Thank you. The terminal says whether the login worked; you can close this page.")
	}
}

// answer takes what a browser came back with. The first that belongs to this login
// counts.
func (c *callback) answer(q url.Values) error {
	code, err := c.dance.read(q)
	if errors.Is(err, errStranger) {
		return err
	}
	select {
	case c.answers <- answered{code, err}:
	default:
	}
	return err
}

// wait returns the code that the person's yes came to.
func (c *callback) wait(ctx context.Context, pasted <-chan string) (string, error) {
	for {
		select {
		case a := <-c.answers:
			return a.code, a.err
		case line, ok := <-pasted:
			if !ok {
				pasted = nil
				continue
			}
			if u, err := url.Parse(line); err == nil {
				_ = c.answer(u.Query()) // of no login of ours: it is waited on
			}
		case <-ctx.Done():
			return "", fmt.Errorf("nobody has said yes: %w", context.Cause(ctx))
		}
	}
}
