package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// LockInfo is one lock that is held, waited for or delayed.
type LockInfo struct {
	Path       string
	Mode       api.LockMode // 0 when nobody holds it
	Generation api.Generation
	Holders    []api.Holder
	Waiters    []Waiter
	Delayed    time.Duration // nobody may have it for so long, because a holder failed
	Revoked    string        // why it is being taken from its holders, who have not let go yet; empty if it is not
}

// Waiter is one who waits for a lock.
type Waiter struct {
	api.Holder
	Place   int // 1 is next
	Mode    api.LockMode
	Waiting time.Duration
	// Estimate is how much longer it may be, as in Queued; 0 if the master does not know.
	Estimate time.Duration
	Absent   bool // its connection is broken; its place is kept for a while
}

// Explanation is what an operation on a node would wait for.
type Explanation struct {
	Lock      LockInfo // who holds the lock, and who waits for it
	Sentences []string // the same, and more, for people
	Cachers   []Cacher // whom a change of the node would wait for
}

// Cacher is a session that may have a node in its cache: a change of the node
// waits until it has dropped that, or has ended (Chubby §2.7).
type Cacher struct {
	api.Holder
	Waiting time.Duration // a change has waited for it for so long; 0 if none waits
	AtMost  time.Duration // it has ended after this long, unless it drops it before
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
}

// Status is a cell as its replicas describe themselves.
type Status struct {
	Cell     string
	CellID   api.CellID
	Master   string // its id; empty if there is none
	Epoch    api.Epoch
	Replicas []ReplicaStatus // by id
	Sessions uint64
	Nodes    uint64
	Locks    uint64
}

// ReplicaStatus is one replica of a cell.
type ReplicaStatus struct {
	ID        string // empty if it does not answer, and no other replica knows its address
	Role      string // master, replica or candidate; empty if it does not answer
	Client    string // its address
	Term      uint64
	Last      uint64 // index of the last entry in its log
	Applied   uint64 // index of the last entry applied
	Lag       uint64 // entries applied less than by the replica that is furthest
	Healthy   bool
	Version   string
	DiskFree  int64 // bytes
	StateHash string
	LogStore  string
	Err       error // why nothing more is known of it
}

// Member is one replica of a cell's configuration.
type Member struct {
	ID, Client, Raft, HTTP string
	Voter                  bool
}

// Locks lists the locks at and below a path that are held, waited for or
// delayed; an empty prefix is the whole cell.
func (c *Cell) Locks(ctx context.Context, prefix string) ([]LockInfo, error) {
	if prefix == "" {
		prefix = c.root()
	}
	p, err := c.parse("list locks", prefix)
	if err != nil {
		return nil, err
	}
	var list []LockInfo
	err = c.ask(ctx, "list locks", prefix, func(ctx context.Context, t *target) error {
		reply, err := t.chubby.ListLocks(ctx, &chubbypb.ListLocksRequest{Cell: c.cfg.Cell, Prefix: p.String()})
		list = nil
		for _, l := range reply.GetLocks() {
			list = append(list, lockInfo(l))
		}
		return err
	})
	return list, err
}

func lockInfo(l *chubbypb.LockInfo) LockInfo {
	info := LockInfo{
		Path: l.GetPath(), Mode: api.LockMode(l.GetMode()), Generation: api.Generation(l.GetGeneration()),
		Holders: chubbypb.Holders(l.GetHolders()), Delayed: time.Duration(l.GetDelayedNs()), Revoked: l.GetRevoked(),
	}
	for _, w := range l.GetWaiters() {
		info.Waiters = append(info.Waiters, Waiter{
			Holder: w.GetParty().Holder(), Place: int(w.GetPlace()), Mode: api.LockMode(w.GetMode()),
			Waiting: time.Duration(w.GetWaitingNs()), Estimate: time.Duration(w.GetEstimateNs()), Absent: w.GetAbsent(),
		})
	}
	return info
}

// Sessions lists the sessions of the cell.
func (c *Cell) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var list []SessionInfo
	err := c.ask(ctx, "list sessions", c.root(), func(ctx context.Context, t *target) error {
		reply, err := t.chubby.ListSessions(ctx, &chubbypb.ListSessionsRequest{Cell: c.cfg.Cell})
		list = nil
		for _, s := range reply.GetSessions() {
			list = append(list, SessionInfo{
				Holder: s.GetParty().Holder(), Lease: time.Duration(s.GetLeaseNs()), LeftLeast: time.Duration(s.GetLeftLeastNs()),
				LeftMost: time.Duration(s.GetLeftMostNs()), Handles: int(s.GetHandles()), Locks: int(s.GetLocks()), MayCache: s.GetMayCache(),
			})
		}
		return err
	})
	return list, err
}

// Explain says who holds the lock on a node and who waits for it, who may have
// the node in a cache, and, in sentences, what an operation on it would wait for.
func (c *Cell) Explain(ctx context.Context, path string) (Explanation, error) {
	p, err := c.parse("explain", path)
	if err != nil {
		return Explanation{}, err
	}
	var x Explanation
	err = c.ask(ctx, "explain", path, func(ctx context.Context, t *target) error {
		reply, err := t.chubby.Explain(ctx, &chubbypb.ExplainRequest{Cell: c.cfg.Cell, Path: p.String()})
		x = Explanation{Lock: lockInfo(reply.GetLock()), Sentences: reply.GetExplanation()}
		for _, one := range reply.GetCachers() {
			x.Cachers = append(x.Cachers, Cacher{
				Holder: one.GetParty().Holder(), Waiting: time.Duration(one.GetWaitingNs()), AtMost: time.Duration(one.GetAtMostNs()),
			})
		}
		return err
	})
	return x, err
}

// asked is what one replica answered.
type asked[R any] struct {
	address string
	reply   R
	err     error
}

// everybody asks all the replicas at once, each for at most DialTimeout.
func everybody[R any](ctx context.Context, c *Cell, addresses []string, ask func(ctx context.Context, t *target) (R, error)) []asked[R] {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	answers := make([]asked[R], len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() {
			answers[i].address = address
			t, err := c.pool.get(address)
			if err == nil {
				answers[i].reply, err = ask(ctx, t)
				err = brieflyUnavailable(t.explain(err))
			}
			answers[i].err = err
		})
	}
	all.Wait()
	return answers
}

// members asks the servers for the configuration until one has answered; with
// none it returns what each said.
func (c *Cell) members(ctx context.Context) (servers []string, list []Member, err error) {
	if servers, err = c.finder.addresses(ctx); err != nil {
		return nil, nil, err
	}
	answers := everybody(ctx, c, servers, func(ctx context.Context, t *target) (*chubbypb.MembersReply, error) {
		return t.cell.Members(ctx, &chubbypb.MembersRequest{})
	})
	var said []string
	for _, a := range answers {
		if a.err != nil {
			said = append(said, a.address+": "+brief(a.err))
			continue
		}
		for _, m := range a.reply.GetMembers() {
			list = append(list, Member{ID: m.GetId(), Client: m.GetClient(), Raft: m.GetRaft(), HTTP: m.GetHttp(), Voter: m.GetVoter()})
		}
		return servers, list, nil
	}
	return servers, nil, &api.Error{Code: api.Unavailable, Message: "no server answers: " + strings.Join(said, "; "), Err: ctx.Err()}
}

// Members lists the replicas of the cell's configuration, by id. Any replica can
// answer; there need not be a master.
func (c *Cell) Members(ctx context.Context) ([]Member, error) {
	_, list, err := c.members(ctx)
	var e *api.Error
	if errors.As(err, &e) {
		return nil, about(e, "list members", c.root())
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return list, err
}

// Status asks every replica of the cell about itself, those configured here and
// those they name. Replicas that do not answer are listed with the reason; it
// fails only if none answers.
func (c *Cell) Status(ctx context.Context) (Status, error) {
	servers, members, err := c.members(ctx)
	var e *api.Error
	if errors.As(err, &e) {
		return Status{}, about(e, "ask for status", c.root())
	}
	names := map[string]string{} // id by address
	for _, m := range members {
		names[m.Client] = m.ID
		servers = append(servers, m.Client)
	}
	slices.Sort(servers)
	answers := everybody(ctx, c, slices.Compact(servers), func(ctx context.Context, t *target) (*chubbypb.StatusReply, error) {
		return t.cell.Status(ctx, &chubbypb.StatusRequest{})
	})
	var s Status
	for _, a := range answers {
		s.add(a, names)
	}
	s.finish()
	return s, nil
}

// add takes one replica's answer.
func (s *Status) add(a asked[*chubbypb.StatusReply], names map[string]string) {
	if a.err != nil {
		s.Replicas = append(s.Replicas, ReplicaStatus{ID: names[a.address], Client: a.address, Err: a.err})
		return
	}
	r := a.reply.GetReplica()
	if slices.ContainsFunc(s.Replicas, func(o ReplicaStatus) bool { return o.Err == nil && o.ID == r.GetId() }) {
		return // it has two addresses
	}
	s.Replicas = append(s.Replicas, ReplicaStatus{
		ID: r.GetId(), Role: r.GetRole(), Client: r.GetClient(), Term: r.GetTerm(), Last: r.GetLast(), Applied: r.GetApplied(),
		Healthy: r.GetHealthy(), Version: r.GetVersion(), DiskFree: r.GetDiskFreeBytes(), StateHash: r.GetStateHash(), LogStore: r.GetLogStore(),
	})
	s.Cell, s.CellID = a.reply.GetCell(), api.CellID(a.reply.GetCellId())
	// The cell is what its master says of it; of two that claim to be, the later.
	if epoch := api.Epoch(a.reply.GetEpoch()); r.GetRole() == "master" && epoch >= s.Epoch {
		s.Master, s.Epoch = r.GetId(), epoch
		s.Sessions, s.Nodes, s.Locks = a.reply.GetSessions(), a.reply.GetNodes(), a.reply.GetLocks()
	}
}

// finish works out what takes all the answers.
func (s *Status) finish() {
	var furthest uint64
	for _, r := range s.Replicas {
		furthest = max(furthest, r.Applied)
	}
	for i := range s.Replicas {
		if r := &s.Replicas[i]; r.Err == nil {
			r.Lag = furthest - r.Applied
		}
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaStatus) int { return strings.Compare(a.ID+"\x00"+a.Client, b.ID+"\x00"+b.Client) })
}
