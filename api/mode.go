package api

import "fmt"

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
