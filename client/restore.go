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
	Cell    string     // whose backup it is
	CellID  api.CellID // of that cell
	Level   int        // its feature level
	Counter uint64     // its fencing counter, or a higher token that is known to have been issued after it

	Nodes, Quotas int // how many are in it

	Index     uint64 // of the last entry of the log that is in it
	TakenUnix int64  // when it was made
	Recovered string // the replica out of whose data directory it was made, of a cell that had lost its majority; empty if a master gave it

	// Parts are its nodes and quotas, in the form in which 'chubbyctl cell restore' makes them of a backup. An error ends the restore.
	Parts iter.Seq2[[]byte, error]

	Why string // what the clients of the sessions that are ended are told: 1 to api.MaxReason bytes
}

// RestoreProgress is how far a restore has come.
type RestoreProgress struct {
	Parts    int  // of the backup that the cell has
	Sealed   bool // the backup is complete, and the other sessions are being ended
	Sessions int  // that have not ended yet
}

// Restored is a cell after a restore.
type Restored struct {
	CellID  api.CellID
	Counter uint64 // the fencing counter: every token that is issued from now on is above it, and none before was
}

// restorePoll is the time between two questions whether all sessions have ended.
const restorePoll = 250 * time.Millisecond

// Restore replaces everything in the cell by a backup, as an operator's act, in a session with Config.NoCache which holds no lock and
// has no ephemeral node open. progress is called from time to time; it may be nil.
//
// The cell first collects the backup, and goes on meanwhile. Then it ends all other sessions, and lets none begin: their clients are told,
// and keep what they hold until they have let go of it or their leases are over. Then the backup takes the place of all nodes, contents,
// access control lists and quotas in one step. Nobody holds a lock, and ephemeral nodes are gone. Lock-delays that run go on. The fencing
// counter is higher than everything that this cell or the one in the backup has ever issued; and the tokens are of the cell in the backup,
// if that has the same name, so that guards downstream accept them.
//
// If Restore returns an error other than Uncertain and SessionExpired, it has given the restore up: the cell has what it had, except the
// sessions that were ended, and sessions can begin. If it cannot say so to the cell, the cell gives the restore up when the session ends,
// or a minute after the last step. An operator can do it before (GiveUpRestore). After Uncertain and SessionExpired the cell may also have
// been restored, and the answer was lost: Status.Restored says so. Several may not restore at a time: the second gets Exists. The other
// errors are PermissionDenied, InvalidArgument for a backup that cannot be, and those of every change.
func Restore(ctx context.Context, c *Client, b RestoreBackup, progress func(RestoreProgress)) (restored Restored, err error) {
	begun := false
	defer func() {
		if err != nil && begun {
			cleanup, end := c.CleanupContext(ctx)
			defer end()
			_, _ = restoreStep(cleanup, c, &chubbypb.RestoreRequest{GiveUp: true}) // it may be over, and then is refused
		}
	}()
	return restoreSteps(ctx, c, b, progress, &begun)
}

// restoreSteps takes the steps of a restore. begun is set once the cell may have begun it for this session.
func restoreSteps(ctx context.Context, c *Client, b RestoreBackup, progress func(RestoreProgress), begun *bool) (Restored, error) {
	if progress == nil {
		progress = func(RestoreProgress) {}
	}
	var p RestoreProgress
	if _, err := restoreStep(ctx, c, &chubbypb.RestoreRequest{Begin: &chubbypb.RestoreBegin{
		Cell: b.Cell, CellId: string(b.CellID), Level: uint32(b.Level), Counter: b.Counter, Nodes: uint64(b.Nodes), Quotas: uint64(b.Quotas),
		Index: b.Index, TakenUnix: b.TakenUnix, Recovered: b.Recovered,
	}}); err != nil {
		*begun = !errors.Is(err, api.Exists) && !errors.Is(err, api.PermissionDenied)
		return Restored{}, err
	}
	*begun = true
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
		select {
		case <-ctx.Done():
			return Restored{}, context.Cause(ctx)
		case <-time.After(restorePoll):
		}
	}
}

// GiveUpRestore gives up the restore that is under way, whosever it is, as an operator's act: the cell has what it had, except the sessions
// that were ended. It needs no session, since none can begin while a restore ends all others. If none is under way, the error is NotFound.
func GiveUpRestore(ctx context.Context, c *Cell) error {
	var of, before uint64 // the session whose restore is given up, and the counter of the restore before
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
				return nil // it was given up, and the answer to that is lost
			}
		}
		return err
	})
}

// masterStatus asks a replica for its status, if it is the master.
func masterStatus(ctx context.Context, t *target) (*chubbypb.StatusReply, error) {
	status, err := t.data.cell.Status(ctx, &chubbypb.StatusRequest{})
	if err == nil && status.GetReplica().GetRole() != "master" {
		err = &api.Error{Code: api.NotMaster, Message: "it is not the master any more"}
	}
	return status, err
}

// restoreStep does one step of a restore.
func restoreStep(ctx context.Context, c *Client, step *chubbypb.RestoreRequest) (reply *chubbypb.RestoreReply, err error) {
	err = c.mutate(ctx, mutation{op: "restore a backup", path: rootPath(c.cell.cfg), size: len(step.GetPart().GetRecords()),
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			var err error
			reply, err = t.data.chubby.Restore(ctx, &chubbypb.RestoreRequest{
				Caller: caller, Mutation: m, Begin: step.GetBegin(), Part: step.GetPart(), Seal: step.GetSeal(), Finish: step.GetFinish(), GiveUp: step.GetGiveUp(),
			})
			return err
		}})
	return reply, err
}
