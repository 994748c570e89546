package raftfsm

import (
	"fmt"
	"net"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Roster says which replicas a cell has, is to have, and has had. It is empty until they are changed
// for the first time: until then they are those of Raft's configuration. What it says of a change that is under way is
// what has been decided; Raft's configuration follows, step by step (docs/adr/0027-members-are-changed-by-the-master.md).
// A Roster that was returned never changes.
type Roster struct {
	Version uint64   `cbor:"1,keyasint"` // counts its changes
	Members []Member `cbor:"2,keyasint"` // in the order in which they came; those that have left stay

	Author    string `cbor:"3,keyasint,omitempty" since:"3"` // the principal who decided on the last change; empty if the master did
	SinceUnix int64  `cbor:"4,keyasint,omitempty" since:"3"` // when, by the clock of the master; for display
}

// Member is a replica of the roster.
type Member struct {
	ID          string      `cbor:"1,keyasint"`
	Raft        string      `cbor:"2,keyasint"`           // host:port
	Client      string      `cbor:"3,keyasint,omitempty"` // host:port; empty for one of the bootstrap
	HTTP        string      `cbor:"4,keyasint,omitempty"`
	Incarnation string      `cbor:"5,keyasint,omitempty"` // of its data directory; empty for one of the bootstrap
	Phase       MemberPhase `cbor:"6,keyasint"`
	Replaces    string      `cbor:"7,keyasint,omitempty"` // leaves when this one has joined
}

// MemberPhase is where a replica is on its way through a cell.
type MemberPhase int

// The phases. A replica that is joining may be made to leave before it is settled.
const (
	Joining MemberPhase = iota + 1 // it is to catch up, without a vote
	Settled                        // it has a vote
	Leaving                        // it is to be taken out of Raft's configuration
	Left                           // its ID is never used again
	Standby                        // a spare: it waits, in no configuration of Raft, until it takes the place of a replica that is dead; before Joining
)

// String returns the phase as people are shown it.
func (p MemberPhase) String() string {
	switch p {
	case Joining:
		return "joining"
	case Settled:
		return "member"
	case Leaving:
		return "leaving"
	case Left:
		return "left"
	case Standby:
		return "spare"
	}
	return fmt.Sprintf("phase %d", int(p))
}

// Find returns a replica of the roster.
func (r Roster) Find(id string) (Member, bool) {
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return r.Members[i], true
}

// Unsettled returns the replica whose change is under way.
func (r Roster) Unsettled() (Member, bool) {
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Phase == Joining || m.Phase == Leaving })
	if i < 0 {
		return Member{}, false
	}
	return r.Members[i], true
}

// Spares returns the replicas that stand by, in the order in which they came.
func (r Roster) Spares() (list []Member) {
	for _, m := range r.Members {
		if m.Phase == Standby {
			list = append(list, m)
		}
	}
	return list
}

// in returns how many replicas are in a phase.
func (r Roster) in(phases ...MemberPhase) (n int) {
	for _, m := range r.Members {
		if slices.Contains(phases, m.Phase) {
			n++
		}
	}
	return n
}

// with returns the roster with a replica changed, or added.
func (r Roster) with(m Member) Roster {
	list := slices.Clone(r.Members)
	if i := slices.IndexFunc(list, func(o Member) bool { return o.ID == m.ID }); i >= 0 {
		list[i] = m
	} else {
		list = append(list, m)
	}
	r.Version, r.Members = r.Version+1, list
	return r
}

// foundersOf returns the roster before its first change.
func foundersOf(founders []Member) (Roster, error) {
	var r Roster
	for _, m := range founders {
		m = Member{ID: m.ID, Raft: m.Raft, Phase: Settled}
		if _, twice := r.Find(m.ID); twice || !m.isWellFormed() || len(r.Members) == MaxMembers {
			return r, &refusal.Refusal{Cause: refusal.MemberMalformed}
		}
		r.Members = append(r.Members, m)
	}
	if len(r.Members) == 0 {
		return r, &refusal.Refusal{Cause: refusal.MemberMalformed}
	}
	return r, nil
}

// isWellFormed reports whether the texts of a replica can be: what else takes them may rely on it.
func (m Member) isWellFormed() bool {
	for _, address := range []string{m.Raft, m.Client, m.HTTP} {
		host, _, err := net.SplitHostPort(address)
		if len(address) > maxAddress || address != "" && (err != nil || host == "") {
			return false
		}
	}
	return m.Raft != "" && len(m.ID) <= maxMemberID && api.ValidCell(m.ID) && len(m.Incarnation) <= maxMemberID && m.Phase >= Joining && m.Phase <= Standby
}

func (r Roster) add(m Member) (Roster, error) {
	if m.Phase != Standby {
		m.Phase = Joining
	}
	if !m.isWellFormed() || m.Phase == Standby && m.Replaces != "" || m.Incarnation == "" || m.Client == "" {
		return r, &refusal.Refusal{Cause: refusal.MemberMalformed}
	}
	//mutant: if old, used := r.Find(m.ID); used && old.Phase != Left {
	if _, used := r.Find(m.ID); used {
		return r, &refusal.Refusal{Cause: refusal.MemberUsed, Path: m.ID}
	}
	//mutant: if other, busy := r.Unsettled(); busy && other.ID == "" {
	if other, busy := r.Unsettled(); busy {
		return r, &refusal.Refusal{Cause: refusal.MemberUnsettled, Path: other.ID}
	}
	for _, other := range r.Members {
		if other.Phase != Left && other.Raft == m.Raft {
			return r, &refusal.Refusal{Cause: refusal.MemberAddress, Path: m.Raft}
		}
	}
	if replaced, ok := r.Find(m.Replaces); m.Replaces != "" && (!ok || replaced.Phase != Settled) {
		return r, &refusal.Refusal{Cause: refusal.MemberUnknown, Path: m.Replaces}
	}
	if n := r.in(Settled); n+r.in(Standby) >= MaxMembers && m.Replaces == "" || len(r.Members) >= maxRoster {
		return r, &refusal.Refusal{Cause: refusal.MembersTooMany, Used: int64(len(r.Members)), Allowed: MaxMembers}
	}
	return r.with(m), nil
}

func (r Roster) remove(id string) (Roster, error) {
	m, ok := r.Find(id)
	if !ok || m.Phase == Left {
		return r, &refusal.Refusal{Cause: refusal.MemberUnknown, Path: id}
	}
	if other, busy := r.Unsettled(); busy && (other.ID != id || m.Phase == Leaving) {
		return r, &refusal.Refusal{Cause: refusal.MemberUnsettled, Path: other.ID}
	}
	//mutant: if r.in(Settled) == 0 {
	if m.Phase == Settled && r.in(Settled) == 1 {
		return r, &refusal.Refusal{Cause: refusal.MemberLast, Path: id}
	}
	if m.Phase == Standby { // Raft has nothing to do with it
		m.Phase = Left
		return r.with(m), nil
	}
	m.Phase = Leaving
	return r.with(m), nil
}

// keep takes back that a replica leaves. It joins again from the step at which it is: a step of Raft's may be on its way that takes it out.
// One that still has its vote is settled at once.
func (r Roster) keep(id string) (Roster, error) {
	m, ok := r.Find(id)
	if !ok || m.Phase != Leaving {
		return r, &refusal.Refusal{Cause: refusal.MemberStays, Path: id}
	}
	if n := r.in(Settled); n+r.in(Standby) >= MaxMembers { // another one has its place already
		return r, &refusal.Refusal{Cause: refusal.MembersTooMany, Used: int64(len(r.Members)), Allowed: MaxMembers}
	}
	m.Phase = Joining
	return r.with(m), nil
}

// check returns what is wrong with a roster that was read.
func (r Roster) check() error {
	seen := make(map[string]bool, len(r.Members))
	for _, m := range r.Members {
		if seen[m.ID] || !m.isWellFormed() {
			return fmt.Errorf("replica %.64q of its roster cannot be, or is there twice", m.ID)
		}
		seen[m.ID] = true
	}
	if n := r.in(Joining, Leaving); n > 1 {
		return fmt.Errorf("its roster has %d changes under way", n)
	}
	return nil
}

// Bounds of a roster.
const (
	MaxMembers  = 15   // replicas that a cell has at a time
	maxRoster   = 1000 // that it has ever had
	maxMemberID = 64
	maxAddress  = 255
)
