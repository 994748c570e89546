package raftfsm

import (
	"cmp"
	"slices"

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

// adjust counts holdings that were added to the nodes of a creator, or taken from them.
func (p *past) adjust(creator string, more int) {
	p.count += more
	if p.shares.counted {
		p.shares.adjust(creator, more)
	}
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

// countShares counts the shares of what is remembered, if they were not counted yet.
func (p *past) countShares() {
	if p.shares.counted {
		return
	}
	of := shares{counted: true, byCreator: cowmap.New[string, share](cmp.Less[string]), ranks: cowmap.New[rank, struct{}](rank.before)}
	of.edit() // so that nothing is copied for each of them
	creator, count := "", 0
	for at, list := range p.byNode.All() {
		if at.creator != creator {
			of.adjust(creator, count)
			creator, count = at.creator, 0
		}
		count += len(list)
	}
	of.adjust(creator, count)
	if !p.shares.editing {
		of.settle()
	}
	p.shares = of
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

// setHand sets the hand of a share, if there is that share.
func (p *past) setHand(creator string, hand api.Name) {
	if of, there := p.shares.byCreator.Get(creator); there {
		of.hand = hand
		p.shares.byCreator.Set(creator, of)
	}
}

// makeRoom takes a holding from the largest share, for one that was added to the nodes of a creator and is not counted yet.
func (p *past) makeRoom(by string) {
	own, _ := p.shares.byCreator.Get(by)
	largest := rank{own.count + 1, by}
	for first := range p.shares.ranks.All() {
		if first.before(largest) {
			largest = first
		}
		break
	}
	p.dropOne(largest.creator)
	if largest.creator != by { // else as much was added as is taken
		p.adjust(largest.creator, -1)
		p.adjust(by, 1)
	}
}

// dropOne takes the oldest holding from the node after the hand of a share. It is not counted here.
func (p *past) dropOne(creator string) {
	of, _ := p.shares.byCreator.Get(creator)
	//mutant: at, list := p.after(place{creator, of.hand[:0]})
	at, list := p.after(place{creator, of.hand})
	p.setHand(creator, at.name)
	if len(list) == 1 {
		p.byNode.Delete(at)
	} else {
		p.byNode.Set(at, slices.Clone(list[1:]))
	}
}

// after returns the first node of the same creator after a place, or else the first of all: there is one.
func (p *past) after(hand place) (place, []*api.Holding) {
	for at, list := range p.byNode.From(hand) {
		if at.creator != hand.creator {
			break
		}
		if at != hand {
			return at, list
		}
	}
	for at, list := range p.byNode.From(place{creator: hand.creator}) {
		return at, list
	}
	return hand, nil
}
