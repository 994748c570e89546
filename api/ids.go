package api

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// SessionID numbers the sessions of a cell. It is drawn from a replicated
// counter, so a cell never uses one twice; zero is no session.
type SessionID uint64

// String writes the session as users see it, "s" and the number.
func (s SessionID) String() string { return "s" + strconv.FormatUint(uint64(s), 10) }

// ParseSessionID reads what SessionID.String writes.
func ParseSessionID(text string) (SessionID, error) {
	digits, ok := strings.CutPrefix(text, "s")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || n == 0 {
		return 0, &Error{Code: InvalidArgument, Message: fmt.Sprintf("%q is not a session: want s and a number, as in s42", text)}
	}
	return SessionID(n), nil
}

// RequestNumber numbers the requests of one session, counting up from 1. With
// its session it names a mutation permanently, so every retry, to any master, gets
// the first answer.
type RequestNumber uint64

// HandleID names a handle within its session: it is the RequestNumber of the
// Open that made it.
type HandleID uint64

// Epoch is one master's time as master. Its number is the Raft term in which the
// master was elected, so it grows with every fail-over (Chubby §2.9, step 1).
type Epoch uint64

// Generation is a number that only grows: of a node's instance, contents, lock
// or ACL (Chubby §2.3). All are drawn from one counter of the cell: the next of a
// node is greater than the one before, not one more, and a file that was deleted
// and created again repeats none of those it had. Values stay below MaxGeneration,
// so that JSON carries them exactly.
type Generation uint64

// CellID tells a cell from another one of the same name that was bootstrapped at
// another time: sixteen random bytes in hexadecimal, chosen when the cell first
// elects a master.
type CellID string

// ParseCellID checks that text is a CellID: 32 lower-case hexadecimal digits.
func ParseCellID(text string) (CellID, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 16 || strings.ToLower(text) != text {
		return "", &Error{Code: InvalidArgument, Message: fmt.Sprintf("%q is not a cell id: want 32 lower-case hexadecimal digits", text)}
	}
	return CellID(text), nil
}
