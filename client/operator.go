package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

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

// Transfer makes another replica the master, as an operator's act: the one with that id, or, if to is empty,
// the one with the most complete log. It returns the id of the master at the end. Sessions and locks survive
// it like any fail-over.
//
// The stepping down may lose the answer. Then Transfer asks the replicas for the master: if another replica
// (the wanted one, if to names one) is master in a later epoch than when the master was asked, it succeeds,
// whatever the cause. It asks no master twice in one epoch: if that is still the master, or ctx ends before
// the result is known, the error is Uncertain, and the master may yet hand over. Other errors are the
// master's, such as PermissionDenied.
func (c *Client) Transfer(ctx context.Context, to string) (master string, err error) {
	return TransferWith(ctx, c, TransferOptions{To: to})
}

// TransferOptions qualify TransferWith.
type TransferOptions struct {
	To  string // the wanted master; "" for the replica with the most complete log
	Why string // for the logs of the cell; at most api.MaxReason bytes

	// Silent makes the master hand over to no replica: it stops serving and falls silent, as if cut off from
	// the network, until the other replicas have noticed and elected one of them. It ignores To.
	Silent bool
	// Vacant is how long, at most api.MaxOutage, the cell has no master before it falls silent. That ends
	// early with ctx, with this process, and with the former master's replica.
	Vacant time.Duration
}

// TransferWith is [Client.Transfer] with options. With Silent it asks the master once; the cell has no master
// for a while, and the id may be empty.
func TransferWith(ctx context.Context, c *Client, o TransferOptions) (master string, err error) {
	const op = "transfer the mastership"
	var askedEpoch api.Epoch // in which a master was last asked, or 0
	var askedReplica string  // that master
	var lastError *api.Error // that it answered
	var doubt *api.Error     // why there is no result
	askMaster := func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		now, err := t.data.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: c.cfg.Cell})
		if err != nil {
			return err
		}
		id, epoch := now.GetMaster(), api.Epoch(now.GetEpoch())
		switch {
		case id == "" || id != now.GetReplica():
			return &api.Error{Code: api.NotMaster, Replica: now.GetReplica(), Master: now.GetMasterAddress(), Message: "it is not the master"}
		case askedEpoch == 0:
		case epoch > askedEpoch && (o.Silent || id == o.To || o.To == "" && id != askedReplica):
			master = id
			return nil
		case epoch == askedEpoch:
			doubt = &api.Error{Code: api.Uncertain, Replica: id, Err: lastError.Err,
				Message: fmt.Sprintf("%s was asked to hand over and is still the master; it may yet do so: %s", id, brief(lastError))}
			return nil
		}
		before, whom := askedEpoch, askedReplica
		askedEpoch, askedReplica = api.Epoch(caller.GetEpoch()), id
		reply, err := t.data.chubby.Transfer(ctx, &chubbypb.TransferRequest{Caller: caller, To: o.To, Reason: o.Why, Silent: o.Silent, VacantNs: int64(o.Vacant)})
		if err == nil {
			master = reply.GetMaster()
			return nil
		}
		lastError = &api.Error{Code: api.Uncertain, Message: "an error of no known kind", Err: err}
		errors.As(t.explainError(err), &lastError)
		if v := verdictOf(lastError); v == verdictRetry || v == verdictStaleEpoch {
			askedEpoch, askedReplica = before, whom // it did nothing
		}
		return err
	}
	came, err := c.cell.dispatcher.dispatch(ctx, call{op: op, path: rootPath(c.cell.cfg), session: c.session, class: classUnlimited, noTimeout: o.Silent, attempt: askMaster})
	var e *api.Error
	switch {
	case err == nil && doubt == nil:
		return master, nil
	case err == nil:
		return "", withOperation(doubt, op, rootPath(c.cell.cfg))
	case came == outcomeUncertain && askedEpoch != 0 && errors.As(err, &e) && e.Code != api.SessionExpired:
		own := *e
		own.Code, own.Message = api.Uncertain, askedReplica+" was asked to hand over, and may yet do so; "+e.Message
		return "", &own
	}
	return "", err
}

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
