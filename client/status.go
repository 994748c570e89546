package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

type replicaView struct {
	address string
	status  Status // with one row
	members []Member
	err     error
	refused bool // connection refused: nothing listens there
}

// replica returns what the replica says of itself; nothing without an answer.
func (v replicaView) replica() (r ReplicaStatus) {
	if v.err == nil {
		r = v.status.Replicas[0]
	}
	return r
}

func (v replicaView) isMaster() bool { return v.replica().Role == "master" }

// compareAge orders views: a later term is newer, in one term the master's is, and else the one with more
// applied entries.
func (v replicaView) compareAge(other replicaView) int {
	rank := func(v replicaView) uint64 {
		if v.isMaster() {
			return 1
		}
		return 0
	}
	mine, theirs := v.replica(), other.replica()
	return cmp.Or(cmp.Compare(mine.Term, theirs.Term), cmp.Compare(rank(v), rank(other)), cmp.Compare(mine.Applied, theirs.Applied))
}

// viewReplica asks one replica, for at most DialTimeout. Locate comes first, as another cell's server rejects
// it.
func viewReplica(whole context.Context, c *Cell, address string) replicaView {
	ctx, cancel := context.WithTimeout(whole, c.cfg.DialTimeout)
	defer cancel()
	v := replicaView{address: address}
	t, giveBack, err := c.pool.borrow(address)
	if err == nil {
		err = t.explainError(v.ask(ctx, t, c.cfg.Cell))
		giveBack()
	}
	v.refused = errors.Is(err, syscall.ECONNREFUSED)
	if v.err = withoutCause(err); err != nil && whole.Err() != nil {
		v.err = &api.Error{Code: api.Unavailable, Message: "no answer", Err: contextError(whole)}
	}
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
	v.members = chubbypb.Records[Member](members.GetMembers())
	status, err := t.data.cell.Status(ctx, &chubbypb.StatusRequest{})
	v.status = chubbypb.Record[Status](status)
	v.status.Replicas = []ReplicaStatus{chubbypb.Record[ReplicaStatus](status.GetReplica())}
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
	taken := 0
	defer func() {
		for cancel(); taken < len(asked); taken++ {
			<-arrived
		}
	}()
	ask := func(address string) {
		if !asked[address] {
			asked[address] = true
			go func() { arrived <- viewReplica(ctx, c, address) }()
		}
	}
	for _, address := range servers {
		ask(address)
	}
	var views []replicaView
	answered := false
	for taken < len(asked) {
		v := <-arrived
		taken, views = taken+1, append(views, v)
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
		addView(&s, v, names)
		if v.status.Master != "" && v.status.Epoch >= named {
			s.Named, named = v.status.Master, v.status.Epoch
		}
	}
	compareReplicas(s.Replicas)
	return s, nil
}

func addView(s *Status, v replicaView, names map[string]string) {
	if v.err != nil {
		s.Replicas = append(s.Replicas, ReplicaStatus{ID: names[v.address], Client: v.address, Err: v.err})
		return
	}
	r, says := v.replica(), v.status
	if slices.ContainsFunc(s.Replicas, func(o ReplicaStatus) bool { return o.Err == nil && o.ID == r.ID }) {
		return // the replica has two addresses
	}
	s.Replicas = append(s.Replicas, r)
	s.Cell, s.CellID = says.Cell, says.CellID
	s.Level = max(s.Level, says.Level)
	// The master describes the cell. Of two claims, the later epoch's counts.
	if v.isMaster() && says.Epoch >= s.Epoch {
		s.Master, s.Epoch = r.ID, says.Epoch
		s.Sessions, s.Nodes, s.Locks = says.Sessions, says.Nodes, says.Locks
		s.Acts = nil
		s.Restored = cmp.Or(says.Restored, s.Restored)
	}
	if s.Master == "" || s.Master == r.ID { // a master ends an outage
		s.Acts = append(s.Acts, says.Acts...)
	}
}

// compareReplicas sets and sorts what depends on all answers.
func compareReplicas(list []ReplicaStatus) {
	var furthest uint64
	for _, r := range list {
		furthest = max(furthest, r.Applied)
	}
	for i := range list {
		if r := &list[i]; r.Err == nil {
			r.Lag = furthest - r.Applied
		}
	}
	// Replicas with only an address come last.
	slices.SortFunc(list, func(a, b ReplicaStatus) int {
		if (a.ID == "") != (b.ID == "") {
			return cmp.Compare(b.ID, a.ID)
		}
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Client, b.Client))
	})
}

// MemberChange is a change of the replicas of a cell: one is added, one removed, or both; then the second
// leaves after the first has joined.
type MemberChange struct {
	Add    string // id of a replica that waits to be added; no replica of the cell ever had it
	Raft   string // host:port for the other replicas
	Remove string // the id of a replica of the cell
	Keep   string // alone: id of a leaving replica, which should stay
	Spare  bool   // Add stands by to replace a replica that is dead for long (chubbyd's replace-after); nothing is removed
}

// SpareMember is the phase of a standby replica. It is not yet part of the cell: it has no data, and serves
// no client.
const SpareMember = "spare"

const membersPoll = 250 * time.Millisecond

const changeMembers = "change the members"

// ChangeMembers changes the replicas of the cell, as an operator's act. One change runs at a time. The master
// adds a replica without a vote, gives it a vote when it holds the log, and only then removes the replaced
// one; after a fail-over the next master continues. A joining replica may be removed, which ends the change,
// and a leaving one may be kept.
//
// If too few of the remaining replicas answer, the error is InvalidArgument, and no replica is removed or
// replaced.
//
// With progress it returns when the change is complete, and meanwhile calls progress with the cell's
// replicas, the last time with the result. If another operator takes the change back, the error is Cancelled.
// Without progress, or when ctx ends, the change goes on: Cell.Members shows its state.
//
// The other errors are PermissionDenied; Unavailable if the replica does not wait to be added at its address,
// or another change is running; Exists for a used id or address; NotFound for an id of no replica;
// InvalidArgument; and those of every change.
func ChangeMembers(ctx context.Context, c *Client, change MemberChange, progress func([]Member)) error {
	err := c.mutate(ctx, mutation{op: changeMembers, path: rootPath(c.cell.cfg), send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.data.chubby.ChangeMembers(ctx, &chubbypb.ChangeMembersRequest{Caller: caller, Mutation: m, Add: change.Add, Raft: change.Raft, Remove: change.Remove, Spare: change.Spare, Keep: change.Keep})
		return err
	}})
	if err != nil || progress == nil {
		return err
	}
	return AwaitMembers(ctx, c, change, progress)
}

// AwaitMembers waits for the end of a change begun without progress, as ChangeMembers does with progress.
func AwaitMembers(ctx context.Context, c *Client, change MemberChange, progress func([]Member)) error {
	for {
		var now []Member
		_, err := c.cell.dispatcher.dispatch(ctx, call{op: changeMembers, path: rootPath(c.cell.cfg), session: c.session, class: classUnlimited, attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error {
			reply, err := t.data.cell.Members(ctx, &chubbypb.MembersRequest{})
			now = chubbypb.Records[Member](reply.GetMembers())
			return err
		}})
		if err != nil {
			return err
		}
		progress(now)
		if done, err := change.settled(now); done || err != nil {
			return err
		}
		if sleep(ctx, membersPoll); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// settled reports whether a change is complete, by the cell's present replicas. It looks only at those of the
// change, since the next may have begun. It returns an error if the change was taken back.
func (change MemberChange) settled(now []Member) (bool, error) {
	there := map[string]bool{}
	for _, m := range now {
		there[m.ID] = true
		if slices.Contains([]string{change.Add, change.Remove, change.Keep}, m.ID) && m.Phase != "" && m.Phase != SpareMember {
			return false, nil
		}
	}
	switch {
	case change.Remove != "" && there[change.Remove]:
		return false, takenBack(change.Remove, "stays")
	case change.Add != "" && !there[change.Add]:
		return false, takenBack(change.Add, "has left")
	case change.Keep != "" && !there[change.Keep]:
		return false, takenBack(change.Keep, "has left")
	}
	return true, nil
}

func takenBack(id, what string) error {
	return &api.Error{Code: api.Cancelled, Op: changeMembers, Message: fmt.Sprintf("another operator took the change back: replica %s %s", id, what)}
}
