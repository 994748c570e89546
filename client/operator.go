package client

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

const noReason = "no reason given"

func checkReason(reason, op, path string) error {
	if len(reason) <= api.MaxReason {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: op, Path: path,
		Message: fmt.Sprintf("the reason is %d bytes long; at most %d are allowed", len(reason), api.MaxReason)}
}

// EndSession ends another client's session, as an operator's act, for a reason of at most api.MaxReason
// bytes, which that client receives. It returns once the end has begun: the sequencers of its locks are
// invalid, and its calls are refused. The locks become free when their owner has released them, or lease and
// lock-delays have passed (decision 10). The errors are SessionExpired if the caller's own session is gone,
// NotFound for an absent session, InvalidArgument for the caller's own, which Close ends, and
// PermissionDenied.
func (c *Client) EndSession(ctx context.Context, id api.SessionID, reason string) error {
	op := "end session " + id.String()
	switch id {
	case 0:
		return &api.Error{Code: api.NotFound, Op: "end session", Path: id.String(), Message: "no session has the number 0; see chubbyctl session ls"}
	case c.Session():
		return &api.Error{Code: api.InvalidArgument, Op: "end session", Path: id.String(), Message: "that is this client's own session; Close ends it"}
	}
	if err := checkReason(reason, op, rootPath(c.cell.cfg)); err != nil {
		return err
	}
	if reason == "" {
		reason = noReason
	}
	return c.mutate(ctx, mutation{op: op, path: rootPath(c.cell.cfg),
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			_, err := t.data.chubby.EndSession(ctx, &chubbypb.EndSessionRequest{Caller: caller, Mutation: m, Target: uint64(id), Reason: reason})
			return err
		}})
}

// BreakLock takes the lock on a node away from its holders, as an operator's act, for a reason of 1 to
// api.MaxReason bytes, which they receive. Their sequencers become invalid at once; the lock is free when
// they have released it, or their lease and lock-delay have passed (decision 10). With now it is free at
// once, and two clients may then believe that they hold it.
func (c *Client) BreakLock(ctx context.Context, path, reason string, now bool) error {
	p, err := c.cell.parsePath("break the lock", path)
	if err != nil {
		return err
	}
	if reason == "" {
		return &api.Error{Code: api.InvalidArgument, Op: "break the lock", Path: path, Message: "the reason is empty; say why, those who held the lock are told"}
	}
	if err := checkReason(reason, "break the lock", path); err != nil {
		return err
	}
	return c.mutate(ctx, mutation{op: "break the lock", path: path,
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			_, err := t.data.chubby.BreakLock(ctx, &chubbypb.BreakLockRequest{Caller: caller, Mutation: m, Path: p.String(), Reason: reason, Now: now})
			return err
		}})
}
