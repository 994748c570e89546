package raftfsm

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
)

// When the past is full, the creator with the largest share gives up a holding. So each of n principals keeps
// at least an n-th of the room, and cannot displace the past of others' locks. The node after the share's hand
// gives up its oldest; the hand goes round in the order of names. So short-lived locks displace each other
// before they take the last holding of a quiet lock. No list of ages is needed.

type place struct {
	creator string
	name    api.Name
}

func placeOf(n *namespace.Node) place { return place{n.Creator, n.Name} }

func (p place) before(other place) bool {
	if p.creator != other.creator {
		return p.creator < other.creator
	}
	return p.name < other.name
}

// shares are the past by principal. They are counted when it first is full, so that releases do not pay for
// them before.
type shares struct {
	counted   bool
	editing   bool
	byCreator cowmap.Map[string, share]  // unusable until counted, as is ranks
	ranks     cowmap.Map[rank, struct{}] // of byCreator, the largest first
}

func (s *shares) edit() {
	if s.editing = true; s.counted {
		s.byCreator.Edit()
		s.ranks.Edit()
	}
}

func (s *shares) settle() {
	if s.editing = false; s.counted {
		s.byCreator.Settle()
		s.ranks.Settle()
	}
}

func (s *shares) snapshot() shares {
	if !s.counted {
		return shares{}
	}
	return shares{counted: true, byCreator: s.byCreator.Snapshot(), ranks: s.ranks.Snapshot()}
}

type share struct {
	count int      // of the holdings; never 0
	hand  api.Name // the node that last gave up a holding; "" if none did
}

type rank struct {
	count   int
	creator string
}

func (r rank) before(other rank) bool {
	return cmp.Or(cmp.Compare(other.count, r.count), cmp.Compare(r.creator, other.creator)) < 0
}

func (s *shares) adjust(creator string, more int) {
	if more == 0 {
		return
	}
	of, there := s.byCreator.Get(creator)
	if there {
		s.ranks.Delete(rank{of.count, creator})
	}
	if of.count += more; of.count == 0 {
		s.byCreator.Delete(creator)
		return
	}
	s.byCreator.Set(creator, of)
	s.ranks.Set(rank{of.count, creator}, struct{}{})
}

func (s *shares) hands() (list []pastHand) {
	if !s.counted {
		return nil
	}
	for creator, one := range s.byCreator.All() {
		//mutant: if one.hand == "/none" {
		if one.hand != "" {
			list = append(list, pastHand{creator, one.hand})
		}
	}
	return list
}

type pastHand struct {
	Creator string   `cbor:"1,keyasint,omitempty"`
	Hand    api.Name `cbor:"2,keyasint"`
}
