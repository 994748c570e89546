package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Overview is a cell's work at one moment, as its master sees it.
type Overview struct {
	Epoch api.Epoch
	Whole bool // the client may see everything: it is an operator, or the cell does not identify clients

	// Backlog and Counts are zero unless Whole. Counts grow while one replica is the master of an epoch, and
	// then begin anew: for rates, compare two of one epoch. They are "calls", and by method "call:Acquire"
	// and so on; "commands" and "entries" of the Raft log; "grants" of locks after a wait; "leases" extended;
	// "sessions-begun" and "sessions-ended"; "invalidations" of clients' caches; "events-dropped".
	Backlog Backlog
	Counts  map[string]uint64

	Waits   []LockInfo // the locks with the longest waits, the longest first
	Holdups []Holdup   // the changes with the longest waits for clients' caches, the longest first

	MoreWaits, MoreHoldups int // besides those listed

	// Takeovers are this master's take-overs since its process began, the last first: at most 8; none unless
	// Whole.
	Takeovers []Takeover
}

// Takeover is how a replica became the master.
type Takeover struct {
	Epoch       api.Epoch
	ElectedUnix int64           // by its clock, for display
	Sessions    int             // that outlived the previous master
	Phases      []TakeoverPhase // by end
}

// TakeoverPhase is a part of a take-over. The names are those of the metric chubby_takeover_phase_seconds:
// "election", from the previous master's last message to this one's election; "log", until everything in the
// log was applied, with the epoch, which proves the election; "leases", until every session had a new lease.
// Then the master serves, and these begin together: "first_lease", until the first lease was extended, if
// that came before all older sessions had ended; "sessions", until the clients of all sessions had returned,
// or their sessions had ended; "caches", until no client used cached data of an earlier master, for which
// changes wait; and "first_grant", until a lock was granted. Some may be missing, and newer masters may have
// others.
type TakeoverPhase struct {
	Name       string
	Begin, End time.Duration // since the election; negative before it
	Unfinished bool          // in progress, and End is now
}

// Backlog is the waiting work in the master, and its state for clients.
type Backlog struct {
	Waiters   int `json:"waiters"`    // requests that wait for locks
	Changes   int `json:"changes"`    // names whose changes wait for clients to drop cached data
	Delays    int `json:"delays"`     // locks blocked by a lock-delay
	Handles   int `json:"handles"`    // open at clients
	Mail      int `json:"mail_bytes"` // bytes of unacknowledged events
	Copies    int `json:"copy_bytes"` // bytes of the record of clients' cached data
	Proposals int `json:"proposals"`  // commands that wait for the log
}

// Holdup is a change that waits until clients have dropped cached data (Chubby §2.7).
type Holdup struct {
	Path     string        // whose changes wait; the root directory: every change waits, after a fail-over
	Waiting  time.Duration // since the notice to the first client
	Slow     []api.Holder  // sessions waited for, at most 10
	MoreSlow int           // besides those listed
}

// Overview returns the cell's work, and its longest waits. The parameter most limits the locks, and the
// changes, up to api.MaxListed; 0 is 20. Where clients identify themselves, it lists what the client may
// read, and the numbers of the whole cell are for operators.
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

func takeover(t *chubbypb.Takeover) Takeover {
	decoded := Takeover{Epoch: api.Epoch(t.GetEpoch()), ElectedUnix: t.GetElectedUnix(), Sessions: int(t.GetSessions())}
	for _, p := range t.GetPhases() {
		decoded.Phases = append(decoded.Phases, TakeoverPhase{Name: p.GetName(), Begin: time.Duration(p.GetBeginNs()), End: time.Duration(p.GetEndNs()), Unfinished: p.GetUnfinished()})
	}
	return decoded
}
