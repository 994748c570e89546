package raftfsm

import (
	"cmp"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// When a cell has no room for one more holding, that creator gives up one of whose nodes most are remembered: so of n principals each
// keeps an n-th of the room at least, whatever the others do, and nobody can have the past of another's locks forgotten by holding
// very many of their own. Of the creator's nodes, it is the next one after the hand that gives up its oldest, and the hand goes round in the order of their names:
// locks that come and go by the thousand take from each other before they take the last from one that nobody touches.
// No list of ages has to be kept.

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
	if more == 0 {
		return
	}
	of, there := p.shares.Get(creator)
	if there {
		p.ranks.Delete(rank{of.count, creator})
	}
	p.count += more
	if of.count += more; of.count == 0 {
		p.shares.Delete(creator)
		return
	}
	p.shares.Set(creator, of)
	p.ranks.Set(rank{of.count, creator}, struct{}{})
}

// setHand sets the hand of a share, if there is that share.
func (p *past) setHand(creator string, hand api.Name) {
	if of, there := p.shares.Get(creator); there {
		of.hand = hand
		p.shares.Set(creator, of)
	}
}

// makeRoom takes a holding from the largest share, for one that was added to the nodes of a creator and is not counted yet.
func (p *past) makeRoom(by string) {
	own, _ := p.shares.Get(by)
	largest := rank{own.count + 1, by}
	for first := range p.ranks.All() {
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
	of, _ := p.shares.Get(creator)
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
