package master

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/backup"
)

// Bounds of backups. Each keeps the state of its beginning. Later changes copy parts of it: in the worst
// case, all of it.
const (
	maxBackups  = 2
	backupChunk = 128 << 10        // bytes of a part
	backupIdle  = 30 * time.Second // without a Read, after which a backup is given up
)

// Backups are the backups in progress. Each is of the state at its beginning. Its own goroutine encodes it
// part by part, as the client reads, and takes no mutex of the master.
type Backups struct {
	epoch *epoch
	wall  func() int64
	begun func()         // called when one begins; does not wait
	work  sync.WaitGroup // of the goroutines that encode

	mu   sync.Mutex // guards the fields below; not held while a part is read
	open map[backupKey]*takenBackup
}

// backupKey names a backup: its principal, and the number that the client has drawn.
type backupKey struct {
	who    string
	number uint64
}

// takenBackup is a backup in progress.
type takenBackup struct {
	from  *io.PipeReader
	idle  *time.Timer
	asked chan struct{} // full while a part is read; the reader that filled it owns the fields below
	part  uint64        // number of the last part read
	data  []byte        // that part, for a retry
	end   bool          // that part is the last one
}

// BackupPart is a part of a backup.
type BackupPart struct {
	Data []byte
	Last bool
}

// Read returns a part of a backup, named by the number that the client has drawn. Part 1 begins the backup;
// each later call asks for the next part, or for the last one again. It is for operators; the principal ""
// may do everything, in a cell that does not authenticate.
func (b *Backups) Read(ctx context.Context, who string, number, part uint64) (BackupPart, error) {
	if _, err := b.epoch.fence.Prove(ctx); err != nil {
		return BackupPart{}, err
	}
	//mutant: if who == "" { //by TestLookingTakesRights of ./cell
	if who != "" {
		if err := b.epoch.state().PermitOperator(who); err != nil {
			return BackupPart{}, err
		}
	}
	key := backupKey{who, number}
	one, err := b.find(key, part == 1)
	if err != nil {
		return BackupPart{}, err
	}
	select {
	case one.asked <- struct{}{}:
		defer func() { <-one.asked }()
	case <-ctx.Done():
		return BackupPart{}, context.Cause(ctx)
	}
	switch {
	case part == one.part && part > 0:
		return BackupPart{Data: one.data, Last: one.end}, nil
	case part != one.part+1 || one.end:
		return BackupPart{}, api.Errorf(api.InvalidArgument, "part %d of the backup is asked for, and part %d is next", part, one.part+1)
	}
	data := make([]byte, backupChunk)
	n, err := io.ReadFull(one.from, data)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		one.end = true
	case err != nil:
		b.drop(key)
		return BackupPart{}, err
	}
	one.part, one.data = part, data[:n]
	b.touch(key)
	return BackupPart{Data: one.data, Last: one.end}, nil
}

// touch restarts the idle time of a backup that is still open.
func (b *Backups) touch(key backupKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, ok := b.open[key]; ok {
		one.idle.Reset(backupIdle)
	}
}

// find returns a backup; with begin it may begin it.
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

// dropEnded drops backups that keep only the last answer; mu is held.
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

// close gives up all backups, and waits for their goroutines. The epoch has ended, so no more begin.
func (b *Backups) close() {
	b.mu.Lock()
	for key := range b.open {
		b.dropLocked(key)
	}
	b.mu.Unlock()
	b.work.Wait()
}

// Write writes a backup of this moment. It is for the replica itself, and checks no rights.
func (b *Backups) Write(ctx context.Context, w io.Writer) error {
	if _, err := b.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	b.begun()
	return backup.Write(w, *b.epoch.state(), b.wall(), "")
}
