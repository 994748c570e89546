package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// MemberChange is a change of the replicas of a cell: one is added, one removed, or both, and then the second
// leaves when the first has joined.
type MemberChange struct {
	Add    string // the id of a replica that waits to be added; no replica of the cell has ever had it
	Raft   string // the host:port at which the others reach it
	Remove string // the id of a replica of the cell
	Keep   string // alone: the id of a replica that is leaving, which is to stay
	Spare  bool   // Add stands by, and takes the place of a replica that is dead for long (chubbyd's replace-after); nothing is removed
}

// SpareMember is the phase of a replica that stands by. It is none of the cell's yet: it has nothing, and serves nobody.
const SpareMember = "spare"

// membersPoll is the time between two questions how far a change has come.
const membersPoll = 250 * time.Millisecond

// ChangeMembers changes the replicas of the cell, as an operator's act. One change is under way at a time. The master takes its
// steps: a replica is added without a vote, is given a vote when it holds the log, and only then the one that it replaces leaves; another
// master goes on where one has stopped. A replica that is still joining may be removed, which ends the change, and one that is still leaving may be kept.
//
// A replica is not removed, nor replaced, if too few of those that would stay answer: then InvalidArgument is the error.
//
// With progress it returns when the change is complete, and calls progress with the cell's replicas until then, the last time with how they are
// afterwards. Without, or when ctx ends, the change goes on: Cell.Members says how far it has come.
//
// The errors are PermissionDenied; Unavailable if the replica does not wait to be added at its address, or another change is under way; Exists for an
// id or an address that is used; NotFound for one that is no replica; InvalidArgument; and those of every change.
func ChangeMembers(ctx context.Context, c *Client, change MemberChange, progress func([]Member)) error {
	const op = "change the members"
	err := c.mutate(ctx, mutation{op: op, path: rootPath(c.cell.cfg), send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.data.chubby.ChangeMembers(ctx, &chubbypb.ChangeMembersRequest{Caller: caller, Mutation: m, Add: change.Add, Raft: change.Raft, Remove: change.Remove, Spare: change.Spare, Keep: change.Keep})
		return err
	}})
	for err == nil && progress != nil {
		var now []Member
		_, err = c.cell.dispatcher.dispatch(ctx, call{op: op, path: rootPath(c.cell.cfg), session: c.session, class: classUnlimited, attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error {
			reply, err := t.data.cell.Members(ctx, &chubbypb.MembersRequest{})
			now = membersOf(reply)
			return err
		}})
		if err != nil {
			return err
		}
		progress(now)
		changing := false
		for _, m := range now {
			changing = changing || m.Phase != "" && m.Phase != SpareMember
		}
		if !changing {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(membersPoll):
		}
	}
	return err
}

// membersOf decodes a list of members.
func membersOf(reply *chubbypb.MembersReply) (list []Member) {
	for _, m := range reply.GetMembers() {
		list = append(list, Member{ID: m.GetId(), Client: m.GetClient(), Raft: m.GetRaft(), HTTP: m.GetHttp(), Voter: m.GetVoter(), Phase: m.GetPhase(), Waits: m.GetWaits()})
	}
	return list
}
