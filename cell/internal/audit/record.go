package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Record is a line of the audit log. Its fields are documented in docs/operations.md.
type Record struct {
	Time      string `json:"time"` // RFC 3339, UTC
	Cell      string `json:"cell"`
	Replica   string `json:"replica"`
	Event     Event  `json:"event"`
	Call      string `json:"call,omitempty"`      // the RPC, as in BreakLock, or RestoreAccess
	Principal string `json:"principal,omitempty"` // who called; "" if that is not known
	From      string `json:"from,omitempty"`      // the address
	By        string `json:"by,omitempty"`        // the replica that spoke for the principal, whose console it was
	On        string `json:"on,omitempty"`        // what it was about: a path, a session, a principal
	Reason    string `json:"reason,omitempty"`    // as the caller gave it
	Code      string `json:"code,omitempty"`      // how the call ended; OK if what was asked is done
	Message   string `json:"message,omitempty"`   // why not
	Count     int    `json:"count,omitempty"`     // of an event Omitted
	Unknown   int    `json:"unknown,omitempty"`   // how many of them may be acts that were done, and no refusals
}

// Event is a kind of record.
type Event string

// The kinds of records.
const (
	Act     Event = "act"     // what only an operator may do, or a change of who may do what
	Refusal Event = "refusal" // of any call, for lack of a right
	Omitted Event = "omitted" // how many refusals, and calls of strangers of which it is not known how they ended, were left out
)

// NotKnown begins the message of an act of which that is so.
const NotKnown = "it is not known whether this was done: "

// What a caller can put into one field, in bytes; escaped, they are up to six times as many.
const (
	maxField        = 1 << 10
	maxBoundedField = 256 // of what anybody can have recorded; a principal has no more
)

// line encodes a record: one line of characters that can be seen. Of each field its caller decides, up to most bytes.
func (r Record) line(most int) []byte {
	for _, field := range []*string{&r.Call, &r.Principal, &r.From, &r.By, &r.On, &r.Reason, &r.Code, &r.Message} {
		*field = cut(*field, most)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // strings and a number, into memory
	//mutant: _ = escape; return b.Bytes() //by TestLinesCanBeSeen of ./cell/internal/audit
	return escape(b.Bytes())
}

// escape escapes what package json leaves as it is and nobody sees, or a terminal acts upon: C1 controls as CSI, what turns the direction
// of text, what has no width. All of these are inside of JSON's strings.
func escape(line []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(line) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// cut shortens a text that is too long, between two runes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
