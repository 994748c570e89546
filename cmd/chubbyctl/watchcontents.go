package main

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
)

// contentsForm is as what CMD needs the contents of a file. It is a flag.
type contentsForm string

const (
	contentsText   contentsForm = "text"
	contentsBase64 contentsForm = "base64"
)

func (f *contentsForm) String() string { return string(*f) }

func (f *contentsForm) Type() string { return "form" }

func (f *contentsForm) Set(text string) error {
	switch form := contentsForm(text); form {
	case contentsText, contentsBase64:
		*f = form
		return nil
	}
	return usagef("want text, for files that are UTF-8, or base64")
}

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
