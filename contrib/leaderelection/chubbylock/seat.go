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

// seat is the file of the election, open in a session, for one call.
type seat struct {
	session *client.Client
	file    *client.Handle
}

// seated calls f with the file open in the session that there is, or in another.
func (l *Lock) seated(ctx context.Context, f func(s *seat) error) error {
	return l.keeper.Do(ctx, func(c *client.Client) error {
		s, err := l.sit(ctx, c)
		if err != nil {
			return err
		}
		err = f(s)
		if isGone(err) {
			l.rise(ctx, s)
		}
		return err
	})
}

// sit returns the open file, or opens it if it is not open in this session. It creates the file if it
// is missing. (Calls of a Lock do not overlap.)
func (l *Lock) sit(ctx context.Context, c *client.Client) (*seat, error) {
	l.mu.Lock()
	file, session := l.file, l.session
	l.mu.Unlock()
	if file != nil && session == c.Session() {
		return &seat{c, file}, nil
	}
	file, err := c.Open(ctx, l.cfg.Path, client.OpenOptions{
		Read: true, Write: true, Create: client.File, Kind: api.File, LockDelay: l.cfg.LockDelay,
		Events: []api.EventKind{api.EventContentsModified},
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.file, l.session = file, c.Session()
	l.mu.Unlock()
	return &seat{c, file}, nil
}

// rise closes a file that can no longer be used; no work runs under its lock.
func (l *Lock) rise(ctx context.Context, s *seat) {
	l.mu.Lock()
	l.file = nil
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
	defer cancel()
	_ = s.file.Close(ctx) // in the background, if there is no answer
}

// untilNews returns a context for the wait for the lock, which also ends when another leader than that
// of the record has written its own; without a leader, the waiter gets the lock. The caller must call
// done, which waits for the goroutine that receives the events.
func (s *seat) untilNews(ctx context.Context, known record) (waiting context.Context, done func()) {
	waiting, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for _, err := range s.file.Events(waiting) {
			if err != nil {
				return // the wait is over; or the session or the handle is gone, and the wait fails too
			}
			rec, err := s.read(waiting)
			if none := err == nil && rec.HolderIdentity == "" || errors.Is(err, api.NotFound); none || err == nil && rec.Sequencer == known.Sequencer {
				continue // to wait again would be at the end of the queue
			}
			cancel()
		}
	})
	return waiting, func() {
		cancel()
		listening.Wait()
	}
}

// read returns the record in the file.
func (s *seat) read(ctx context.Context) (record, error) {
	contents, _, err := s.file.Contents(ctx)
	if err != nil {
		return record{}, err
	}
	return decode(contents)
}

// isGone reports whether an error means that a seat cannot be used any more.
func isGone(err error) bool {
	return errors.Is(err, api.SessionExpired) || errors.Is(err, api.HandleClosed) || errors.Is(err, api.BadHandle)
}
