package chubbylock

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// campaign returns the record of a leader that Get has not returned yet; or it gets the lock and
// returns the empty record. If the session is lost, or the file deleted, it begins again once.
func (l *Lock) campaign(ctx context.Context) (rec record, err error) {
	for again := false; ; again = true {
		err = l.seated(ctx, func(s *seat) (err error) {
			rec, err = l.contend(ctx, s)
			return err
		})
		switch {
		case isGone(err) && !again && ctx.Err() == nil:
		case err != nil && ctx.Err() != nil:
			return l.parting(err)
		default:
			return rec, err
		}
	}
}

// contend is a campaign in one session.
func (l *Lock) contend(ctx context.Context, s *seat) (record, error) {
	for {
		rec, err := s.read(ctx)
		if err != nil && !errors.Is(err, api.NotFound) {
			return record{}, err
		}
		if fresh, err := l.isNews(ctx, s, rec); fresh || err != nil {
			return rec, err
		}
		waiting, done := s.untilNews(ctx, rec)
		lock, err := s.file.Acquire(waiting, api.Exclusive, l.reason())
		done()
		switch {
		case err == nil:
			return l.claim(ctx, s, lock)
		case ctx.Err() == nil && errors.Is(err, api.Cancelled):
			continue // there is a newer record
		}
		return record{}, err
	}
}

// isNews reports whether a record names the current leader, and Get has not returned it yet.
func (l *Lock) isNews(ctx context.Context, s *seat, rec record) (bool, error) {
	if rec.HolderIdentity == "" || rec.Sequencer == "" || rec.Sequencer == l.lastShown().Sequencer {
		return false, nil
	}
	if err := s.session.CheckSequencer(ctx, rec.Sequencer); errors.Is(err, api.BadSequencer) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	l.show(rec)
	return true, nil
}

// claim makes a claim from a granted lock, and returns the empty record; or NotFound if there has
// never been a leader.
func (l *Lock) claim(ctx context.Context, s *seat, lock *client.Lock) (record, error) {
	t := newTerm(l.keeper, s.file, lock)
	rec, err := s.read(ctx)
	if err != nil && !errors.Is(err, api.NotFound) {
		_ = t.release(ctx) // if it fails, the lock ends with the lease
		return record{}, err
	}
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
	return record{LeaderElectionRecord: vacant(rec.LeaderElectionRecord)}, err
}

// try takes the lock for a claim that no Get preceded.
func (l *Lock) try(ctx context.Context) (*term, error) {
	err := l.seated(ctx, func(s *seat) error {
		lock, err := s.file.TryAcquire(ctx, api.Exclusive, l.reason())
		if err == nil {
			_, err = l.claim(ctx, s, lock)
		}
		return err
	})
	if t := l.current(); t != nil {
		return t, nil
	}
	return nil, err
}

// parting is the result of a Get whose context ends while it waits: the last known leader. With it
// the elector ends without an error in its log.
func (l *Lock) parting(err error) (record, error) {
	rec := l.lastShown()
	l.show(record{}) // the next elector has not seen it
	if rec.HolderIdentity == "" {
		return rec, err
	}
	return rec, nil
}

func (l *Lock) lastShown() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown
}

func (l *Lock) show(rec record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = rec
}

// reason is the lock's reason, which others see.
func (l *Lock) reason() client.LockOption {
	if text := "leads as " + l.cfg.Identity; len(text) <= api.MaxReason {
		return client.Reason(text)
	}
	return client.Reason("leads")
}
