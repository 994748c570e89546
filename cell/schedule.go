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
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

const backupTime = "20060102T150405Z"

// backupName is the name of a backup of that second since 1970.
func backupName(cell string, id api.CellID, at int64) string {
	return cell + "-" + time.Unix(at, 0).UTC().Format(backupTime) + backupEnd(id)
}

// backupEnd is how the names of the backups of a cell end.
func backupEnd(id api.CellID) string { return fmt.Sprintf("-%.8s.backup", id) }

// backupTimes returns when the backups of a cell were taken, of which some names are, oldest first.
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

// schedule takes backups while this replica is the master. When the last one was taken, the place itself says, so that
// it does not matter who was the master then. One goroutine uses it.
type schedule struct {
	known    bool  // the place was looked at
	last     int64 // when the last one was taken, by the wall clock; 0: never
	failures int   // in succession
	again    session.Instant
}

// takeBackups takes backups, if Config.Backups says so.
func (r *Replica) takeBackups(ctx context.Context) {
	if r.cfg.Backups.Place == nil {
		return
	}
	tick := time.NewTicker(backupLookEvery)
	defer tick.Stop()
	var s schedule
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m := r.master.Load()
		switch {
		case m == nil:
			s = schedule{}
		case r.clock() >= s.again:
			err := r.takeDueBackup(ctx, m, &s)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				pause := min(backupAgain<<min(s.failures, 10), maxBackupAgain)
				s = schedule{failures: s.failures + 1, again: r.clock().Add(pause)}
				r.log.Error("no backup could be taken", "event", "backup_fails", "place", r.cfg.Backups.Place.String(), "error", err, "retry_in", pause)
			}
		}
		r.backups.failures.Store(int64(s.failures))
		r.backups.last.Store(s.last)
	}
}

// takeDueBackup takes a backup if it is time, and removes those that are too many.
func (r *Replica) takeDueBackup(ctx context.Context, m *master.Master, s *schedule) error {
	ctx, cancel := context.WithTimeout(ctx, maxBackupTakes)
	defer cancel()
	every := int64(r.cfg.Backups.Every / time.Second)
	now := r.cfg.Wall()
	if !s.known {
		names, err := r.cfg.Backups.Place.List(ctx)
		if err != nil {
			return err
		}
		s.known = true
		//mutant: /* nothing */ //by TestUnfinishedBackupsAreRemoved of ./cell
		r.removeUnfinished(ctx, m.CellID(), now, names)
		for _, at := range backupTimes(r.cfg.Cell, m.CellID(), names) {
			//mutant: if at > 0 { //by TestScheduledBackups of ./cell
			if at < now+every { // else the clock of a master was wrong
				//mutant: _ = at //by TestScheduledBackups of ./cell
				s.last = max(s.last, at)
			}
		}
	}
	if since := now - s.last; since < every && since > -every && !restoredSince(m.Restored(), s.last, now) { // nor was it put back
		//mutant: /* nothing */ //by TestBackupWhoseAnswerIsLost of ./cell
		s.failures = 0 // the last one was made, though its maker was not told
		return nil
	}
	id := m.CellID()
	name, begun := backupName(r.cfg.Cell, id, now), r.clock()
	var size countingWriter
	err := r.cfg.Backups.Place.Create(ctx, name, func(w io.Writer) error {
		size.w = w
		return m.Inspector.Backups.Write(ctx, &size)
	})
	if err != nil && !errors.Is(err, fs.ErrExist) { // of this second there is one: a master's of before, or the second try of one that was made
		return err
	}
	s.last, s.failures = now, 0
	r.log.Info("a backup was taken", "event", "backup_taken", "place", r.cfg.Backups.Place.String(), "backup", name, "bytes", size.n, "took", r.clock().Sub(begun))
	if err := r.removeOldBackups(ctx, id, now, every); err != nil {
		r.log.Warn("backups that are not kept any more could not be removed", "place", r.cfg.Backups.Place.String(), "error", err)
	}
	return nil
}

// restoredSince reports whether the cell was restored after its last backup: no backup knows of what it issues since then, and a cell
// that is restored from an earlier one would issue the same again.
func restoredSince(r *raftfsm.Restoration, last, now int64) bool {
	//mutant: return r != nil && r.AtUnix < 0 //by TestBackupAfterARestore of ./cell
	return r != nil && r.AtUnix >= last && r.AtUnix <= now // a time to come is that of a wrong clock
}

// removeOldBackups keeps the newest of the backups. Those of a time that is still far are left alone, and take nobody's room: a clock
// that was wrong, or whoever may only add to the place, would have each new one removed otherwise.
func (r *Replica) removeOldBackups(ctx context.Context, id api.CellID, now, every int64) error {
	names, err := r.cfg.Backups.Place.List(ctx)
	if err != nil {
		return err
	}
	//mutant: /* nothing */ //by TestUnfinishedBackupsAreRemoved of ./cell
	r.removeUnfinished(ctx, id, now, names)
	//mutant: times := slices.DeleteFunc(backupTimes(r.cfg.Cell, id, names), func(at int64) bool { return at >= now+every && false }) //by TestScheduledBackups of ./cell
	times := slices.DeleteFunc(backupTimes(r.cfg.Cell, id, names), func(at int64) bool { return at >= now+every })
	for _, at := range times[:max(0, len(times)-r.cfg.Backups.Keep)] {
		err = cmp.Or(err, r.cfg.Backups.Place.Remove(ctx, backupName(r.cfg.Cell, id, at)))
	}
	return err
}

// removeUnfinished removes files of backups of this cell that were being written when a master, or its machine, crashed: nobody writes one
// for longer than maxBackupTakes, and clocks may differ by as much.
func (r *Replica) removeUnfinished(ctx context.Context, id api.CellID, now int64, names []string) {
	for _, name := range names {
		whole, hidden := strings.CutPrefix(name, ".")
		end := strings.LastIndexByte(whole, '.')
		if !hidden || end < 0 || end+1 == len(whole) || strings.Trim(whole[end+1:], "0123456789") != "" {
			continue
		}
		for _, at := range backupTimes(r.cfg.Cell, id, []string{whole[:end]}) {
			//mutant: if at > now { //by TestUnfinishedBackupsAreRemoved of ./cell
			if at > now-int64(2*maxBackupTakes/time.Second) {
				continue
			}
			if err := r.cfg.Backups.Place.Remove(ctx, name); err != nil {
				r.log.Warn("what is left of a backup that was not finished could not be removed", "place", r.cfg.Backups.Place.String(), "backup", name, "error", err)
				continue
			}
			r.log.Info("what was left of a backup that was not finished is removed", "place", r.cfg.Backups.Place.String(), "backup", name)
		}
	}
}

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
