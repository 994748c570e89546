package raftfsm

import (
	"cmp"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// maxPast limits the holdings that a cell remembers, over all locks: some ten megabytes, or fifty with texts of
// maximum length.
const maxPast = 50_000

// HistoryLevel is the level from which a cell remembers past holders.
const HistoryLevel = 3

// past is the cell's memory of past holdings: each node's latest, in order of their ends. It goes with the
// node. When it is full, some node gives up its oldest; see below.
type past struct {
	byNode cowmap.Map[place, []*api.Holding] // neither a list nor its elements ever change
	shares shares                            // of what is in byNode
	count  int                               // of the holdings
	most   int                               // maxPast, except in tests
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

// remember completes ended holdings, and keeps them. It needs their sessions, and runs before any other grant.
func (s *State) remember(left []namespace.Left, as api.EndReason, wall int64) {
	for _, one := range left {
		h := one.Holding
		why, by := as, (*refusal.Intervention)(nil)
		if who, ok := s.Sessions.Get(h.Session); ok {
			h.Principal, h.Host, h.PID = who.Principal, who.Host, who.PID
			by = who.Terminating
		}
		if h.End == 0 && by != nil {
			why, h.EndedBy, h.EndedWhy = api.ByOperator, by.Principal, by.Why
		}
		//mutant: h.Until, h.End, h.ToUnix = h.Generation, cmp.Or(h.End, why), wall
		h.Until, h.End, h.ToUnix = api.Generation(s.Counter), cmp.Or(h.End, why), wall
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
}

func (p *past) add(at place, h *api.Holding) {
	if p.count >= p.most {
		p.countShares() // before anything uncounted is added
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

func (p *past) forget(at place) {
	list, _ := p.byNode.Delete(at)
	p.adjust(at.creator, -len(list))
}

// Ended returns the remembered holdings of a node's lock, the latest last. They do not change.
func (s *State) Ended(n *namespace.Node) []*api.Holding {
	list, _ := s.past.byNode.Get(placeOf(n))
	return list
}

// pastHeader is the part of a snapshot's header about past holdings.
type pastHeader struct {
	Nodes int        `cbor:"1,keyasint"`
	Hand  api.Name   `cbor:"2,keyasint,omitempty"`           // from builds before the first release with a past; ignored
	Hands []pastHand `cbor:"3,keyasint,omitempty" since:"3"` // by creator
}

type pastRecord struct {
	Name     api.Name       `cbor:"1,keyasint"`
	Holdings []*api.Holding `cbor:"2,keyasint"`
}

func (p *past) header() *pastHeader {
	if p.byNode.Len() == 0 {
		return nil
	}
	return &pastHeader{Nodes: p.byNode.Len(), Hands: p.shares.hands()}
}

func (p *past) adjust(creator string, more int) {
	p.count += more
	if p.shares.counted {
		p.shares.adjust(creator, more)
	}
}

func (p *past) countShares() {
	if p.shares.counted {
		return
	}
	of := shares{counted: true, byCreator: cowmap.New[string, share](cmp.Less[string]), ranks: cowmap.New[rank, struct{}](rank.before)}
	of.edit() // to avoid a copy for each
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

func (p *past) setHand(creator string, hand api.Name) {
	if of, there := p.shares.byCreator.Get(creator); there {
		of.hand = hand
		p.shares.byCreator.Set(creator, of)
	}
}

// makeRoom takes a holding from the largest share, for one of a creator that is added and not counted yet.
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
	if largest.creator != by { // otherwise the count does not change
		p.adjust(largest.creator, -1)
		p.adjust(by, 1)
	}
}

// dropOne drops the oldest holding of the node after a share's hand, without counting.
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

// after returns the creator's first node after a place, or else the creator's first; there is one.
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
