package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Overview is what a cell does at one moment, as its master sees it.
type Overview struct {
	Epoch api.Epoch
	Whole bool // the client may see everything: it is an operator, or the cell asks nobody who he is

	// Backlog and Counts are zero unless Whole. Counts grow while one replica is the master of an epoch, and begin
	// anew with another: to have rates, compare two of one epoch. They are "calls", and by method "call:Acquire" and so on;
	// "commands" and "entries" of the Raft log; "grants" of locks that were waited for; "leases" extended; "sessions-begun" and
	// "sessions-ended"; "invalidations" of clients' caches; "events-dropped".
	Backlog Backlog
	Counts  map[string]uint64

	Waits   []LockInfo // the locks that somebody has waited for longest, the longest first
	Holdups []Holdup   // the changes that have waited for clients' caches longest, the longest first

	MoreWaits, MoreHoldups int // besides those listed

	// Takeovers are how the master became it, the last time first, and before, since its process began: at most 8; none unless Whole.
	Takeovers []Takeover
}

// Takeover is how a replica became the master.
type Takeover struct {
	Epoch       api.Epoch
	ElectedUnix int64           // by its clock, for display
	Sessions    int             // that outlived the master before
	Phases      []TakeoverPhase // by their ends
}

// TakeoverPhase is a part of a take-over. The names are those of the metric chubby_takeover_phase_seconds: "election", from the last
// message of the master before until this one was elected; "log", until everything in the log was applied, and the epoch was in it, which
// proves the election; "leases", until every session had its lease anew. Then the master serves, and beside each other begin "first_lease",
// until the first lease was extended, if one was before all sessions that outlived the master had ended; "sessions", until the clients of
// all sessions had returned, or their sessions had ended; "caches", until no client used what an earlier master let it cache, for which
// changes wait; and "first_grant", until a lock was granted. Some may be missing, and newer masters may have others.
type TakeoverPhase struct {
	Name       string
	Begin, End time.Duration // since the election; negative before it
	Unfinished bool          // it goes on, and End is now
}

// Backlog is how much waits in the master, or is kept there for clients.
type Backlog struct {
	Waiters   int `json:"waiters"`    // requests that wait for locks
	Changes   int `json:"changes"`    // names whose changes wait for clients to drop what they have cached
	Delays    int `json:"delays"`     // locks that nobody gets because of a lock-delay
	Handles   int `json:"handles"`    // that clients have open
	Mail      int `json:"mail_bytes"` // bytes of events that clients have not acknowledged
	Copies    int `json:"copy_bytes"` // bytes in which the master remembers what clients may have cached
	Proposals int `json:"proposals"`  // commands that wait to be put into the log
}

// Holdup is a change that waits until clients have dropped what they have cached (Chubby §2.7).
type Holdup struct {
	Path     string        // whose changes wait; that of the root directory: every change waits, after a fail-over
	Waiting  time.Duration // since the first of the clients was told
	Slow     []api.Holder  // sessions that it waits for, at most 10
	MoreSlow int           // besides those listed
}

// Overview says what the cell does, and lists what has waited longest: of locks and of changes at most as many as most, which is
// at most api.MaxListed; 0 is 20. Where clients have to say who they are, it lists what the client may read, and the numbers
// of the whole cell are for operators.
func (c *Cell) Overview(ctx context.Context, most int) (Overview, error) {
	var o Overview
	err := c.ask(ctx, "overview", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.Overview(ctx, &chubbypb.OverviewRequest{Cell: c.cfg.Cell, Most: uint32(min(max(most, 0), api.MaxListed))})
		b := reply.GetBacklog()
		o = Overview{
			Epoch: api.Epoch(reply.GetEpoch()), Whole: reply.GetWhole(), Counts: reply.GetCounts(),
			Backlog: Backlog{
				Waiters: int(b.GetWaiters()), Changes: int(b.GetChanges()), Delays: int(b.GetDelays()), Handles: int(b.GetHandles()),
				Mail: int(b.GetMailBytes()), Copies: int(b.GetCopyBytes()), Proposals: int(b.GetProposals()),
			},
			MoreWaits: int(reply.GetMoreWaits()), MoreHoldups: int(reply.GetMoreHoldups()),
		}
		for _, l := range reply.GetWaits() {
			o.Waits = append(o.Waits, lockInfo(l))
		}
		for _, one := range reply.GetTakeovers() {
			o.Takeovers = append(o.Takeovers, takeover(one))
		}
		for _, h := range reply.GetHoldups() {
			one := Holdup{Path: h.GetPath(), Waiting: time.Duration(h.GetWaitingNs()), MoreSlow: int(h.GetMoreSlow())}
			for _, slow := range h.GetSlow() {
				one.Slow = append(one.Slow, slow.Holder())
			}
			o.Holdups = append(o.Holdups, one)
		}
		return err
	})
	return o, err
}

// takeover decodes how a replica became the master.
func takeover(t *chubbypb.Takeover) Takeover {
	decoded := Takeover{Epoch: api.Epoch(t.GetEpoch()), ElectedUnix: t.GetElectedUnix(), Sessions: int(t.GetSessions())}
	for _, p := range t.GetPhases() {
		decoded.Phases = append(decoded.Phases, TakeoverPhase{Name: p.GetName(), Begin: time.Duration(p.GetBeginNs()), End: time.Duration(p.GetEndNs()), Unfinished: p.GetUnfinished()})
	}
	return decoded
}
