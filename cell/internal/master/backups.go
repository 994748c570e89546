package master

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/backup"
	"github.com/chubbylock/chubby/namespace"
)

// Bounds of backups. Each keeps the state of its beginning, of which what changes afterwards has to be
// copied: at the worst, all of it.
const (
	maxBackups  = 2
	backupChunk = 128 << 10        // bytes of a part
	backupIdle  = 30 * time.Second // after which a backup that nobody asks for is given up
)

// Backups are those that are being taken. The state of one is that of its beginning; it is encoded as it is asked for, part by part, by a
// goroutine of its own, which takes no mutex of the master's.
type Backups struct {
	epoch *epoch
	wall  func() int64
	work  sync.WaitGroup // of the goroutines that encode

	mu   sync.Mutex // guards what follows; not held while a part is read
	open map[uint64]*takenBackup
	last uint64 // number of the newest; no other master, which has another epoch, has given it
}

// takenBackup is one of them.
type takenBackup struct {
	who   string // the principal that takes it
	from  *io.PipeReader
	idle  *time.Timer
	asked chan struct{} // has an element while a part is read; what follows belongs to whoever has put it there
	part  uint64        // the number of the last part that was read
	data  []byte        // that part: its answer may be lost
	end   bool          // it is the last one
}

// BackupPart is a part of a backup.
type BackupPart struct {
	Backup uint64 // which one
	Data   []byte
	Last   bool
}

// Read returns a part of a backup: of a new one the first, if id is 0; else the one with that number, which is the one
// after that which was read last, or that one again. It is for principals that may change the ACL of the root; "" is anybody: nobody is asked who
// he is.
func (b *Backups) Read(ctx context.Context, who string, id, part uint64) (BackupPart, error) {
	if _, err := b.epoch.fence.Prove(ctx); err != nil {
		return BackupPart{}, err
	}
	tree := b.epoch.state().Tree
	if root, ok := tree.Get(""); ok && who != "" {
		if err := tree.Permit(root, who, namespace.ToChange); err != nil {
			return BackupPart{}, err
		}
	}
	one, id, err := b.find(who, id)
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
		return BackupPart{Backup: id, Data: one.data, Last: one.end}, nil
	case part != one.part+1 || one.end:
		return BackupPart{}, api.Errorf(api.InvalidArgument, "part %d of the backup is asked for, and part %d is next", part, one.part+1)
	}
	data := make([]byte, backupChunk)
	n, err := io.ReadFull(one.from, data)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		one.end = true
	case err != nil:
		b.drop(id)
		return BackupPart{}, err
	}
	one.part, one.data = part, data[:n]
	one.idle.Reset(backupIdle)
	return BackupPart{Backup: id, Data: one.data, Last: one.end}, nil
}

// find returns a backup of a principal; if id is 0, a new one.
func (b *Backups) find(who string, id uint64) (*takenBackup, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id != 0 {
		one, ok := b.open[id]
		if !ok || one.who != who {
			return nil, 0, api.Errorf(api.NotFound, "this backup is not being taken any more: the master is another than at its beginning, or nobody has asked for %v; begin again", backupIdle)
		}
		return one, id, nil
	}
	for n, one := range b.open { // of those that were read to the end, only the last answer is kept
		select {
		case one.asked <- struct{}{}:
			if one.end {
				b.dropLocked(n)
			}
			<-one.asked
		default:
		}
	}
	if len(b.open) >= maxBackups {
		return nil, 0, api.Errorf(api.Unavailable, "%d backups are being taken, the most at a time; try again when one is done", len(b.open))
	}
	if b.epoch.ctx.Err() != nil {
		return nil, 0, context.Cause(b.epoch.ctx)
	}
	b.last++
	id = b.last
	state, taken := *b.epoch.state(), b.wall()
	from, to := io.Pipe()
	one := &takenBackup{who: who, from: from, asked: make(chan struct{}, 1), idle: time.AfterFunc(backupIdle, func() { b.drop(id) })}
	b.open[id] = one
	b.work.Go(func() {
		_ = to.CloseWithError(backup.Write(to, state, taken)) // it never fails
	})
	return one, id, nil
}

func (b *Backups) drop(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(id)
}

// dropLocked is drop; mu is held.
func (b *Backups) dropLocked(id uint64) {
	if one, ok := b.open[id]; ok {
		delete(b.open, id)
		one.idle.Stop()
		_ = one.from.CloseWithError(errBackupDropped) // it never fails
	}
}

var errBackupDropped = api.Errorf(api.Unavailable, "the backup was given up; begin again")

// close gives all up, and waits for their goroutines. The epoch has ended, so that no more begin.
func (b *Backups) close() {
	b.mu.Lock()
	for id := range b.open {
		b.dropLocked(id)
	}
	b.mu.Unlock()
	b.work.Wait()
}
