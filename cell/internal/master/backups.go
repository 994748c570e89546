package master

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/backup"
)

// Bounds of backups. Each keeps the state of its beginning; later changes copy parts of it, in the worst case
// all.
const (
	maxBackups  = 2
	backupChunk = 128 << 10        // bytes of a part
	backupIdle  = 30 * time.Second // after which an unread backup is given up
)

// Backups are the backups in progress. A goroutine of each encodes the state of its beginning part by part,
// as it is read, without the master's mutex.
type Backups struct {
	epoch *epoch
	wall  func() int64
	begun func()         // called when one begins; does not wait
	work  sync.WaitGroup // of the encoding goroutines

	mu   sync.Mutex // guards the fields below; not held during a read
	open map[backupKey]*takenBackup
}

// backupKey names a backup: its principal, and the number that its client has drawn.
type backupKey struct {
	who    string
	number uint64
}

// takenBackup is one of them.
type takenBackup struct {
	from  *io.PipeReader
	idle  *time.Timer
	asked chan struct{} // full during a read; the reader owns the fields below
	part  uint64        // number of the last part
	data  []byte        // that part, for a retry
	end   bool          // it is the last one
}

// Read returns a part of a backup, and whether it is the last, by its client's number. Part 1 begins it; each later one is the next, or
// the last one again. It is for operators; without authentication who is "", and may read.
func (b *Backups) Read(ctx context.Context, who string, number, part uint64) (data []byte, last bool, err error) {
	if _, err := b.epoch.fence.Prove(ctx); err != nil {
		return nil, false, err
	}
	//mutant: if who == "" { //by TestLookingTakesRights of ./cell
	if who != "" {
		if err := b.epoch.state().PermitOperator(who); err != nil {
			return nil, false, err
		}
	}
	key := backupKey{who, number}
	one, err := b.find(key, part == 1)
	if err != nil {
		return nil, false, err
	}
	select {
	case one.asked <- struct{}{}:
		defer func() { <-one.asked }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	switch {
	case part == one.part && part > 0:
		return one.data, one.end, nil
	case part != one.part+1 || one.end:
		return nil, false, api.Errorf(api.InvalidArgument, "part %d of the backup is asked for, and part %d is next", part, one.part+1)
	}
	data = make([]byte, backupChunk)
	n, err := io.ReadFull(one.from, data)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		one.end = true
	case err != nil:
		b.drop(key)
		return nil, false, err
	}
	one.part, one.data = part, data[:n]
	b.touch(key)
	return one.data, one.end, nil
}

// touch restarts the idle time of an open backup.
func (b *Backups) touch(key backupKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, ok := b.open[key]; ok {
		one.idle.Reset(backupIdle)
	}
}

// find returns a backup, and may begin it.
func (b *Backups) find(key backupKey, begin bool) (*takenBackup, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, ok := b.open[key]; ok {
		return one, nil
	}
	if !begin {
		return nil, api.Errorf(api.NotFound, "this backup is not being taken any more: the master is another than at its beginning, or nobody has asked for %v; begin again", backupIdle)
	}
	if len(b.open) >= maxBackups {
		b.dropEnded()
	}
	if len(b.open) >= maxBackups {
		return nil, api.Errorf(api.Unavailable, "%d backups are being taken, the most at a time; try again when one is done", len(b.open))
	}
	if b.epoch.ctx.Err() != nil {
		return nil, context.Cause(b.epoch.ctx)
	}
	state, taken := *b.epoch.state(), b.wall()
	from, to := io.Pipe()
	//mutant: one := &takenBackup{from: from, asked: make(chan struct{}, 1), idle: time.AfterFunc(backupIdle, func() {})} //by TestBackupParts of ./cell
	one := &takenBackup{from: from, asked: make(chan struct{}, 1), idle: time.AfterFunc(backupIdle, func() { b.drop(key) })}
	b.open[key] = one
	b.begun()
	b.work.Go(func() {
		_ = to.CloseWithError(backup.Write(to, state, taken, "")) // it never fails
	})
	return one, nil
}

// dropEnded drops backups that keep only their last answer; mu is held.
func (b *Backups) dropEnded() {
	for key, one := range b.open {
		select {
		case one.asked <- struct{}{}:
			if one.end {
				b.dropLocked(key)
			}
			<-one.asked
		default:
		}
	}
}

func (b *Backups) drop(key backupKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(key)
}

// dropLocked is drop; mu is held.
func (b *Backups) dropLocked(key backupKey) {
	if one, ok := b.open[key]; ok {
		delete(b.open, key)
		one.idle.Stop()
		_ = one.from.CloseWithError(errBackupDropped) // it never fails
	}
}

var errBackupDropped = api.Errorf(api.Unavailable, "the backup was given up; begin again")

// close gives up all backups and waits for their goroutines. None begins after the end of the epoch.
func (b *Backups) close() {
	b.mu.Lock()
	for key := range b.open {
		b.dropLocked(key)
	}
	b.mu.Unlock()
	b.work.Wait()
}

// Write writes a backup of this moment for the replica itself, without a check of rights.
func (b *Backups) Write(ctx context.Context, w io.Writer) error {
	if _, err := b.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	b.begun()
	return backup.Write(w, *b.epoch.state(), b.wall(), "")
}

// Times of check points.
const (
	checkEvery = 3 * time.Minute  // between two, without a request
	checkPause = 10 * time.Second // min time between two
)

// CheckPoints puts check points into the log: empty entries at which every replica hashes its whole state, to
// compare all at one moment of the log (Chubby §2.11). One comes every few minutes, and soon after a backup
// begins or replicas differ.
type CheckPoints struct {
	epoch *epoch
	due   chan struct{} // full while one is wanted soon
}

func newCheckPoints(e *epoch) *CheckPoints {
	return &CheckPoints{epoch: e, due: make(chan struct{}, 1)}
}

// Soon asks for a check point, without waiting.
func (c *CheckPoints) Soon() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// run writes check points until ctx ends, each alone, and never while the mastership is handed over.
func (c *CheckPoints) run(ctx context.Context) {
	for {
		regular := time.NewTimer(checkEvery)
		select {
		case <-ctx.Done():
		case <-c.due:
		//mutant: /* nothing */ //by TestContradictedReplicaStops of ./cell
		case <-regular.C:
		}
		regular.Stop()
		resume, err := c.epoch.proposer.pause(ctx)
		if err != nil {
			return
		}
		_, err = c.epoch.proposer.entries.append(nil)
		resume()
		if err != nil {
			c.epoch.reports.journal.say(slog.LevelDebug, "no check point could be written", slog.String("error", err.Error()))
		}
		pause := time.NewTimer(checkPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}
