package raftfsm

import (
	"cmp"
	"fmt"
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

// pastHand is the hand of one share that has given up something.
type pastHand struct {
	Creator string   `cbor:"1,keyasint,omitempty"`
	Hand    api.Name `cbor:"2,keyasint"`
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

// past reads what is remembered.
func (in *recordReader) past(s *State, h *pastHeader) error {
	if h == nil {
		return nil
	}
	for i := range h.Nodes {
		var one pastRecord
		if err := in.record(&one); err != nil {
			return fmt.Errorf("history %d of %d: %w", i+1, h.Nodes, err)
		}
		if slices.Contains(one.Holdings, nil) {
			return fmt.Errorf("history %d of %d has a holding that is empty", i+1, h.Nodes)
		}
		at := place{name: one.Name}
		if node, there := s.Tree.Get(one.Name); there {
			at.creator = node.Creator
		}
		s.past.forget(at)
		s.past.byNode.Set(at, one.Holdings)
		s.past.adjust(at.creator, len(one.Holdings))
	}
	if len(h.Hands) > 0 {
		s.past.countShares()
	}
	for _, of := range h.Hands {
		s.past.setHand(of.Creator, of.Hand)
	}
	if is := s.past.header(); is == nil || is.Nodes != h.Nodes || !slices.Equal(is.Hands, h.Hands) {
		return fmt.Errorf("some history is in it twice, or it has none: of %d nodes and %d hands, there are %d nodes", h.Nodes, len(h.Hands), s.past.byNode.Len())
	}
	return nil
}

// checkPast verifies the invariants of what is remembered: above all, that no lock was held by two.
func (s *State) checkPast() error {
	nodes, count := 0, 0
	for n := range s.Tree.All() {
		list, ok := s.past.byNode.Get(placeOf(n))
		if !ok {
			continue
		}
		nodes, count = nodes+1, count+len(list)
		if len(list) == 0 || len(list) > api.MaxHoldings {
			return api.Errorf(api.Corrupt, "of the lock of %q %d holdings are remembered", n.Name, len(list))
		}
		for i, h := range list {
			if h.Until < h.Generation || uint64(h.Until) > s.Counter || i > 0 && h.Until < list[i-1].Until || !h.Mode.Valid() || h.End == 0 {
				return api.Errorf(api.Corrupt, "the lock of %q was not held as it is remembered, with token %d until %d", n.Name, h.Generation, h.Until)
			}
			for _, before := range list[:i] {
				if h.Together(*before) {
					return api.Errorf(api.Corrupt, "the lock of %q is remembered as held by two, with tokens %d and %d", n.Name, before.Generation, h.Generation)
				}
			}
			if now := (api.Holding{Mode: n.Mode, Generation: n.Lock}); len(n.Holders) > 0 && h.Together(now) {
				return api.Errorf(api.Corrupt, "the lock of %q is held with token %d, and remembered as held with token %d", n.Name, n.Lock, h.Generation)
			}
		}
	}
	if nodes != s.past.byNode.Len() || count != s.past.count || count > s.past.most {
		return api.Errorf(api.Corrupt, "%d holdings of %d nodes are remembered, and %d of %d are of nodes that there are", s.past.count, s.past.byNode.Len(), count, nodes)
	}
	return nil
}
