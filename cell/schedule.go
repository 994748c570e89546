package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

const backupTime = "20060102T150405Z"

// backupName returns the name of a backup begun in that second since 1970.
func backupName(cell string, id api.CellID, at int64) string {
	return cell + "-" + time.Unix(at, 0).UTC().Format(backupTime) + backupEnd(id)
}

// backupEnd returns the end of the names of a cell's backups.
func backupEnd(id api.CellID) string { return fmt.Sprintf("-%.8s.backup", id) }

// backupTimes returns the times of the cell's backups among some names, oldest first.
func backupTimes(cell string, id api.CellID, names []string) (times []int64) {
	for _, name := range names {
		middle, ok := strings.CutPrefix(name, cell+"-")
		at, err := time.Parse(backupTime, strings.TrimSuffix(middle, backupEnd(id)))
		if ok && err == nil && backupName(cell, id, at.Unix()) == name {
			times = append(times, at.Unix())
		}
	}
	slices.Sort(times)
	//mutant: slices.Reverse(times); return times //by TestScheduledBackups of ./cell
	return times
}

// backups takes them, as the master. The place knows the time of the last one, so any master can continue.
type backups struct {
	*mastership
	failures, last atomic.Int64 // as in schedule, for the metrics
}

// schedule is what the goroutine that takes backups remembers while this replica is the master.
type schedule struct {
	known    bool  // the place was listed
	last     int64 // time of the last backup, in seconds since 1970; 0: never
	failures int   // in succession
	again    session.Instant
}

func (b *backups) run(ctx context.Context) {
	if b.cfg.Backups.Place == nil {
		return
	}
	var s schedule
	for range ticks(ctx, backupLookEvery) {
		m := b.master.Load()
		switch {
		case m == nil:
			s = schedule{}
		case b.clock() >= s.again:
			err := b.takeDueBackup(ctx, m, &s)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				pause := min(backupAgain<<min(s.failures, 10), maxBackupAgain)
				s = schedule{failures: s.failures + 1, again: b.clock().Add(pause)}
				b.log.Error("no backup could be taken", "event", "backup_fails", "place", b.cfg.Backups.Place.String(), "error", err, "retry_in", pause)
			}
		}
		b.failures.Store(int64(s.failures))
		b.last.Store(s.last)
	}
}

// takeDueBackup takes a backup if it is due, and removes old ones.
func (b *backups) takeDueBackup(ctx context.Context, m *master.Master, s *schedule) error {
	ctx, cancel := context.WithTimeout(ctx, maxBackupTakes)
	defer cancel()
	every := int64(b.cfg.Backups.Every / time.Second)
	now := b.cfg.Wall()
	if !s.known {
		names, err := b.cfg.Backups.Place.List(ctx)
		if err != nil {
			return err
		}
		s.known = true
		//mutant: /* nothing */ //by TestUnfinishedBackupsAreRemoved of ./cell
		b.removeUnfinished(ctx, m.State().CellID, now, names)
		for _, at := range backupTimes(b.cfg.Cell, m.State().CellID, names) {
			//mutant: if at > 0 { //by TestScheduledBackups of ./cell
			if at < now+every { // else a master's clock was wrong
				//mutant: _ = at //by TestScheduledBackups of ./cell
				s.last = max(s.last, at)
			}
		}
	}
	if since := now - s.last; since < every && since > -every && !restoredSince(m.State().Restored, s.last, now) { // nor was the clock put back
		//mutant: /* nothing */ //by TestBackupWhoseAnswerIsLost of ./cell
		s.failures = 0 // the last one succeeded, though its maker did not learn that
		return nil
	}
	id := m.State().CellID
	name, begun := backupName(b.cfg.Cell, id, now), b.clock()
	var size countingWriter
	err := b.cfg.Backups.Place.Create(ctx, name, func(w io.Writer) error {
		size.w = w
		return m.Inspector.Backups.Write(ctx, &size)
	})
	if err != nil && !errors.Is(err, fs.ErrExist) { // a backup of this second exists: an earlier master's, or the retry of one that succeeded
		return err
	}
	s.last, s.failures = now, 0
	b.log.Info("a backup was taken", "event", "backup_taken", "place", b.cfg.Backups.Place.String(), "backup", name, "bytes", size.n, "took", b.clock().Sub(begun))
	if err := b.removeOldBackups(ctx, id, now, every); err != nil {
		b.log.Warn("backups that are not kept any more could not be removed", "place", b.cfg.Backups.Place.String(), "error", err)
	}
	return nil
}

// restoredSince reports whether the cell was restored after its last backup. A cell restored from that backup
// would again issue what this one has issued since.
func restoredSince(r *raftfsm.Restoration, last, now int64) bool {
	//mutant: return r != nil && r.AtUnix < 0 //by TestBackupAfterARestore of ./cell
	return r != nil && r.AtUnix >= last && r.AtUnix <= now // a future time comes from a wrong clock
}

// removeOldBackups keeps the newest backups. It ignores dates far in the future: otherwise a wrong clock, or a
// client that may only add files, could make it remove each new one.
func (b *backups) removeOldBackups(ctx context.Context, id api.CellID, now, every int64) error {
	names, err := b.cfg.Backups.Place.List(ctx)
	if err != nil {
		return err
	}
	//mutant: /* nothing */ //by TestUnfinishedBackupsAreRemoved of ./cell
	b.removeUnfinished(ctx, id, now, names)
	//mutant: times := slices.DeleteFunc(backupTimes(b.cfg.Cell, id, names), func(at int64) bool { return at >= now+every && false }) //by TestScheduledBackups of ./cell
	times := slices.DeleteFunc(backupTimes(b.cfg.Cell, id, names), func(at int64) bool { return at >= now+every })
	for _, at := range times[:max(0, len(times)-b.cfg.Backups.Keep)] {
		err = cmp.Or(err, b.cfg.Backups.Place.Remove(ctx, backupName(b.cfg.Cell, id, at)))
	}
	return err
}

// removeUnfinished removes unfinished files of this cell's backups, left by crashes. A backup takes at most
// maxBackupTakes, and clocks may differ by as much.
func (b *backups) removeUnfinished(ctx context.Context, id api.CellID, now int64, names []string) {
	for _, name := range names {
		whole, hidden := strings.CutPrefix(name, ".")
		end := strings.LastIndexByte(whole, '.')
		if !hidden || end < 0 || end+1 == len(whole) || strings.Trim(whole[end+1:], "0123456789") != "" {
			continue
		}
		for _, at := range backupTimes(b.cfg.Cell, id, []string{whole[:end]}) {
			//mutant: if at > now { //by TestUnfinishedBackupsAreRemoved of ./cell
			if at > now-int64(2*maxBackupTakes/time.Second) {
				continue
			}
			if err := b.cfg.Backups.Place.Remove(ctx, name); err != nil {
				b.log.Warn("what is left of a backup that was not finished could not be removed", "place", b.cfg.Backups.Place.String(), "backup", name, "error", err)
				continue
			}
			b.log.Info("what was left of a backup that was not finished is removed", "place", b.cfg.Backups.Place.String(), "backup", name)
		}
	}
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
