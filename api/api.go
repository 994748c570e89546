package api

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
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

// LockMode is how a lock is held: by one holder, or by several that exclude an
// exclusive one (Chubby §2.4).
type LockMode uint8

// The modes of a lock.
const (
	Exclusive LockMode = 1
	Shared    LockMode = 2
)

// String names the mode in lower case.
func (m LockMode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Valid reports whether m is a mode of this version.
func (m LockMode) Valid() bool { return m == Exclusive || m == Shared }

// Conflicts reports whether a and b exclude each other.
func (m LockMode) Conflicts(other LockMode) bool { return m == Exclusive || other == Exclusive }

// Kind tells files from directories (Chubby §2.3).
type Kind uint8

// The kinds of node.
const (
	File      Kind = 1
	Directory Kind = 2
)

// String names the kind in lower case.
func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Directory:
		return "directory"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Valid reports whether k is a kind of this version.
func (k Kind) Valid() bool { return k == File || k == Directory }

// Create says what Open does when the node is absent, or there.
type Create uint8

// The ways to create, whose numbers cross the wire.
const (
	MustExist  Create = 0 // an absent node is NotFound
	MayCreate  Create = 1 // an absent node is created, a present one opened
	MustCreate Create = 2 // a present node is Exists
)

// Valid reports whether c is a way to create of this version.
func (c Create) Valid() bool { return c <= MustCreate }

// ACL is the three names of access control lists that a node has (Chubby §2.3).
// Each is the name of a file in ACLDir.
type ACL struct {
	Read   string `cbor:"1,keyasint,omitempty" json:"read"`
	Write  string `cbor:"2,keyasint,omitempty" json:"write"`
	Change string `cbor:"3,keyasint,omitempty" json:"change"`
}

// Stat is a node's metadata (Chubby §2.3): four numbers that only grow, a
// checksum, and what a directory listing shows.
type Stat struct {
	Path      Path
	Kind      Kind
	Ephemeral bool
	Instance  Generation // greater than that of any previous node of this name
	Content   Generation // greater with each write of the contents; of a new node the instance
	Lock      Generation // greater each time the lock goes from free to held; 0 before the first
	ACLs      Generation // greater with each write of the ACL names; of a new node the instance
	Checksum  uint64     // of the contents; equal contents have equal checksums
	Size      int        // bytes of contents
	Children  int        // of a directory
	ACL       ACL

	// ModifiedUnix is when the contents were last written, or the node was created, in
	// seconds since 1970 by the wall clock of the master at that time. It is for display
	// only: it can be wrong, and can go back. 0 if it is not known: of contents that were
	// written before the cell was at feature level 2.
	ModifiedUnix int64

	// Withheld says that the caller may not read the node: only Path, Kind and Ephemeral are known of it; ACL and ACLs, if its handle
	// may change those; and in the answer to a change what the caller has written itself: Content, Checksum, Size and ModifiedUnix,
	// and Instance, if it has created the node.
	Withheld bool
}

// Wait is a step of a cycle of requests for locks that wait for each other.
type Wait struct {
	Session SessionID // whose request it is
	Owner   string    // that the request declares; empty: the session itself
	Path    string    // of the lock that is waited for; empty if the caller may not read the node
	For     SessionID // who holds the lock, or waits for it in front: a session of the owner of the next step
}

// Holder describes a session that holds a lock, or waits for one, for people to read.
type Holder struct {
	Session   SessionID
	Principal string
	Host      string
	PID       int
	Reason    string // why it takes the lock, in its own words; may be empty
	SinceUnix int64  // since when, in seconds since 1970 by the wall clock of the master at that time; for display only
	Owner     string // for whom the session holds it or waits, as its request declares; empty: for itself
	Cached    bool   // in listings: the holder may keep the lock between two uses, until another asks for it

	// In listings of locks: whether a sequencer of the lock was shown to this master, to be checked or as the condition of a change
	// (servers that check without the cell leave no trace there); and for how long nobody gets the lock if the holder's session fails.
	Checked   bool
	LockDelay time.Duration
}
