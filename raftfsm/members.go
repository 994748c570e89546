package raftfsm

import (
	"fmt"
	"net"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

func (s *State) changeMembers(c *ChangeMembers, wall int64) Result {
	return s.operate(c.Mutation, func(operator string) Result {
		now := s.Roster
		var err error
		if len(now.Members) == 0 {
			if now, err = foundersOf(c.Founders); err != nil {
				return refuse(err)
			}
		}
		switch adds, removes, keeps := c.Add != nil, c.Remove != "", c.Keep != ""; {
		case adds && !removes && !keeps:
			now, err = now.add(*c.Add)
		case removes && !adds && !keeps:
			now, err = now.remove(c.Remove)
		case keeps && !adds && !removes:
			now, err = now.keep(c.Keep)
		default:
			err = &refusal.Refusal{Cause: refusal.MemberMalformed}
		}
		if err != nil {
			return refuse(err)
		}
		now.Author, now.SinceUnix = operator, wall
		s.Roster = now
		return Result{}
	})
}

// settleMember records that Raft's configuration follows the decision. It is idempotent.
func (s *State) settleMember(c *SettleMember, wall int64) Result {
	m, ok := s.Roster.Find(c.ID)
	switch {
	case !ok || m.Phase != c.Phase:
	case m.Phase == Joining:
		replaced := m.Replaces
		m.Phase, m.Replaces = Settled, "" // a later change is independent of that one
		s.Roster = s.Roster.with(m)
		if old, ok := s.Roster.Find(replaced); ok && old.Phase == Settled {
			old.Phase = Leaving
			s.Roster = s.Roster.with(old)
		}
	case m.Phase == Leaving:
		m.Phase = Left
		s.Roster = s.Roster.with(m)
	case m.Phase == Standby:
		old, ok := s.Roster.Find(c.Replaces)
		if _, busy := s.Roster.Unsettled(); busy || !ok || old.Phase != Settled {
			return Result{}
		}
		m.Phase, m.Replaces = Joining, old.ID
		s.Roster = s.Roster.with(m)
		s.Roster.Author, s.Roster.SinceUnix = "", wall
	}
	return Result{}
}

// Roster says which replicas a cell has, will have, and has had. Until the first change it is empty, and Raft's
// configuration counts. It has the decision on a change; Raft's configuration follows step by step
// (docs/adr/0027-members-are-changed-by-the-master.md). A returned Roster never changes.
type Roster struct {
	Version uint64   `cbor:"1,keyasint"` // counts its changes
	Members []Member `cbor:"2,keyasint"` // in order of arrival; former ones stay

	Author    string `cbor:"3,keyasint,omitempty" since:"3"` // the principal that decided the last change; empty if the master did
	SinceUnix int64  `cbor:"4,keyasint,omitempty" since:"3"` // when, by the master's clock; for display
}

// Member is a replica of the roster.
type Member struct {
	ID          string      `cbor:"1,keyasint"`
	Raft        string      `cbor:"2,keyasint"`           // host:port
	Client      string      `cbor:"3,keyasint,omitempty"` // host:port; empty at bootstrap
	HTTP        string      `cbor:"4,keyasint,omitempty"`
	Incarnation string      `cbor:"5,keyasint,omitempty"` // of its data directory; empty at bootstrap
	Phase       MemberPhase `cbor:"6,keyasint"`
	Replaces    string      `cbor:"7,keyasint,omitempty"` // leaves when this one has joined
}

// MemberPhase is the phase of a replica's life in a cell.
type MemberPhase int

// The phases. A joining replica may be removed before it is settled.
const (
	Joining MemberPhase = iota + 1 // catches up, without a vote
	Settled                        // it has a vote
	Leaving                        // to be removed from Raft's configuration
	Left                           // its ID is never used again
	Standby                        // a spare outside Raft's configuration, before Joining: waits to replace a dead replica
)

// String returns the phase for display.
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

// Unsettled returns the replica with a pending change.
func (r Roster) Unsettled() (Member, bool) {
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Phase == Joining || m.Phase == Leaving })
	if i < 0 {
		return Member{}, false
	}
	return r.Members[i], true
}

// Spares returns the spares, in order of arrival.
func (r Roster) Spares() (list []Member) {
	for _, m := range r.Members {
		if m.Phase == Standby {
			list = append(list, m)
		}
	}
	return list
}

func (r Roster) in(phases ...MemberPhase) (n int) {
	for _, m := range r.Members {
		if slices.Contains(phases, m.Phase) {
			n++
		}
	}
	return n
}

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

// isWellFormed reports whether a replica's texts are valid; other code relies on it.
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
	if m.Phase == Standby { // Raft does not know it
		m.Phase = Left
		return r.with(m), nil
	}
	m.Phase = Leaving
	return r.with(m), nil
}

// keep cancels a replica's leaving. It joins again from its current step, since a pending step of Raft's may
// remove it. If it still votes, it is settled at once.
func (r Roster) keep(id string) (Roster, error) {
	m, ok := r.Find(id)
	if !ok || m.Phase != Leaving {
		return r, &refusal.Refusal{Cause: refusal.MemberStays, Path: id}
	}
	if n := r.in(Settled); n+r.in(Standby) >= MaxMembers { // another replica has its place
		return r, &refusal.Refusal{Cause: refusal.MembersTooMany, Used: int64(len(r.Members)), Allowed: MaxMembers}
	}
	m.Phase = Joining
	return r.with(m), nil
}

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

// Limits of a roster.
const (
	MaxMembers  = 15   // of a cell at a time
	maxRoster   = 1000 // over its lifetime
	maxMemberID = 64
	maxAddress  = 255
)
