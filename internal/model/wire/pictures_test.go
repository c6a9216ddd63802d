package wire_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// files counts what is open.
type files struct {
	mu   sync.Mutex
	open int
	most int
}

type counted struct {
	io.Reader
	of *files
}

func (c counted) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.open--
	return nil
}

func (f *files) image(content []byte, size int) model.Attachment {
	return model.Attachment{MediaType: "image/png", Size: int64(size), Open: func() (io.ReadCloser, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open++
		f.most = max(f.most, f.open)
		return counted{bytes.NewReader(content), f}, nil
	}}
}

// A request has its images as their files do, each time that it is sent, says its
// length beforehand, and has one file open at a time.
func TestImagesAreReadAsTheyAreSent(t *testing.T) {
	for _, d := range dialects {
		for _, extra := range []map[string]any{nil, {"zz": 1, "aa": "b"}} {
			t.Run(fmt.Sprintf("%s %d", d.name, len(extra)), func(t *testing.T) {
				var got []string
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					text, err := io.ReadAll(r.Body)
					if err != nil || r.ContentLength != int64(len(text)) {
						t.Errorf("got %d bytes, %v, of %d", len(text), err, r.ContentLength)
					}
					got = append(got, string(text))
					if len(got) == 1 {
						w.Header().Set("Retry-After-Ms", "1")
						w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					_, _ = io.WriteString(w, d.start+d.text("ok")+d.finish("stop"))
				}))
				defer server.Close()
				p, err := d.make(wire.Options{BaseURL: server.URL + "/v1", Model: "m", Extra: extra})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				held, streamed := model.Message{Role: model.User, Text: "look"}, model.Message{Role: model.User, Text: "look"}
				f := &files{}
				for _, n := range []int{0, 1, 2, 3, 24<<10 - 1, 24 << 10, 24<<10 + 1, 100_000} {
					content := bytes.Repeat([]byte{0xff, 1, byte(n)}, n/3+1)[:n]
					held.Attachments = append(held.Attachments, model.Attachment{
						MediaType: "image/png", Size: int64(n),
						Data: content,
					})
					streamed.Attachments = append(streamed.Attachments, f.image(content, n))
				}
				for _, m := range []model.Message{streamed, held} {
					for _, err := range p.Stream(t.Context(), model.Request{Messages: []model.Message{m}}) {
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				if len(got) != 3 || got[0] != got[1] || got[1] != got[2] {
					t.Errorf("%d requests differ: %.300q", len(got), got)
				}
				if !strings.Contains(got[0], base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xff, 1, 1}, 1)[:1])) {
					t.Error("an image is missing")
				}
				if f.open != 0 || f.most != 1 {
					t.Errorf("%d files are open, there were %d at a time; want one", f.open, f.most)
				}
			})
		}
	}
}

// An image that is shorter than it was, or gone, fails the request, which is not sent
// with less.
func TestAnImageThatChangedFailsTheRequest(t *testing.T) {
	for _, d := range dialects {
		f := &files{}
		for name, a := range map[string]model.Attachment{
			"shorter": f.image([]byte("PNG"), 4),
			"gone": {MediaType: "image/png", Size: 4, Open: func() (io.ReadCloser, error) {
				return nil, errors.New("it is gone")
			}},
		} {
			var whole atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				if err == nil {
					whole.Store(true)
				}
			}))
			p, err := d.make(wire.Options{BaseURL: server.URL + "/v1", Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			var errs []error
			for delta, err := range p.Stream(t.Context(),
				model.Request{Messages: []model.Message{{Role: model.User, Attachments: []model.Attachment{a}}}}) {
				if err != nil {
					errs = append(errs, err)
				}
				if delta.Notice != nil {
					errs = append(errs, errors.New(delta.Notice.Message))
					break
				}
			}
			p.Close()
			server.Close()
			if whole.Load() || len(errs) != 1 || !slices.ContainsFunc([]string{"cut off", "gone"}, func(s string) bool {
				return strings.Contains(errs[0].Error(), s)
			}) {
				t.Errorf("%s, %s: got %v, a whole request: %v", d.name, name, errs, whole.Load())
			}
		}
		if f.open != 0 {
			t.Errorf("%d files are open", f.open)
		}
	}
}
