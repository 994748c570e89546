package main

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
)

// watchedContents are the contents of a file after an event, for programs.
type watchedContents struct {
	ContentGeneration api.Generation `json:"content_generation"`
	Contents          *string        `json:"contents,omitempty"` // if they are UTF-8
	ContentsBase64    string         `json:"contents_base64"`
}

func newWatchedContents(contents []byte, stat api.Stat) *watchedContents {
	w := &watchedContents{ContentGeneration: stat.Content, ContentsBase64: base64.StdEncoding.EncodeToString(contents)}
	if utf8.Valid(contents) {
		text := string(contents)
		w.Contents = &text
	}
	return w
}

// contentsAfter reads the contents after an event of a kind; nil without --contents, if the event
// leaves them as they were, and if the file is gone, which another event tells.
func (o *watchOptions) contentsAfter(ctx context.Context, kind api.EventKind) *watchedContents {
	switch kind {
	case api.EventContentsModified, api.EventMasterFailedOver, api.EventLost:
	default:
		return nil
	}
	if o.readContents == nil {
		return nil
	}
	contents, err := o.readContents(ctx)
	if err != nil {
		return nil
	}
	return contents
}
