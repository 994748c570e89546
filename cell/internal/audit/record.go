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
	Principal string `json:"principal,omitempty"` // the caller; "" if unknown
	From      string `json:"from,omitempty"`      // the address
	By        string `json:"by,omitempty"`        // the replica that spoke for the principal, whose console it was
	On        string `json:"on,omitempty"`        // its object: a path, a session, a principal
	Reason    string `json:"reason,omitempty"`    // as the caller gave it
	Code      string `json:"code,omitempty"`      // how the call ended; OK if it was done
	Message   string `json:"message,omitempty"`   // why not
	Count     int    `json:"count,omitempty"`     // of an event Omitted
	Unknown   int    `json:"unknown,omitempty"`   // of these, calls that may have been acts, and no refusals
}

// Event is a kind of record.
type Event string

// The kinds of records.
const (
	Act     Event = "act"     // an operator's, or a change of rights
	Refusal Event = "refusal" // of any call, for lack of a right
	Omitted Event = "omitted" // counts refusals, and calls of strangers that may have been acts, without a line
)

// NotKnown begins the message of an act that may have been done.
const NotKnown = "it is not known whether this was done: "

// Limits of a field, in bytes; escaped, it has up to six times as many.
const (
	maxField        = 1 << 10
	maxBoundedField = 256 // of bounded records; a principal has no more
)

// line encodes a record in one line of visible characters, with at most most bytes of each field.
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

// escape escapes characters that package json leaves, and that are invisible or drive a terminal: C1 controls, those
// that turn the direction of text, those without a width. All are inside JSON's strings.
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

// cut shortens a long text, between two runes.
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
