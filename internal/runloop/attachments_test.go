package runloop

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// The first bytes are what makes an image one.
const (
	png  = "\x89PNG\r\n\x1a\n"
	jpeg = "\xff\xd8\xff\xe0"
	gif  = "GIF89a"
	webp = "RIFF\x10\x00\x00\x00WEBPVP8 "
)

// viewer is the offline model, and keeps what it was asked.
type viewer struct {
	offline.Model
	mu  sync.Mutex
	got []model.Request
}

func (v *viewer) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	v.mu.Lock()
	defer v.mu.Unlock()
	req, done, err := req.Loaded(0)
	if err != nil {
		return func(yield func(model.Delta, error) bool) { yield(model.Delta{}, err) }
	}
	defer done()
	req.Messages = slices.Clone(req.Messages)
	for i := range req.Messages {
		m := &req.Messages[i]
		m.Attachments = slices.Clone(m.Attachments)
		for j, a := range m.Attachments {
			m.Attachments[j].Data, _ = a.Content()
		}
	}
	v.got = append(v.got, req)
	return v.Model.Stream(ctx, req)
}

// saw tells the user messages of the latest request, and their images after "+".
func (v *viewer) saw() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for _, m := range v.got[len(v.got)-1].Messages {
		if m.Role != model.User {
			continue
		}
		text := m.Text
		for _, a := range m.Attachments {
			text += " +" + a.MediaType + " " + a.Name + ":" + string(a.Data)
		}
		out = append(out, text)
	}
	return out
}

// showImages prompts with images and waits for the run's end.
func (f *fixture) showImages(id, text string, images ...protocol.AttachmentParams) error {
	r, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id},
		Text:  text, Wait: no, Attachments: images,
	}))
	if err != nil {
		return err
	}
	f.events.wait(r.Accepted.RunID)
	return nil
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestImagesReachTheModelFromTheDaemonsOwnCopy(t *testing.T) {
	dir, pictures, v, events := t.TempDir(), t.TempDir(), &viewer{}, newRecorder()
	var told []protocol.Attachment
	events.onEvent = func(ev protocol.Event) {
		if start, ok := ev.(protocol.MessageStart); ok && start.Role == "user" {
			told = append(told, start.Attachments...)
		}
	}
	f := newFixture(t, dir, v, echoTool, events)
	f.env.Workdir = pictures
	id := f.session()
	link := filepath.Join(pictures, "link.png")
	if err := os.Symlink(write(t, filepath.Join(pictures, "not a name.txt"), webp+"w"), link); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		f.showImages(id, "one",
			protocol.AttachmentParams{Path: write(t, filepath.Join(pictures, "a.png"), png+"a")},
			protocol.AttachmentParams{Data: inBase64(gif + "g"), MediaType: "image/gif"},
			protocol.AttachmentParams{Path: link, Name: "called so"}),
		f.showImages(id, "two", protocol.AttachmentParams{Path: write(t, filepath.Join(pictures, "lies.png"), jpeg+"j")}),
		f.showImages(id, "again", protocol.AttachmentParams{Path: "a.png"}), // from the workdir
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	one := "one +image/png a.png:" + png + "a +image/gif :" + gif + "g +image/webp called so:" + webp + "w"
	want := []string{one, "two +image/jpeg lies.png:" + jpeg + "j", "again +image/png a.png:" + png + "a"}
	same(t, "the model saw", v.saw(), want...)

	if err := os.RemoveAll(pictures); err != nil {
		t.Fatal(err)
	}
	if len(told) != 5 || told[0].Path != told[4].Path || told[0].Size != int64(len(png)+1) || told[2].Name != "called so" {
		t.Errorf("clients were told %+v", told)
	}
	for i, content := range []string{png + "a", gif + "g", webp + "w", jpeg + "j", png + "a"} {
		if got, err := os.ReadFile(told[i].Path); err != nil || string(got) != content {
			t.Errorf("%s: got %q, %v; want %q", told[i].Path, got, err, content)
		}
	}
	f.stop()
	events.done(t)

	f = newFixture(t, dir, v, echoTool, newRecorder())
	if err := f.showImages(id, "three"); err != nil {
		t.Fatal(err)
	}
	same(t, "after a restart the model saw", v.saw(), append(want, "three")...)
	out, err := f.getMessages(context.Background(), protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil {
		t.Fatal(err)
	}
	var shown []protocol.Attachment
	for _, entry := range out.Messages {
		var m protocol.Message
		if err := json.Unmarshal(entry, &m); err != nil {
			t.Fatal(err)
		}
		shown = append(shown, m.Attachments...)
	}
	if !slices.Equal(shown, told) {
		t.Errorf("get_messages has %+v, the events had %+v", shown, told)
	}
}

// Whatever is wrong with an attachment is said, and nothing of the prompt
// happens: no run, no file.
func TestWrongAttachments(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id, dir := f.session(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ok := write(t, in("ok.png"), png)
	write(t, in("text.png"), "just words")
	write(t, in("drawing.svg"), "<svg xmlns='http://www.w3.org/2000/svg'/>")
	write(t, in("noise"), "\x00\x01\x02\x03")
	write(t, in("empty.png"), "")
	write(t, in("whole.png"), png+strings.Repeat("x", session.MaxImage-len(png)))
	if err := errors.Join(
		os.Truncate(write(t, in("large.png"), png), 6<<20),
		unix.Mkfifo(in("fifo.png"), 0o600),
		os.Symlink(dir, in("folder.png")),
		os.Symlink(in("fifo.png"), in("to-fifo.png")),
		os.Symlink(in("loop.png"), in("loop.png")),
	); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", in("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()

	path := func(p string) protocol.AttachmentParams { return protocol.AttachmentParams{Path: p} }
	data := func(d string) protocol.AttachmentParams { return protocol.AttachmentParams{Data: d} }
	said := func(a protocol.AttachmentParams, kind string) protocol.AttachmentParams { a.MediaType = kind; return a }
	types := "want one of image/png, image/jpeg, image/gif, image/webp"
	for _, c := range []struct {
		a    protocol.AttachmentParams
		want string
	}{
		{path(in("nowhere.png")), `path: "` + in("nowhere.png") + `": no such file or directory`},
		{path(ok + "/x"), "not a directory"},
		{path(in("loop.png")), "too many levels of symbolic links"},
		{path("\x00"), "invalid argument"},
		{path(strings.Repeat("x", 5000)), "file name too long"},
		{path(dir), "is a directory, want a file"},
		{path(in("folder.png")), "is a directory, want a file"},
		{path(in("fifo.png")), "is a named pipe, want a file"},
		{path(in("to-fifo.png")), "is a named pipe, want a file"},
		{path(in("s")), "is a socket, want a file"},
		{path("/dev/zero"), "is a device, want a file"},
		{path("/proc/self/environ"), `path: "environ": is empty, want an image`},
		{path(in("large.png")), `path: "large.png": is 6291456 bytes long, at most 5242880 (5 MiB) are allowed`},
		{path(in("empty.png")), `path: "empty.png": is empty, want an image`},
		{path(in("text.png")), `path: "text.png": is text/plain, ` + types},
		{path(in("drawing.svg")), types},
		{path(in("noise")), `path: "noise": is of no known type, ` + types},
		{said(path(ok), "image/jpeg"), "media_type: says image/jpeg, but the image is image/png"},
		{data("not base64!"), "data: is not base64: illegal base64 data at input byte 3"},
		{data(inBase64(png) + "="), "data: is not base64"},
		{data("data:image/png;base64," + inBase64(png)), "data: is not base64"},
		{data(inBase64("just words")), "data: is text/plain, " + types},
		{protocol.AttachmentParams{Data: inBase64("just words"), Name: "notes.txt"}, `data: "notes.txt": is text/plain, ` +
			types},
		{data("\n"), "data: is empty, want an image"},
		{
			data(inBase64(png + strings.Repeat("x", session.MaxImage))),
			fmt.Sprintf("data: is %d bytes long, at most 5242880 (5 MiB) are allowed", session.MaxImage+len(png)),
		},
		{data(strings.Repeat("A", 15<<20)), "data: is 15728640 bytes of base64"},
		{said(data(inBase64(gif)), "image/png"), "media_type: says image/png, but the image is image/gif"},
	} {
		err := f.showImages(id, "look", path(ok), data(inBase64(jpeg)), c.a)
		var wire *protocol.Error
		if !errors.As(err, &wire) || wire.Code != protocol.InvalidPayload ||
			!strings.HasPrefix(wire.Message, "attachments[2].") ||
			!strings.Contains(wire.Message, c.want) || len(wire.Message) > 600 {
			t.Errorf("%.60q: got %.700v, want invalid_payload: attachments[2].… %s", c.a, err, c.want)
		}
	}
	if os.Geteuid() != 0 {
		if err := os.Chmod(write(t, in("secret.png"), png), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.showImages(id, "look", path(in("secret.png"))); err == nil ||
			!strings.Contains(err.Error(), "permission denied") {
			t.Errorf("got %v, want permission denied", err)
		}
	}
	if left := f.files(id); len(left) != 1 {
		t.Errorf("the session has %v, want its journal alone", left)
	}
	if err := f.showImages(id, "look", path(in("whole.png"))); err != nil {
		t.Errorf("an image of 5 MiB: %v", err)
	}
}

// Texts that wait for their turn bring their images; a text that cannot be
// accepted leaves none.
func TestImagesOfQueuedTexts(t *testing.T) {
	v, ctx := &viewer{}, context.Background()
	enter, leave := make(chan struct{}), make(chan struct{})
	call := func(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
		enter <- struct{}{}
		<-leave
		return echoTool(ctx, inv, progress)
	}
	f := newFixture(t, t.TempDir(), v, call, newRecorder())
	id := f.session()
	scope := protocol.Scope{SessionID: id}
	image := func(name, text string) []protocol.AttachmentParams {
		return []protocol.AttachmentParams{{Data: inBase64(png + text), Name: name}}
	}
	later := protocol.SteerParams{Scope: scope, Text: "later", Attachments: image("l", "later")}
	if _, err := answered(f.queue(ctx, protocol.KindSteer, later)); codeOf(err) != protocol.CommandRejected {
		t.Errorf("got %v, want no_active_run", err)
	}
	a, err := f.start(id, "!t.x")
	if err != nil {
		t.Fatal(err)
	}
	<-enter
	if err := f.showImages(id, "too early", image("e", "early")...); codeOf(err) != protocol.CommandRejected {
		t.Errorf("got %v, want run_in_progress", err)
	}
	if left := f.files(id); len(left) != 1 {
		t.Errorf("the session has %v, want its journal alone", left)
	}
	if _, err := answered(f.queue(ctx, protocol.KindFollowUp, later)); err != nil {
		t.Fatal(err)
	}
	p := protocol.PromptParams{
		Scope: scope, Text: "now", Wait: no, StreamingBehavior: "steer",
		Attachments: image("n", "now"),
	}
	if _, err := answered(f.prompt(ctx, p)); err != nil {
		t.Fatal(err)
	}
	leave <- struct{}{}
	f.events.wait(a.RunID)
	same(t, "the model saw", v.saw(), "!t.x", "now +image/png n:"+png+"now", "later +image/png l:"+png+"later")

	later.IfIdle, later.Text = "prompt", "at last"
	r, err := answered(f.queue(ctx, protocol.KindSteer, later))
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(r.RunID)
	if got := v.saw(); got[len(got)-1] != "at last +image/png l:"+png+"later" {
		t.Errorf("the model saw %q last", got[len(got)-1])
	}
}

// The same key again answers the same, though the file has gone meanwhile.
func TestImagesUnderAnIdempotencyKey(t *testing.T) {
	v := &viewer{}
	f := newFixture(t, t.TempDir(), v, echoTool, newRecorder())
	p := protocol.PromptParams{
		Scope: protocol.Scope{SessionID: f.session()}, Text: "look", Wait: no, IdempotencyKey: "k",
		Attachments: []protocol.AttachmentParams{{Path: write(t, filepath.Join(t.TempDir(), "a.png"), png)}},
	}
	first, err := answered(f.prompt(context.Background(), p))
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(first.Accepted.RunID)
	if err := os.Remove(p.Attachments[0].Path); err != nil {
		t.Fatal(err)
	}
	if again, err := answered(f.prompt(context.Background(), p)); err != nil || *again.Accepted != *first.Accepted {
		t.Errorf("got %+v, %v; want %+v", again.Accepted, err, first.Accepted)
	}
	if len(v.got) != 1 {
		t.Errorf("the model was asked %d times, want once", len(v.got))
	}
}

// An orchestrator has a say in the text, a context module in what the model
// reads; neither has in the files that are read for it.
func TestImagesAndModules(t *testing.T) {
	v := &viewer{}
	f := newFixture(t, t.TempDir(), v, echoTool, newRecorder())
	secret := write(t, filepath.Join(f.dir, "sessions", "secret.png"), png+"secret")
	f.before = func(input string, _ []byte) (string, error) { return input + ", please", nil }
	id := f.session()
	if err := f.showImages(id, "look", protocol.AttachmentParams{Data: inBase64(png + "a"), Name: "a"}); err != nil {
		t.Fatal(err)
	}
	same(t, "the model saw", v.saw(), "look, please +image/png a:"+png+"a")
	f.transform = func(messages []model.Message) ([]model.Message, error) {
		a := messages[0].Attachments[0]
		if len(a.Data) > 0 || a.Size != int64(len(png)+1) {
			t.Errorf("the module was shown %+v, want no bytes", a)
		}
		made := model.Attachment{MediaType: "image/gif", Name: "made", Data: []byte(gif)}
		var bad []model.Attachment
		for _, file := range []string{"../secret.png", secret, "", ".", a.File + "/../../secret.png"} {
			bad = append(bad, model.Attachment{MediaType: "image/png", Name: "bad", Size: int64(len(png) + 6), File: file})
		}
		return []model.Message{{Role: model.User, Text: "shaped", Attachments: append(bad, made, a)}}, nil
	}
	if err := f.showImages(id, "more"); err != nil {
		t.Fatal(err)
	}
	same(t, "the model saw", v.saw(), "shaped"+strings.Repeat("\n\n[image bad is missing]", 5)+" +image/gif made:"+gif+
		" +image/png a:"+png+"a")
}

func TestMissingImagesAreToldAndDoNotFailTheRun(t *testing.T) {
	v, events := &viewer{}, newRecorder()
	f := newFixture(t, t.TempDir(), v, echoTool, events)
	id := f.session()
	var paths, warnings []string
	events.onEvent = func(ev protocol.Event) {
		switch ev := ev.(type) {
		case protocol.MessageStart:
			for _, a := range ev.Attachments {
				paths = append(paths, a.Path)
			}
		case protocol.Warning:
			warnings = append(warnings, string(ev.Code)+" "+ev.TurnID+" "+ev.Message)
		}
	}
	image := func(text string) protocol.AttachmentParams {
		return protocol.AttachmentParams{Data: inBase64(png + text), Name: text + ".png"}
	}
	if err := f.showImages(id, "look", image("gone"), image("cut"), image("kept")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(paths[0]), os.Truncate(paths[1], 3)); err != nil {
		t.Fatal(err)
	}
	if err := f.showImages(id, "more"); err != nil {
		t.Fatal(err)
	}
	same(t, "the model saw", v.saw(),
		"look\n\n[image gone.png is missing]\n\n[image cut.png is missing] +image/png kept.png:"+png+"kept", "more")
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "image_missing 1 image gone.png: ") ||
		!strings.HasPrefix(warnings[1], "image_missing 1 image cut.png: ") {
		t.Errorf("got the warnings %q, want one for each missing image", warnings)
	}
	f.stop()
	events.done(t)
}

// A summary is made of texts, and a request has room for the newest images.
func TestRequestsAreBounded(t *testing.T) {
	v := &viewer{}
	f := newFixture(t, t.TempDir(), v, echoTool, newRecorder())
	id := f.session()
	l, release, err := f.acquire(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	whole := png + strings.Repeat("x", session.MaxImage-len(png))
	kept, err := f.store.KeepImages(id,
		[]session.Image{{MediaType: "image/png", Size: int64(len(whole)), Content: strings.NewReader(whole)}})
	if err != nil {
		t.Fatal(err)
	}
	messages := []model.Message{
		{Role: model.User, Text: "old", Attachments: kept},
		{Role: model.User, Text: "new", Attachments: slices.Repeat(kept, 16)},
	}
	shown, err := l.withImages(context.Background(), 0, messages)
	if err != nil || len(shown[1].Attachments) != 16 || len(shown[0].Attachments) != 0 ||
		shown[0].Text != "old\n\n[image is left out: the newer images fill the request]" {
		t.Errorf("got %d and %d images, %q, %v; want the newest 16", len(shown[0].Attachments), len(shown[1].Attachments),
			shown[0].Text, err)
	}
	if len(messages[0].Attachments) != 1 || len(messages[1].Attachments[0].Data) != 0 {
		t.Error("the session's own messages were changed")
	}

	for _, text := range []string{"one", "two"} {
		if err := f.showImages(id, text, protocol.AttachmentParams{Data: inBase64(png)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := answered(f.compactSession(context.Background(),
		protocol.CompactSessionParams{Scope: protocol.Scope{SessionID: id}})); err != nil {
		t.Fatal(err)
	}
	asked := v.got[len(v.got)-1]
	if a := asked.Messages[0].Attachments; !asked.Summary || len(a) != 1 || a[0].Data != nil {
		t.Errorf("the summary was asked for with %+v", asked)
	}
	if err := f.showImages(id, "three"); err != nil {
		t.Fatal(err)
	}
	same(t, "after it the model saw", v.saw(), "one\none", "two +image/png :"+png, "three")
}

func TestImagesOfDeletedAndBranchedSessions(t *testing.T) {
	dir, v, ctx := t.TempDir(), &viewer{}, context.Background()
	f := newFixture(t, dir, v, echoTool, newRecorder())
	parent := f.session()
	for _, name := range []string{"a", "b"} {
		if err := f.showImages(parent, name, protocol.AttachmentParams{Data: inBase64(png + name), Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := f.getTree(ctx, protocol.GetTreeParams{Scope: protocol.Scope{SessionID: parent}})
	if err != nil {
		t.Fatal(err)
	}
	branch, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: parent, LeafID: tree.Nodes[1].ID})
	if err != nil {
		t.Fatal(err)
	}
	id := branch.SessionID
	if err := f.remove(parent); err != nil {
		t.Fatal(err)
	}
	if left := f.files(parent); len(left) != 0 {
		t.Errorf("left of the deleted session: %v", left)
	}
	f.stop()
	f = newFixture(t, dir, v, echoTool, newRecorder())
	if err := f.showImages(id, "go on"); err != nil {
		t.Fatal(err)
	}
	same(t, "the model saw", v.saw(), "a +image/png a:"+png+"a", "go on")
	if images, err := os.ReadDir(f.store.FilesDir(id)); err != nil || len(images) != 1 {
		t.Errorf("the branch has %v, %v; want the one image it shows", images, err)
	}
	if err := f.remove(id); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(left) != 0 {
		t.Errorf("left of both: %v, %v", left, err)
	}
	if err := f.showImages(id, "hello", protocol.AttachmentParams{Data: inBase64(png)}); codeOf(err) !=
		protocol.SessionNotFound {
		t.Errorf("got %v, want session_not_found", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(left) != 0 {
		t.Errorf("a refused prompt has left %v, %v", left, err)
	}
}

// Prompts with images and a delete_session at once: afterwards there is all of
// the session or nothing.
func TestDeleteWhileImagesCome(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	for round := range 20 {
		id := f.session()
		var clients sync.WaitGroup
		for n := range 3 {
			clients.Go(func() {
				err := f.showImages(id, "look", protocol.AttachmentParams{Data: inBase64(fmt.Sprint(png, n))})
				switch codeOf(err) {
				case "", protocol.CommandRejected, protocol.SessionNotFound:
				default:
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		var err error
		clients.Go(func() { err = f.remove(id) })
		clients.Wait()
		if left := f.files(id); err == nil && len(left) != 0 {
			t.Fatalf("round %d: left of the deleted session: %v", round, left)
		} else if err != nil && codeOf(err) != protocol.CommandRejected {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
