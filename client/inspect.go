package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// LockInfo is one lock that is held, waited for or delayed.
type LockInfo struct {
	Path       string
	Mode       api.LockMode // 0 if nobody holds it
	Generation api.Generation
	Holders    []api.Holder  // at most api.MaxListed of them
	Waiters    []Waiter      // the first api.MaxListed
	Delayed    time.Duration // for so long nobody gets it, because a holder failed
	Revoked    string        // why it is being taken away from its holders, who have not released it yet; else empty

	MoreHolders int // besides those listed
	MoreWaiters int // behind those listed
}

// Waiter is a request that waits for a lock.
type Waiter struct {
	api.Holder
	Place   int // 1 is next
	Mode    api.LockMode
	Waiting time.Duration
	// Estimate is how much longer it may be, as in Queued; 0 if the master does not know.
	Estimate time.Duration
	Absent   bool // its connection is broken; its position is kept for a while
}

// Explanation is what an operation on a node would wait for.
type Explanation struct {
	Lock      LockInfo // who holds the lock, and who waits for it
	Sentences []string // the same, and more, as text for people
	Cachers   []Cacher // the sessions that a change of the node would wait for, the one waited for longest first; at most api.MaxListed

	MoreCachers int // besides those listed
}

// Cacher is a session that may have a node in its cache: a change of the node waits
// until the session has dropped it, or has ended (Chubby §2.7).
type Cacher struct {
	api.Holder
	Waiting time.Duration // how long a change has waited for it; 0 if none waits
	AtMost  time.Duration // after so long it has dropped the node, or has ended
}

// SessionInfo is one session of a cell.
type SessionInfo struct {
	api.Holder
	Lease     time.Duration // the length granted
	LeftLeast time.Duration // it lives at least this long
	LeftMost  time.Duration // and is ended at the latest after this long, unless extended
	Handles   int
	Locks     int
	MayCache  bool
	Unheard   bool // since the last fail-over; it ends with what is left, unless its client returns
}

// History is how the lock of a node was held, as far as the cell remembers: it keeps the last holdings of each node,
// for as long as the node exists.
type History struct {
	Path        string
	Holdings    []api.Holding // what has ended, the latest last; then what goes on, at most api.MaxListed
	MoreHolders int           // besides those that go on and are listed
}

// Overlap returns two holdings that were not one after the other although one of them was exclusive, if there
// are such: it answers whether two ever held the lock at once. The fencing tokens decide, and no clock. If it finds two,
// the cell is at fault: keep the data of its replicas.
func (h History) Overlap() (a, b api.Holding, found bool) {
	for i, a := range h.Holdings {
		for _, b := range h.Holdings[i+1:] {
			if a.Together(b) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// Explain says who holds the lock on a node and who waits for it, who may have
// the node in a cache, and, in sentences, what an operation on it would wait for.
// Where clients have to say who they are, it takes the right to read the node, or to be an operator.
func (c *Cell) Explain(ctx context.Context, path string) (Explanation, error) {
	p, err := c.parsePath("explain", path)
	if err != nil {
		return Explanation{}, err
	}
	var x Explanation
	err = c.ask(ctx, "explain", path, func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.Explain(ctx, &chubbypb.ExplainRequest{Cell: c.cfg.Cell, Path: p.String()})
		x = Explanation{Lock: lockInfo(reply.GetLock()), Sentences: reply.GetExplanation(), MoreCachers: int(reply.GetMoreCachers())}
		for _, one := range reply.GetCachers() {
			x.Cachers = append(x.Cachers, Cacher{
				Holder: one.GetParty().Holder(), Waiting: time.Duration(one.GetWaitingNs()), AtMost: time.Duration(one.GetAtMostNs()),
			})
		}
		return err
	})
	return x, err
}

// History says who held the lock on a node, from when to when, why each holding ended, and who holds the lock
// now. History.Overlap finds out whether two ever held it at once. It takes the right that Explain takes. The errors are
// NotFound if there is no node, and Unavailable while an upgrade of the cell to feature level 3 is not finished.
func (c *Cell) History(ctx context.Context, path string) (History, error) {
	p, err := c.parsePath("history", path)
	if err != nil {
		return History{}, err
	}
	h := History{Path: p.String()}
	err = c.ask(ctx, "history", path, func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.History(ctx, &chubbypb.HistoryRequest{Cell: c.cfg.Cell, Path: p.String()})
		h.Holdings, h.MoreHolders = nil, int(reply.GetMoreHolders())
		for _, one := range reply.GetHoldings() {
			h.Holdings = append(h.Holdings, holding(one))
		}
		return err
	})
	return h, err
}

// holding decodes how a lock was held.
func holding(h *chubbypb.Holding) api.Holding {
	who := h.GetParty().Holder()
	return api.Holding{
		Session: who.Session, Principal: who.Principal, Host: who.Host, PID: who.PID, Reason: who.Reason,
		Mode: api.LockMode(h.GetMode()), Generation: api.Generation(h.GetGeneration()), Until: api.Generation(h.GetUntil()),
		FromUnix: who.SinceUnix, ToUnix: h.GetToUnix(), End: api.EndReason(h.GetEnd()), Delay: time.Duration(h.GetLockDelayNs()),
		EndedBy: h.GetEndedBy(), EndedWhy: h.GetEndedWhy(),
	}
}
