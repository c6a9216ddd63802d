package openai

import (
	"slices"

	"noused/internal/model"
)

// shownAfter are the messages of a request with the images of tools' results in a
// message of the user's, right after all results of a step: here the message of a
// tool is a text. Where images are not shown, they stay where they are mentioned.
func shownAfter(req model.Request) []model.Message {
	has := func(m model.Message) bool { return m.Role == model.Tool && len(m.Attachments) > 0 }
	if req.Summary || req.Repair.NoImages || !slices.ContainsFunc(req.Messages, has) {
		return req.Messages
	}
	var out []model.Message
	var images []model.Attachment
	show := func() {
		if len(images) > 0 {
			out = append(out, model.Message{Role: model.User, Text: "[images that the tools have given]", Attachments: images})
			images = nil
		}
	}
	for _, m := range req.Messages {
		if m.Role != model.Tool {
			show()
		}
		if has(m) {
			images = append(images, m.Attachments...)
			m.Attachments = nil
		}
		out = append(out, m)
	}
	show()
	return out
}
