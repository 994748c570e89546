package chubbylock

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// campaign returns the record of a leader that Get has not returned yet; or it gets the lock and
// returns the empty record. If the session is lost, it opens another.
func (l *Lock) campaign(ctx context.Context) (record, error) {
	for again := false; ; again = true {
		k, err := l.connect(ctx)
		if err != nil {
			return record{}, err
		}
		rec, err := l.contend(ctx, k)
		if isGone(err) {
			l.disconnect(ctx, k)
			if !again && ctx.Err() == nil {
				continue
			}
		}
		if err != nil && ctx.Err() != nil {
			return l.parting(err)
		}
		return rec, err
	}
}

// contend is a campaign in one session.
func (l *Lock) contend(ctx context.Context, k *link) (record, error) {
	for {
		heard := k.heard()
		rec, err := k.read(ctx)
		if err != nil && !errors.Is(err, api.NotFound) {
			return record{}, err
		}
		if fresh, err := l.isNews(ctx, k, rec); fresh || err != nil {
			return rec, err
		}
		waiting, done := k.waiting(ctx, heard)
		lock, err := k.file.Acquire(waiting, api.Exclusive, l.reason())
		done()
		switch {
		case err == nil:
			return l.claim(ctx, k, lock)
		case ctx.Err() == nil && errors.Is(err, api.Cancelled):
			continue // there is a newer record
		}
		return record{}, err
	}
}

// isNews reports whether a record names the current leader, and Get has not returned it yet.
func (l *Lock) isNews(ctx context.Context, k *link, rec record) (bool, error) {
	if rec.HolderIdentity == "" || rec.Sequencer == "" || rec.Sequencer == l.lastShown().Sequencer {
		return false, nil
	}
	if err := k.session.CheckSequencer(ctx, rec.Sequencer); errors.Is(err, api.BadSequencer) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	l.show(rec)
	return true, nil
}

// claim makes a claim from a granted lock, and returns the empty record; or NotFound if there has
// never been a leader.
func (l *Lock) claim(ctx context.Context, k *link, lock *client.Lock) (record, error) {
	t := newTerm(k, lock)
	rec, err := k.read(ctx)
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
	k, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	lock, err := k.file.TryAcquire(ctx, api.Exclusive, l.reason())
	if err == nil {
		_, err = l.claim(ctx, k, lock)
	}
	if isGone(err) {
		l.disconnect(ctx, k)
	}
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

// connect returns the session, or opens one if there is none.
func (l *Lock) connect(ctx context.Context) (*link, error) {
	l.mu.Lock()
	k := l.link
	l.mu.Unlock()
	if k != nil {
		return k, nil
	}
	k, err := dial(ctx, l.cfg)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.link = k
	l.mu.Unlock()
	return k, nil
}

// disconnect drops a session that can no longer be used; no work runs under it.
func (l *Lock) disconnect(ctx context.Context, k *link) {
	l.mu.Lock()
	l.link = nil
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	_ = k.close(ctx) // if it fails, the session ends with its lease
}
