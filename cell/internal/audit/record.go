package audit

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Record is a line of the audit log. Its fields are documented in docs/operations.md.
type Record struct {
	Time      string `json:"time"` // RFC 3339, UTC
	Cell      string `json:"cell"`
	Replica   string `json:"replica"`
	Event     Event  `json:"event"`
	Call      string `json:"call,omitempty"`      // the RPC, as in BreakLock
	Principal string `json:"principal,omitempty"` // who called; "" if that is not known
	From      string `json:"from,omitempty"`      // the address
	On        string `json:"on,omitempty"`        // what it was about: a path, a session, a principal
	Reason    string `json:"reason,omitempty"`    // as the caller gave it
	Code      string `json:"code,omitempty"`      // how the call ended; OK if what was asked is done
	Message   string `json:"message,omitempty"`   // why not
	Count     int    `json:"count,omitempty"`     // of an event Omitted
}

// Event is a kind of record.
type Event string

// The kinds of records.
const (
	Act     Event = "act"     // what only an operator may do, or a change of who may do what
	Refusal Event = "refusal" // of any call, for lack of a right
	Omitted Event = "omitted" // how many refusals were left out
)

// maxField bounds what a caller can put into one field, in bytes.
const maxField = 1 << 10

// line encodes a record. A line feed that is part of it is escaped, as all of JSON is.
func (r Record) line() []byte {
	for _, field := range []*string{&r.Principal, &r.From, &r.On, &r.Reason, &r.Message} {
		*field = cut(*field)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // strings and a number, into memory
	return b.Bytes()
}

// cut shortens a text that is too long, between two runes.
func cut(text string) string {
	if len(text) <= maxField {
		return text
	}
	n := maxField
	for n > maxField-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
