package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type eventFields struct {
	Time        string         `json:"time"` // of arrival, by this machine's clock
	Event       string         `json:"event"`
	Path        string         `json:"path"`
	Child       string         `json:"child"`
	Generation  api.Generation `json:"generation"`
	Reason      string         `json:"reason"`
	Explanation string         `json:"explanation"`
	*watchedContents
}

func newEventFields(e api.Event, at time.Time) eventFields {
	f := eventFields{
		Time:        at.Local().Format(time.RFC3339Nano),
		Event:       e.Kind.String(),
		Path:        e.Path,
		Child:       e.Child,
		Generation:  e.Generation,
		Explanation: e.Explanation,
	}
	if e.Reason != 0 {
		f.Reason = e.Reason.String()
	}
	return f
}

// printEvent prints an event on one line.
func (o *watchOptions) printEvent(e api.Event, fields eventFields) error {
	where, generation := e.Path, "-"
	if e.Child != "" {
		where += "/" + e.Child
	}
	if e.Generation != 0 {
		generation = fmt.Sprint(e.Generation)
	}
	line := fmt.Sprintf("%s  %-18v  %s  %s  %s", o.now().Local().Format("2006-01-02 15:04:05.000"), e.Kind, where, generation, because(e))
	return o.output.SayIn(o.out, fields, meaning(e.Kind), strings.TrimRight(line, " "))
}

// because joins an event's reason and explanation: "deleted: by ann".
func because(e api.Event) string {
	if e.Reason == 0 {
		return e.Explanation
	}
	return strings.TrimSuffix(e.Reason.String()+": "+e.Explanation, ": ")
}

// meaning returns an event's meaning, for its colour.
func meaning(kind api.EventKind) term.Meaning {
	switch kind {
	case api.EventHandleInvalid, api.EventLockLost, api.EventSessionEnded:
		return term.Trouble
	case api.EventMasterFailedOver, api.EventLost, api.EventConflictingLock, api.EventLockVacant:
		return term.Waiting
	}
	return term.Plain
}

// explained adds the explanation to an event about the whole session.
func explained(e api.Event) api.Event {
	switch {
	case e.Explanation != "":
	case e.Kind == api.EventMasterFailedOver:
		e.Explanation = "another master serves the cell, and events may have been lost: look again"
	case e.Kind == api.EventLost:
		e.Explanation = "more happened than was kept for this watch: look again"
	}
	return e
}

// contentsForm is the form in which CMD needs a file's contents. It is a flag.
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

// watchedContents are a file's contents after an event, for programs.
type watchedContents struct {
	ContentGeneration api.Generation `json:"content_generation"`
	Contents          *string        `json:"contents,omitempty"` // if UTF-8
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
