package client

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

const noReason = "no reason given"

func checkReason(reason, op, path string) error {
	if len(reason) <= api.MaxReason {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: op, Path: path, Message: longReason(reason)}
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

// FinishUpgrade raises the feature level of the cell to the newest that its replicas know, as an operator's
// act. The master asks all of them first. If one does not answer, or does not know that level, nothing
// changes, and the error is Unavailable and names each; the Upgrade is returned too. Nothing changes either
// if the cell already has that level. Afterwards no replica can go back to a binary without the level. The
// other errors are PermissionDenied and those of every change.
//
// A replica in without need not answer: it is permanently lost, and will be replaced (ChangeMembers). If it
// returns with a binary without the level, it cannot take part any more.
func (c *Client) FinishUpgrade(ctx context.Context, without ...string) (Upgrade, error) {
	const op = "finish the upgrade"
	var u Upgrade
	err := c.mutate(ctx, mutation{op: op, path: rootPath(c.cell.cfg),
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			reply, err := t.data.chubby.FinishUpgrade(ctx, &chubbypb.FinishUpgradeRequest{Caller: caller, Mutation: m, Without: without})
			if err != nil {
				return err
			}
			u = chubbypb.Record[Upgrade](reply)
			return nil
		}})
	if missing := missingFrom(u, without); err == nil && missing != "" {
		err = &api.Error{Code: api.Unavailable, Op: op, Path: rootPath(c.cell.cfg), Message: missing}
	}
	return u, err
}

// missingFrom lists the members not known to know the newest level, or "". A silent one may know a newer one.
func missingFrom(u Upgrade, without []string) string {
	var which []string
	for _, m := range u.Members {
		switch {
		case m.MaxLevel == 0 && slices.Contains(without, m.ID):
		//mutant: case m.MaxLevel == 0 && u.Level < u.Newest: //by TestFinishNeedsEveryAnswer of ./cell
		case m.MaxLevel == 0:
			which = append(which, fmt.Sprintf("%s does not answer", m.ID))
		case m.MaxLevel < u.Newest:
			which = append(which, fmt.Sprintf("%s knows feature levels up to %d", m.ID, m.MaxLevel))
		}
	}
	if len(which) == 0 {
		return ""
	}
	return fmt.Sprintf("the cell stays at feature level %d, and not every replica is known to know level %d: %s; start every replica with the new version first; one that is lost for good can be left out (--without)", u.Level, u.Newest, strings.Join(which, ", "))
}

// Backup writes a backup of everything the cell replicates, as of its beginning: files and their contents,
// access control lists, locks, sessions and quotas. The master goes on meanwhile. Where clients identify
// themselves, it is for operators. The backup has all contents in clear: keep it secret.
//
// If Backup fails, as when the master changes meanwhile, the output is useless: begin again. At most two
// backups run at a time.
func (c *Cell) Backup(ctx context.Context, w io.Writer) error {
	const op = "take a backup"
	backup := rand.Uint64()
	for part := uint64(1); ; part++ {
		var reply *chubbypb.BackupReply
		err := c.ask(ctx, op, rootPath(c.cfg), func(ctx context.Context, t *target) (err error) {
			reply, err = t.data.chubby.Backup(ctx, &chubbypb.BackupRequest{Cell: c.cfg.Cell, Backup: backup, Part: part})
			return err
		})
		if err != nil {
			return err
		}
		if _, err := w.Write(reply.GetData()); err != nil {
			return fmt.Errorf("write a backup: %w", err)
		}
		if reply.GetLast() {
			return nil
		}
	}
}
