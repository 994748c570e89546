package identity

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Replica says which replica of which cell a data directory is. A replica is known to
// the others by its ID and its incarnation together: the incarnation is drawn when the
// directory is made and lost with it, so that a replica that comes back with an empty
// disk is not taken for the one that voted before
// (docs/adr/0009-bootstrap-and-identity.md).
//
// It is a value; package disk stores it.
type Replica struct {
	ID          string
	Incarnation string
	Roster      *Roster // nil until the cell's bootstrap has reached this replica, or it was let into the cell
	Begun       bool    // Raft has been or may be started: every member had stored the roster; of one that joined: it holds data
	Joined      bool    // it came after the bootstrap, and must never bootstrap
}

// Roster is a cell: its id, and which data directories are, or were, its
// replicas. Its bootstrap draws it, and changes of its members add to it. A Roster that was returned never changes.
type Roster struct {
	CellID  string   `json:"cell_id"`
	Members []Member `json:"members"`
}

// Member is one replica of a roster.
type Member struct {
	ID          string `json:"id"`
	Raft        string `json:"raft"`
	Incarnation string `json:"incarnation,omitempty"`
	Left        bool   `json:"left,omitempty"` // it is no member any more, and never will be
}

// IncarnationOf returns the incarnation of a member, "" for an id that is not one.
func (r *Roster) IncarnationOf(id string) string {
	for _, m := range r.Members {
		if m.ID == id && !m.Left {
			return m.Incarnation
		}
	}
	return ""
}

// HasLeft reports whether a replica was a member, and is not any more.
func (r *Roster) HasLeft(id string) bool {
	return slices.ContainsFunc(r.Members, func(m Member) bool { return m.ID == id && m.Left })
}

// Lists reports whether those are the roster's members, in its order.
func (r *Roster) Lists(members []Member) bool {
	return slices.EqualFunc(r.Members, members, func(a, b Member) bool { return a.ID == b.ID && a.Raft == b.Raft })
}

// Difference says how a list of members ("there") differs from ours ("here"), "" if it
// does not.
func Difference(ours, theirs []Member) string {
	var words []string
	for _, m := range ours {
		i := slices.IndexFunc(theirs, func(o Member) bool { return o.ID == m.ID })
		switch {
		case i < 0:
			words = append(words, fmt.Sprintf("%s is not there", m.ID))
		case theirs[i].Raft != m.Raft:
			words = append(words, fmt.Sprintf("%s is there at the raft address %s, here at %s", m.ID, theirs[i].Raft, m.Raft))
		}
	}
	for _, m := range theirs {
		if !slices.ContainsFunc(ours, func(o Member) bool { return o.ID == m.ID }) {
			words = append(words, fmt.Sprintf("%s is only there", m.ID))
		}
	}
	return strings.Join(words, ", ")
}

// InCell reports whether this is a replica of a cell: one that has begun, or has let this one in.
func (i Replica) InCell() bool { return i.Roster != nil && (i.Begun || i.Joined) }

// CellID returns the id of the cell whose replica this is, "" before it has one.
func (i Replica) CellID() string {
	if !i.InCell() {
		return ""
	}
	return i.Roster.CellID
}

// KnownIncarnation returns the incarnation under which the cell knows a replica, "" if
// it does not know the replica.
func (i Replica) KnownIncarnation(id string) string {
	if i.Roster == nil {
		return ""
	}
	return i.Roster.IncarnationOf(id)
}

// RandomID draws an ID of 128 bits, in hexadecimal.
func RandomID() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("draw random bytes: %w", err)
	}
	return hex.EncodeToString(b), nil
}
