package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Code is the closed list of what can go wrong. A Code is itself an error, so
// callers ask errors.Is(err, api.LockHeld). Numbers are stable, because they
// cross the wire and are in replicated results: none is reused or reordered.
type Code uint32

// The codes, each with when it is returned and what the caller may conclude.
const (
	OK Code = 0 // not an error

	NotMaster          Code = 1  // the replica asked is not the master; Error.Master names the one it believes in. Nothing was done
	WrongCell          Code = 2  // the replica belongs to another cell, named by Error.Cell. Nothing was done
	Unavailable        Code = 3  // no master could be reached, or it cannot serve yet. Nothing was done
	Uncertain          Code = 4  // the mutation may or may not have been done; a retry with the same request number finds out
	SessionExpired     Code = 5  // the session has ended, or never existed; every handle and lock of it is gone
	StaleEpoch         Code = 6  // the call was meant for an earlier master. Nothing was done
	NotFound           Code = 7  // no node of that name
	Exists             Code = 8  // a node of that name is there, or is just being removed with its session
	NotEmpty           Code = 9  // the directory has children
	NotDirectory       Code = 10 // a file where a directory is needed
	IsDirectory        Code = 11 // a directory where a file is needed
	InvalidPath        Code = 12 // the path is outside the grammar
	InvalidArgument    Code = 13 // another argument is outside its limits; the message names it
	TooLarge           Code = 14 // contents above MaxContents
	PermissionDenied   Code = 15 // the ACL does not name the principal, or the handle was not opened for this
	Unauthenticated    Code = 16 // the caller's identity could not be established
	BadHandle          Code = 17 // the handle is not one of this cell's, or its check digits are wrong
	HandleClosed       Code = 18 // the handle was closed, or its node is gone
	LockHeld           Code = 19 // the lock is held in a conflicting mode, by Error.Holders
	LockDelayed        Code = 20 // a holder failed; nobody may have the lock for another Error.Remaining
	LockLost           Code = 21 // the lock was granted by this request and has been lost since
	NotHeld            Code = 22 // the handle does not hold the lock in that generation
	BadSequencer       Code = 23 // not a sequencer, or not one of this cell, or not valid any more
	GenerationMismatch Code = 24 // the contents or ACL are at Error.Current, not at the generation demanded
	Deadlock           Code = 25 // waiting would never end: Error.Cycle says who waits for whom. The lock is not held
	QuotaExceeded      Code = 26 // over a limit; the message says which, used and allowed
	Cancelled          Code = 27 // the caller withdrew the request. It was not done
	DeadlineExceeded   Code = 28 // the caller's time ran out before an answer
	Corrupt            Code = 29 // stored data failed its checksum
)

var codeNames = map[Code]string{
	OK: "OK", NotMaster: "NotMaster", WrongCell: "WrongCell", Unavailable: "Unavailable", Uncertain: "Uncertain",
	SessionExpired: "SessionExpired", StaleEpoch: "StaleEpoch", NotFound: "NotFound", Exists: "Exists",
	NotEmpty: "NotEmpty", NotDirectory: "NotDirectory", IsDirectory: "IsDirectory", InvalidPath: "InvalidPath",
	InvalidArgument: "InvalidArgument", TooLarge: "TooLarge", PermissionDenied: "PermissionDenied",
	Unauthenticated: "Unauthenticated", BadHandle: "BadHandle", HandleClosed: "HandleClosed", LockHeld: "LockHeld",
	LockDelayed: "LockDelayed", LockLost: "LockLost", NotHeld: "NotHeld", BadSequencer: "BadSequencer",
	GenerationMismatch: "GenerationMismatch", Deadlock: "Deadlock", QuotaExceeded: "QuotaExceeded",
	Cancelled: "Cancelled", DeadlineExceeded: "DeadlineExceeded", Corrupt: "Corrupt",
}

// Codes lists every code but OK, in the order of their numbers.
func Codes() []Code {
	list := make([]Code, 0, len(codeNames)-1)
	for c := Code(1); int(c) < len(codeNames); c++ {
		list = append(list, c)
	}
	return list
}

// String is the code's name, as JSON output shows it.
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("Code(%d)", uint32(c))
}

// Error makes a Code an error to compare with.
func (c Code) Error() string { return c.String() }

// Error is every error that crosses a boundary of Chubby: what was tried, on
// what, which replica answered, which master it believes in, and what to do. Only
// Code is always set.
type Error struct {
	Code    Code
	Op      string // what was tried: "acquire"
	Path    string // on what
	Replica string // which replica answered: "r2"
	Master  string // the client address of the believed master, of NotMaster
	Cell    string // the replica's own cell, of WrongCell
	Message string // what went wrong and what to do next, for people

	Holders   []Holder      // of LockHeld
	Remaining time.Duration // of LockDelayed
	Current   Generation    // of GenerationMismatch
	Cycle     []Wait        // of Deadlock: who waits for whom, from the request that is refused; the first steps if there are many
	Cacheable bool          // of NotFound: a session that caches may keep it until the cell invalidates it
	Final     bool          // the refusal is the answer of a numbered request in the log: no copy of the request was done, or will be

	Trace string // the id of the trace that the call belongs to, if it is traced; it does not cross the wire

	Request string // names the call of the library that has failed, as the log of the master does: 16 hexadecimal digits; it does not cross the wire

	Err error // the cause, when it is an error of this process; it does not cross the wire
}

// Errorf returns an Error of that code with a message for people.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error writes "acquire /ls/foo/lock: held by … (LockHeld, replica r2)". Characters
// that a terminal or a log would act on instead of showing them, such as a line feed in a
// path that a client has made up, are written as Go writes them (\n). The text of Err is
// written as it is.
func (e *Error) Error() string {
	text := printable(e.text())
	if e.Err != nil && (e.Message == "" || !strings.HasSuffix(e.Message, e.Err.Error())) { // a message may end with it
		text += ": " + e.Err.Error()
	}
	return text
}

// text is Error without the cause.
func (e *Error) text() string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(e.Op + " " + e.Path))
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Message != "" {
		b.WriteString(e.Message + " (" + e.Code.String())
	} else {
		b.WriteString("(" + e.Code.String())
	}
	if e.Replica != "" {
		b.WriteString(", replica " + e.Replica)
	}
	if e.Master != "" {
		b.WriteString(", master " + e.Master)
	}
	if e.Trace != "" {
		b.WriteString(", trace " + e.Trace)
	}
	b.WriteString(")")
	return b.String()
}

// printable escapes control characters, characters that change the direction of text or break
// lines, and bytes that are not UTF-8.
func printable(text string) string {
	if !strings.ContainsFunc(text, hidden) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if hidden(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// Is reports whether target is e's Code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first Error or Code in err's chain, OK for nil,
// and Uncertain for any other error, from which nothing can be concluded.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	return Uncertain
}

// ContextCode returns the code of a call that its context has ended: DeadlineExceeded if
// err, the context's error or cause, wraps context.DeadlineExceeded, and Cancelled if not.
func ContextCode(err error) Code {
	if errors.Is(err, context.DeadlineExceeded) {
		return DeadlineExceeded
	}
	return Cancelled
}
