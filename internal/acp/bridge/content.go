package bridge

import (
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"noused/internal/acp"
	"noused/internal/format"
	"noused/internal/protocol"
)

// maxPrompt is how long a prompt may be with all that belongs to it, in bytes: its
// command has to fit in a line of the daemon's.
const maxPrompt = protocol.DefaultMaxLine - 64<<10

// textOf makes a text and images of what the client sends. Parts follow one another
// as they are; a link is its path, what is embedded stands between fences.
//
// An error of the daemon's about an image counts images: see aboutPrompt.
func textOf(blocks []acp.ContentBlock) (text string, images []protocol.AttachmentParams, err *acp.Error) {
	var out strings.Builder
	size := 0
	for i, b := range blocks {
		switch {
		case b.Type == "text":
			join(&out, *b.Text, i > 0 && blocks[i-1].Type == "text")
		case b.Type == "resource_link":
			join(&out, pathOf(b.URI), false)
		case b.Type == "image":
			images = append(images, protocol.AttachmentParams{Data: *b.Data, MediaType: b.MimeType, Name: nameOf(b.URI)})
			size += len(*b.Data)
		case b.Resource.Text != nil:
			embed(&out, *b.Resource)
		default:
			images = append(images, protocol.AttachmentParams{
				Data: *b.Resource.Blob, MediaType: b.Resource.MimeType,
				Name: nameOf(b.Resource.URI),
			})
			size += len(*b.Resource.Blob)
		}
	}
	text = strings.TrimRight(out.String(), "\n")
	if strings.TrimSpace(text) == "" && len(images) > 0 {
		text = "(see the image)"
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", nil, acp.Errorf(acp.InvalidParams, "prompt: want a text")
	case len(text)+size > maxPrompt:
		return "", nil, acp.Errorf(acp.InvalidParams, "prompt: is %d bytes long, at most %d are allowed", len(text)+size,
			maxPrompt)
	}
	return text, images, nil
}

// join puts a part behind the others; two paragraphs on lines of their own, anything
// else with a space where there is none.
func join(out *strings.Builder, part string, paragraph bool) {
	before := out.String()
	if before != "" && part != "" && !strings.ContainsAny(before[len(before)-1:], " \t\n([{\"'`@") &&
		!strings.ContainsAny(part[:1], " \t\n.,;:!?)]}\"'`") {
		if paragraph {
			out.WriteByte('\n')
		} else {
			out.WriteByte(' ')
		}
	}
	out.WriteString(part)
}

// embed puts a file's text between fences that it does not have.
func embed(out *strings.Builder, r acp.Resource) {
	if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
		out.WriteByte('\n')
	}
	fence := "```"
	for strings.Contains(*r.Text, fence) {
		fence += "`"
	}
	out.WriteString(fence + strings.ReplaceAll(pathOf(r.URI), "\n", " ") + "\n" + *r.Text)
	if !strings.HasSuffix(*r.Text, "\n") {
		out.WriteByte('\n')
	}
	out.WriteString(fence + "\n")
}

// pathOf is the path of a file, and of anything else its address.
func pathOf(uri string) string {
	if u, err := url.Parse(uri); err == nil && u.Scheme == "file" && u.Path != "" {
		return u.Path
	}
	return uri
}

// maxName is how long an image's name may be, in bytes.
const maxName = 255

func nameOf(uri string) string {
	if uri == "" {
		return ""
	}
	name := path.Base(pathOf(uri))
	return format.Cut(name, maxName)
}

// aboutPrompt has an error about a text name the prompt, and one about an image the
// block that it came in.
func aboutPrompt(err *acp.Error, blocks []acp.ContentBlock) *acp.Error {
	err = renamed(err, "text: ", "prompt: ")
	rest, ok := strings.CutPrefix(err.Message, "attachments[")
	number, rest, cut := strings.Cut(rest, "]")
	image, notNumber := strconv.Atoi(number)
	if !ok || !cut || notNumber != nil {
		return err
	}
	for i, b := range blocks {
		if b.Type == "image" || b.Type == "resource" && b.Resource.Text == nil {
			if image == 0 {
				err.Message = fmt.Sprintf("prompt.%d%s", i, rest)
				return err
			}
			image--
		}
	}
	return err
}
