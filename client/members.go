package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(membersPoll):
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
