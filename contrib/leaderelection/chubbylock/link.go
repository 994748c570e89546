package chubbylock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// partingTime bounds calls to the cell that have no caller's context, or must not use it. The
// client library, or the end of the lease, finishes the rest.
const partingTime = time.Second

// link is a session with the file open in it.
type link struct {
	session *client.Client
	file    *client.Handle

	stop     context.CancelFunc // ends the goroutine that receives events
	watching sync.WaitGroup

	mu    sync.Mutex         // guards what follows
	news  uint64             // counts the records of new leaders
	rouse context.CancelFunc // ends the wait for the lock; nil without one
}

// dial opens a session, which ends with ctx, and the file. It creates the file
// if it is missing.
func dial(ctx context.Context, cfg Config) (*link, error) {
	c, err := client.New(ctx, cfg.Client)
	if err != nil {
		return nil, err
	}
	k := &link{session: c}
	k.file, err = c.Open(ctx, cfg.Path, client.OpenOptions{
		Read: true, Write: true, Create: client.File, Kind: api.File, LockDelay: cfg.LockDelay,
		Events: []api.EventKind{api.EventContentsModified},
	})
	if err != nil {
		_ = c.Close(ctx) // if it fails, the session ends with its lease
		return nil, err
	}
	listening, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	k.watching.Go(func() { k.listen(listening) })
	return k, nil
}

// listen ends the wait for the lock when there is a new leader to report. Without a leader, the
// waiter gets the lock.
func (k *link) listen(ctx context.Context) {
	for _, err := range k.file.Events(ctx) {
		if err != nil {
			return // the session or the handle is gone, and the wait for the lock fails too
		}
		if rec, err := k.read(ctx); err == nil && rec.HolderIdentity == "" || errors.Is(err, api.NotFound) {
			continue
		}
		k.mu.Lock()
		k.news++
		if k.rouse != nil {
			k.rouse()
		}
		k.mu.Unlock()
	}
}

// heard returns the number of records so far, for waiting.
func (k *link) heard() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.news
}

// waiting returns a context that also ends when there are more than heard
// records.
func (k *link) waiting(ctx context.Context, heard uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rouse = cancel
	if k.news != heard {
		cancel()
	}
	return ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.rouse = nil
		cancel()
	}
}

// read returns the record in the file.
func (k *link) read(ctx context.Context) (record, error) {
	contents, _, err := k.file.Contents(ctx)
	if err != nil {
		return record{}, err
	}
	return decode(contents)
}

// write writes a record, if the lock is still held.
func (k *link) write(ctx context.Context, rec record, lock *client.Lock) error {
	contents, err := rec.encode()
	if err == nil {
		_, err = k.file.SetContents(ctx, contents, client.IfSequencer(lock.Sequencer()))
	}
	return err
}

// close ends the session. It tells the cell that no work under its locks
// continues.
func (k *link) close(ctx context.Context) error {
	k.stop()
	err := k.session.Close(ctx)
	k.watching.Wait()
	return err
}

// abandon ends the session only in this process. The cell is not told, and keeps the session's
// locks until lease and lock-delay have ended.
func (k *link) abandon(ctx context.Context) {
	_ = k.session.Cell().Close() // it never fails
	_ = k.close(ctx)             // it cannot tell the cell
}

// isGone reports whether an error means that a link cannot be used any more.
func isGone(err error) bool {
	return errors.Is(err, api.SessionExpired) || errors.Is(err, api.HandleClosed) || errors.Is(err, api.BadHandle)
}
