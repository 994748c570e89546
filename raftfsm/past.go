package raftfsm

import (
	"cmp"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// maxPast bounds the holdings that a cell remembers, of all its locks together: some ten megabytes, and some
// fifty if every text in them is as long as can be.
const maxPast = 50_000

// HistoryLevel is the level from which on a cell remembers who held a lock before.
const HistoryLevel = 3

// past is what the cell remembers of how its locks were held: of each node the holdings that ended last, the
// latest last. It goes with the node. When there is no room for one more, some node gives up its oldest; see pastshare.go.
type past struct {
	byNode cowmap.Map[place, []*api.Holding] // neither a list nor what is in it ever changes
	shares shares                            // of what is in byNode
	count  int                               // of the holdings
	most   int                               // maxPast, but in tests
}

func newPast(most int) past {
	return past{byNode: cowmap.New[place, []*api.Holding](place.before), most: most}
}

func (p *past) edit() {
	p.byNode.Edit()
	p.shares.edit()
}

func (p *past) settle() {
	p.byNode.Settle()
	p.shares.settle()
}

func (p *past) snapshot() past {
	return past{byNode: p.byNode.Snapshot(), shares: p.shares.snapshot(), count: p.count, most: p.most}
}

// ended is how, and when by the clock of the master, holdings have ended.
type ended struct {
	why  api.EndReason
	wall int64
}

// remember notes how holdings have ended, keeps them, and returns them. It needs their sessions, and is called before
// anything else is granted.
func (s *State) remember(left []namespace.Left, end ended) []namespace.Left {
	for _, one := range left {
		h := one.Holding
		why, by := end.why, (*refusal.Intervention)(nil)
		if who, ok := s.Sessions.Get(h.Session); ok {
			h.Principal, h.Host, h.PID = who.Principal, who.Host, who.PID
			by = who.Terminating
		}
		if h.End == 0 && by != nil {
			why, h.EndedBy, h.EndedWhy = api.ByOperator, by.Principal, by.Why
		}
		//mutant: h.Until, h.End, h.ToUnix = h.Generation, cmp.Or(h.End, why), end.wall
		h.Until, h.End, h.ToUnix = api.Generation(s.Counter), cmp.Or(h.End, why), end.wall
		//mutant: if s.Level < 1 {
		if s.Level < HistoryLevel {
			continue
		}
		creator := ""
		if node, there := s.Tree.Get(one.Lock.Name); there {
			creator = node.Creator
		}
		s.past.add(place{creator, one.Lock.Name}, h)
	}
	return left
}

// add adds the latest holding of a node.
func (p *past) add(at place, h *api.Holding) {
	if p.count >= p.most {
		p.countShares() // before anything is added that is not counted yet
	}
	before, _ := p.byNode.Get(at)
	keep := before[max(0, len(before)-api.MaxHoldings+1):]
	list := make([]*api.Holding, len(keep)+1)
	copy(list, keep)
	list[len(keep)] = h
	p.byNode.Set(at, list)
	switch {
	case len(list) == len(before):
	case p.count < p.most:
		p.adjust(at.creator, 1)
	default:
		p.makeRoom(at.creator)
	}
}

// forget forgets a node that is gone.
func (p *past) forget(at place) {
	list, _ := p.byNode.Delete(at)
	p.adjust(at.creator, -len(list))
}

// Ended returns how a node's lock was held, as far as that is remembered: the latest last. The holdings do not change.
func (s *State) Ended(n *namespace.Node) []*api.Holding {
	list, _ := s.past.byNode.Get(placeOf(n))
	return list
}

// pastHeader says in the header of a snapshot what is remembered.
type pastHeader struct {
	Nodes int        `cbor:"1,keyasint"`
	Hand  api.Name   `cbor:"2,keyasint,omitempty"`           // of builds before the first release that has a past; it is read, and ignored
	Hands []pastHand `cbor:"3,keyasint,omitempty" since:"3"` // by creator
}

// pastRecord is what is remembered of one node.
type pastRecord struct {
	Name     api.Name       `cbor:"1,keyasint"`
	Holdings []*api.Holding `cbor:"2,keyasint"`
}

// header returns what the header of a snapshot says, nil while there is nothing to say.
func (p *past) header() *pastHeader {
	if p.byNode.Len() == 0 {
		return nil
	}
	return &pastHeader{Nodes: p.byNode.Len(), Hands: p.shares.hands()}
}

// adjust counts holdings that were added to the nodes of a creator, or taken from them.
func (p *past) adjust(creator string, more int) {
	p.count += more
	if p.shares.counted {
		p.shares.adjust(creator, more)
	}
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
