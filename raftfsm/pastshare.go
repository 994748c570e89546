package raftfsm

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
)

// When a cell has no room for one more holding, that creator gives up one of whose nodes most are remembered: so of n principals each
// keeps an n-th of the room at least, whatever the others do, and nobody can have the past of another's locks forgotten by holding
// very many of their own. Of the creator's nodes, it is the next one after the hand that gives up its oldest, and the hand goes round in
// the order of their names: locks that come and go by the thousand take from each other before they take the last from one that nobody
// touches. No list of ages has to be kept.

// place is where in the past a node is.
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

// shares are what is remembered of the nodes of each principal. They follow from what is remembered, and are counted
// when they are needed first: when there is no room. Until then a release does not pay for them.
type shares struct {
	counted   bool
	editing   bool
	byCreator cowmap.Map[string, share]  // not usable until it is counted; nor is ranks
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

// share is how much is remembered of the nodes that one principal has created.
type share struct {
	count int      // of the holdings; never 0
	hand  api.Name // of the node that gave up one last; "" if none did
}

// rank is a share among the others.
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

// hands returns the hands of the shares that have given up something.
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

// pastHand is the hand of one share that has given up something.
type pastHand struct {
	Creator string   `cbor:"1,keyasint,omitempty"`
	Hand    api.Name `cbor:"2,keyasint"`
}
