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
	Mode       api.LockMode // 0 if not held
	Generation api.Generation
	Holders    []api.Holder  // at most api.MaxListed of them
	Waiters    []Waiter      // the first api.MaxListed
	Delayed    time.Duration // blocked for so long, because a holder failed
	Revoked    string        // why its holders must release it, which they have not done yet; else empty

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
	Absent   bool // its connection is broken; it keeps its position for a while
}

// Explanation is what an operation on a node would wait for.
type Explanation struct {
	Lock      LockInfo // holders and waiters of the lock
	Sentences []string // the same, and more, as text for people
	Cachers   []Cacher // sessions that a change of the node would wait for, longest wait first; at most api.MaxListed

	MoreCachers int // besides those listed
}

// Cacher is a session that may have a node in its cache: a change of the node waits until the session has
// dropped it, or has ended (Chubby §2.7).
type Cacher struct {
	api.Holder
	Waiting time.Duration // how long a change has waited for it, or 0
	AtMost  time.Duration // by then it has dropped the node, or has ended
}

// SessionInfo is one session of a cell.
type SessionInfo struct {
	api.Holder
	Lease     time.Duration // the length granted
	LeftLeast time.Duration // it lives at least this long
	LeftMost  time.Duration // and ends after at most this long, unless extended
	Handles   int
	Locks     int
	MayCache  bool
	Unheard   bool // since the last fail-over; it ends with what is left, unless its client returns
}

// History is a node's recent lock holdings. The cell keeps the last ones for as long as the node exists.
type History struct {
	Path        string
	Holdings    []api.Holding // ended ones, the latest last; then current ones, at most api.MaxListed
	MoreHolders int           // current ones besides those listed
}

// Overlap returns two holdings that overlap although one was exclusive, if any. The fencing tokens decide,
// and no clock. If it finds two, the cell is at fault: keep the data of its replicas.
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

// Explain names the holders and waiters of a node's lock, and the sessions that may cache the node, and says,
// in sentences, what an operation on it would wait for. Where clients identify themselves, it takes the right
// to read the node, or to be an operator.
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

// History returns the holders of a node's lock, past and present: from when to when, and why each holding
// ended. See History.Overlap. It takes the right that Explain takes. The errors are NotFound for an absent
// node, and Unavailable before the cell's upgrade to feature level 3 is finished.
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

func holding(h *chubbypb.Holding) api.Holding {
	who := h.GetParty().Holder()
	return api.Holding{
		Session: who.Session, Principal: who.Principal, Host: who.Host, PID: who.PID, Reason: who.Reason,
		Mode: api.LockMode(h.GetMode()), Generation: api.Generation(h.GetGeneration()), Until: api.Generation(h.GetUntil()),
		FromUnix: who.SinceUnix, ToUnix: h.GetToUnix(), End: api.EndReason(h.GetEnd()), Delay: time.Duration(h.GetLockDelayNs()),
		EndedBy: h.GetEndedBy(), EndedWhy: h.GetEndedWhy(),
	}
}
