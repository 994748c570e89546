package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// RestoreBackup is a backup to be restored.
type RestoreBackup struct {
	Cell    string     // the backup's cell
	CellID  api.CellID // of that cell
	Level   int        // its feature level
	Counter uint64     // its fencing counter, or a higher token known to have been issued later

	Nodes, Quotas int

	Index     uint64 // of its last log entry
	TakenUnix int64  // of the backup
	Recovered string // the replica whose data directory it is from, of a cell that had lost its majority; empty for a master's backup

	// Parts are its nodes and quotas, as 'chubbyctl cell restore' derives them from a backup. An error ends
	// the restore.
	Parts iter.Seq2[[]byte, error]

	Why string // reason for the clients of ended sessions: 1 to api.MaxReason bytes
}

// RestoreProgress is the state of a restore.
type RestoreProgress struct {
	Parts    int  // in the cell so far
	Sealed   bool // the backup is complete, and the other sessions are ending
	Sessions int  // that have not ended yet
}

// Restored is a cell after a restore.
type Restored struct {
	CellID  api.CellID
	Counter uint64 // the fencing counter: every later token is above it, and no earlier one
}

const restorePoll = 250 * time.Millisecond

// Restore replaces everything in the cell by a backup, as an operator's act, in a session with Config.NoCache
// that holds no lock and has no ephemeral node open. It calls progress from time to time; progress may be
// nil.
//
// The cell first collects the backup, and goes on meanwhile. Then it ends all other sessions, and lets none
// begin: their clients are notified, and keep their locks until they let go or their leases are over. Then
// the backup replaces all nodes, contents, access control lists and quotas in one step. All locks are free,
// ephemeral nodes are gone, and running lock-delays go on. The fencing counter is higher than every token
// that this cell or the backup's cell has ever issued. The tokens are of the backup's cell, if that has the
// same name, so that guards downstream accept them.
//
// After an error other than Uncertain and SessionExpired, Restore has given up: the cell has its old state,
// except for the ended sessions, and sessions can begin. If Restore cannot reach the cell to say so, the cell
// gives up when the session ends, or a minute after the last step, or when an operator does (GiveUpRestore).
// After Uncertain and SessionExpired the cell may also have been restored: Status.Restored says so. One
// restore runs at a time: the second gets Exists. The other errors are PermissionDenied, InvalidArgument for
// an impossible backup, and those of every change.
func Restore(ctx context.Context, c *Client, b RestoreBackup, progress func(RestoreProgress)) (restored Restored, err error) {
	if progress == nil {
		progress = func(RestoreProgress) {}
	}
	begun := true // the cell may have begun it for this session
	defer func() {
		if err != nil && begun {
			cleanup, end := c.CleanupContext(ctx)
			defer end()
			_, _ = restoreStep(cleanup, c, &chubbypb.RestoreRequest{GiveUp: true}) // it may be over, and then is refused
		}
	}()
	var p RestoreProgress
	if _, err := restoreStep(ctx, c, &chubbypb.RestoreRequest{Begin: &chubbypb.RestoreBegin{
		Cell: b.Cell, CellId: string(b.CellID), Level: uint32(b.Level), Counter: b.Counter, Nodes: uint64(b.Nodes), Quotas: uint64(b.Quotas),
		Index: b.Index, TakenUnix: b.TakenUnix, Recovered: b.Recovered,
	}}); err != nil {
		begun = !errors.Is(err, api.Exists) && !errors.Is(err, api.PermissionDenied)
		return Restored{}, err
	}
	for records, err := range b.Parts {
		if err != nil {
			return Restored{}, err
		}
		p.Parts++
		if _, err := restoreStep(ctx, c, &chubbypb.RestoreRequest{Part: &chubbypb.RestorePart{Part: uint64(p.Parts), Records: records}}); err != nil {
			return Restored{}, err
		}
		progress(p)
	}
	if _, err := restoreStep(ctx, c, &chubbypb.RestoreRequest{Seal: &chubbypb.RestoreSeal{Why: b.Why}}); err != nil {
		return Restored{}, err
	}
	for p.Sealed = true; ; {
		reply, err := restoreStep(ctx, c, &chubbypb.RestoreRequest{Finish: true})
		if err != nil {
			return Restored{}, err
		}
		if reply.GetRestored() {
			return Restored{CellID: api.CellID(reply.GetCellId()), Counter: reply.GetCounter()}, nil
		}
		p.Sessions = int(reply.GetSessions())
		progress(p)
		if sleep(ctx, restorePoll); ctx.Err() != nil {
			return Restored{}, context.Cause(ctx)
		}
	}
}

// GiveUpRestore gives up the running restore, also another operator's, as an operator's act: the cell has its
// old state, except for the ended sessions. It needs no session, since none can begin while a restore ends
// all others. Without a restore, the error is NotFound.
func GiveUpRestore(ctx context.Context, c *Cell) error {
	var of, before uint64 // the session of the restore, and the previous restore's counter
	return c.ask(ctx, "give up a restore", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		sent := of != 0
		if !sent {
			status, err := masterStatus(ctx, t)
			if err != nil {
				return err
			}
			for _, a := range status.GetActs() {
				of = max(of, a.GetSession())
			}
			before = status.GetRestored().GetCounter()
		}
		_, err := t.data.chubby.Restore(ctx, &chubbypb.RestoreRequest{GiveUp: true, As: c.cfg.As, Of: of})
		if sent && api.CodeOf(chubbypb.Error(err)) == api.NotFound {
			status, failed := masterStatus(ctx, t)
			if failed != nil {
				return failed
			}
			if before == status.GetRestored().GetCounter() {
				return nil // it was given up without the answer arriving
			}
		}
		return err
	})
}

func masterStatus(ctx context.Context, t *target) (*chubbypb.StatusReply, error) {
	status, err := t.data.cell.Status(ctx, &chubbypb.StatusRequest{})
	if err == nil && status.GetReplica().GetRole() != "master" {
		err = &api.Error{Code: api.NotMaster, Message: "it is not the master any more"}
	}
	return status, err
}

func restoreStep(ctx context.Context, c *Client, step *chubbypb.RestoreRequest) (reply *chubbypb.RestoreReply, err error) {
	err = c.mutate(ctx, mutation{op: "restore a backup", path: rootPath(c.cell.cfg), size: len(step.GetPart().GetRecords()),
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) (err error) {
			step.Caller, step.Mutation = caller, m
			reply, err = t.data.chubby.Restore(ctx, step)
			return err
		}})
	return reply, err
}
