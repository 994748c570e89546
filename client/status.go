package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Status describes a cell, from the answers of its replicas.
type Status struct {
	Cell     string
	CellID   api.CellID
	Master   string // the master's id; empty if it did not answer
	Named    string // the id of the master that replicas name, answering or not; empty if unknown
	Epoch    api.Epoch
	Replicas []ReplicaStatus // by id
	Sessions uint64
	Nodes    uint64
	Locks    uint64
	Level    int // the cell's feature level, by the most advanced answering replica

	Restored *Restoration // the last one, as the master says, or nil
	Acts     []Act        // in progress, as the master says; an outage, as the former master says
}

// Act is an operation of several steps, by an operator or the master, that blocks something until it ends: a
// restore, during which no other can begin, a change of the replicas, or an outage.
type Act struct {
	Kind      string        // restore, joining, leaving or outage
	Replica   string        // joining or leaving, or the former master
	Principal string        // of the operator; empty if the master began it
	Session   api.SessionID // of a restore
	SinceUnix int64         // of the decision, for people
	Sealed    bool          // of a restore: no session can begin before it has ended
	Waits     string        // what its next step waits for, for people; else empty
}

// Restoration is a restore of a cell from a backup. Its times are for people.
type Restoration struct {
	AtUnix    int64
	Counter   uint64 // the fencing counter then: no earlier token is above it
	Index     uint64 // of the backup's last log entry
	TakenUnix int64  // of the backup
	Recovered string // the replica whose data directory it is from, of a cell that had lost its majority; empty for a master's backup
}

// ReplicaStatus is one replica of a cell.
type ReplicaStatus struct {
	ID        string // empty without an answer, if no other replica knows its address
	Role      string // master, replica or candidate; empty without an answer
	Client    string // its address
	Term      uint64
	Last      uint64 // index of its last log entry
	Applied   uint64 // index of its last applied entry
	Lag       uint64 // entries behind the most advanced replica
	Healthy   bool
	Version   string
	DiskFree  int64 // bytes
	StateHash string
	LogStore  string
	MaxLevel  int   // the newest feature level it knows
	Err       error // why the rest is unknown
}

// Member is one replica of a cell's configuration.
type Member struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Raft   string `json:"raft"`
	HTTP   string `json:"http"`
	Voter  bool   `json:"voter"`
	Phase  string `json:"phase,omitempty"` // joining, leaving, SpareMember, or empty (see ChangeMembers)
	Waits  string `json:"waits,omitempty"` // why it makes no progress, for people; empty if it does, or without a master's answer
}

type replicaView struct {
	address string
	status  *chubbypb.StatusReply
	members []Member
	err     error
	refused bool // connection refused: nothing listens there
}

func (v replicaView) isMaster() bool { return v.status.GetReplica().GetRole() == "master" }

// compareAge orders views: a later term is newer, in one term the master's is, and else the one with more
// applied entries.
func (v replicaView) compareAge(other replicaView) int {
	rank := func(v replicaView) uint64 {
		if v.isMaster() {
			return 1
		}
		return 0
	}
	mine, theirs := v.status.GetReplica(), other.status.GetReplica()
	return cmp.Or(cmp.Compare(mine.GetTerm(), theirs.GetTerm()), cmp.Compare(rank(v), rank(other)), cmp.Compare(mine.GetApplied(), theirs.GetApplied()))
}

// viewReplica asks one replica, for at most DialTimeout. Locate comes first, as another cell's server rejects
// it.
func viewReplica(ctx context.Context, c *Cell, address string) replicaView {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	v := replicaView{address: address}
	t, giveBack, err := c.pool.borrow(address)
	if err == nil {
		err = t.explainError(v.ask(ctx, t, c.cfg.Cell))
		giveBack()
	}
	v.refused = errors.Is(err, syscall.ECONNREFUSED)
	v.err = withoutCause(err)
	return v
}

func (v *replicaView) ask(ctx context.Context, t *target, cell string) error {
	if _, err := t.data.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: cell}); err != nil {
		return err
	}
	members, err := t.data.cell.Members(ctx, &chubbypb.MembersRequest{})
	if err != nil {
		return err
	}
	v.members = membersOf(members)
	v.status, err = t.data.cell.Status(ctx, &chubbypb.StatusRequest{})
	return err
}

// survey asks the servers of the cell, and the replicas that they name, all at once, until a view is enough.
// If no replica of the cell answers, it fails with their reasons. Its goroutines have ended when it returns.
func (c *Cell) survey(ctx context.Context, op string, enough func(replicaView) bool) ([]replicaView, error) {
	servers, err := c.locator.addresses(ctx)
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			return nil, withOperation(e, op, rootPath(c.cfg))
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	arrived := make(chan replicaView)
	asked := map[string]bool{}
	// Close connections to former members.
	defer func() { c.pool.retain(append(slices.Collect(maps.Keys(asked)), c.locator.knownAddresses()...)) }()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ask := func(address string) {
		if asked[address] {
			return
		}
		asked[address] = true
		running.Go(func() {
			v := viewReplica(ctx, c, address)
			select {
			case arrived <- v:
			case <-ctx.Done():
			}
		})
	}
	for _, address := range servers {
		ask(address)
	}
	var views []replicaView
	answered := false
	for len(views) < len(asked) {
		v := nextView(ctx, arrived, asked, views)
		views = append(views, v)
		answered = answered || v.err == nil
		if v.err == nil && enough(v) {
			return views, nil
		}
		for _, m := range v.members {
			if m.Phase != SpareMember { // a spare serves no client yet
				ask(m.Client)
			}
		}
	}
	if !answered {
		return nil, noAnswerError(ctx, c.cfg, op, views)
	}
	return views, nil
}

// nextView waits for a view. After ctx it returns a view without an answer.
func nextView(ctx context.Context, arrived <-chan replicaView, asked map[string]bool, views []replicaView) replicaView {
	select {
	case v := <-arrived:
		return v
	case <-ctx.Done():
	}
	for address := range asked {
		if !slices.ContainsFunc(views, func(v replicaView) bool { return v.address == address }) {
			return replicaView{address: address, err: &api.Error{Code: api.Unavailable, Message: "no answer", Err: contextError(ctx)}}
		}
	}
	return replicaView{}
}

func noAnswerError(ctx context.Context, cfg Config, op string, views []replicaView) error {
	slices.SortFunc(views, func(a, b replicaView) int { return strings.Compare(a.address, b.address) })
	var said, addresses []string
	refused := true
	for _, v := range views {
		var e *api.Error
		if errors.As(v.err, &e) && e.Code == api.WrongCell {
			return withOperation(e, op, rootPath(cfg))
		}
		refused = refused && v.refused
		said, addresses = append(said, v.address+": "+brief(v.err)), append(addresses, v.address)
	}
	e := &api.Error{Code: api.Unavailable, Message: "no server answers: " + strings.Join(said, "; ")}
	if ctx.Err() != nil {
		e.Err = contextError(ctx)
	}
	if refused && len(views) > 0 {
		e = refusedByAll(cfg.Cell, addresses, 0)
	}
	return withOperation(e, op, rootPath(cfg))
}

// Members lists the replicas of the cell's configuration, by id, as the master says; without its answer, as
// the most advanced replica says.
func (c *Cell) Members(ctx context.Context) ([]Member, error) {
	views, err := c.survey(ctx, "list members", replicaView.isMaster)
	if err != nil {
		return nil, err
	}
	list := slices.MaxFunc(views, replicaView.compareAge).members
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// Status asks every replica of the cell about itself, those configured here and those that the replicas name.
// It lists replicas that do not answer within Config.DialTimeout with the reason. It fails only if none
// answers.
func (c *Cell) Status(ctx context.Context) (Status, error) {
	views, err := c.survey(ctx, "ask for status", func(replicaView) bool { return false })
	if err != nil {
		return Status{}, err
	}
	names := map[string]string{} // id by address
	for _, v := range views {
		for _, m := range v.members {
			names[m.Client] = m.ID
		}
	}
	var s Status
	var named api.Epoch
	for _, v := range views {
		s.addView(v, names)
		if epoch := api.Epoch(v.status.GetEpoch()); v.status.GetMaster() != "" && epoch >= named {
			s.Named, named = v.status.GetMaster(), epoch
		}
	}
	s.compareReplicas()
	return s, nil
}

func (s *Status) addView(v replicaView, names map[string]string) {
	if v.err != nil {
		s.Replicas = append(s.Replicas, ReplicaStatus{ID: names[v.address], Client: v.address, Err: v.err})
		return
	}
	r := v.status.GetReplica()
	if slices.ContainsFunc(s.Replicas, func(o ReplicaStatus) bool { return o.Err == nil && o.ID == r.GetId() }) {
		return // the replica has two addresses
	}
	s.Replicas = append(s.Replicas, ReplicaStatus{
		ID: r.GetId(), Role: r.GetRole(), Client: r.GetClient(), Term: r.GetTerm(), Last: r.GetLast(), Applied: r.GetApplied(),
		Healthy: r.GetHealthy(), Version: r.GetVersion(), DiskFree: r.GetDiskFreeBytes(), StateHash: r.GetStateHash(), LogStore: r.GetLogStore(),
		MaxLevel: int(r.GetMaxLevel()),
	})
	s.Cell, s.CellID = v.status.GetCell(), api.CellID(v.status.GetCellId())
	s.Level = max(s.Level, int(v.status.GetLevel()))
	// The master describes the cell. Of two claims, the later epoch's counts.
	if epoch := api.Epoch(v.status.GetEpoch()); r.GetRole() == "master" && epoch >= s.Epoch {
		s.Master, s.Epoch = r.GetId(), epoch
		s.Sessions, s.Nodes, s.Locks = v.status.GetSessions(), v.status.GetNodes(), v.status.GetLocks()
		s.Acts = nil
		if r := v.status.GetRestored(); r != nil {
			s.Restored = &Restoration{AtUnix: r.GetAtUnix(), Counter: r.GetCounter(), Index: r.GetIndex(), TakenUnix: r.GetTakenUnix(), Recovered: r.GetRecovered()}
		}
	}
	if s.Master != "" && s.Master != r.GetId() {
		return // a master ends an outage
	}
	for _, a := range v.status.GetActs() {
		s.Acts = append(s.Acts, Act{
			Kind: a.GetKind(), Replica: a.GetReplica(), Principal: a.GetPrincipal(), Session: api.SessionID(a.GetSession()),
			SinceUnix: a.GetSinceUnix(), Sealed: a.GetSealed(), Waits: a.GetWaits(),
		})
	}
}

// compareReplicas sets and sorts what depends on all answers.
func (s *Status) compareReplicas() {
	var furthest uint64
	for _, r := range s.Replicas {
		furthest = max(furthest, r.Applied)
	}
	for i := range s.Replicas {
		if r := &s.Replicas[i]; r.Err == nil {
			r.Lag = furthest - r.Applied
		}
	}
	// Replicas with only an address come last.
	slices.SortFunc(s.Replicas, func(a, b ReplicaStatus) int {
		if (a.ID == "") != (b.ID == "") {
			return cmp.Compare(b.ID, a.ID)
		}
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Client, b.Client))
	})
}
