package client

import (
	"container/list"
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// checkedLock is what is known of one lock. The mu of the CachingChecker guards it.
type checkedLock struct {
	path  api.Path
	place *list.Element // in recent
	good  sequencer.Sequencer
	sent  session.Instant // the question to which good is the answer
	epoch api.Epoch       // that the session had heard of when it was sent
	falls uint64          // how often what was known has fallen

	unwatch context.CancelFunc // ends the goroutine that watches it; nil if none does
	open    bool               // its events are told
	again   session.Instant    // not to be tried before
	said    bool               // that it cannot be watched
}

// stands reports whether an answer that was kept says that s is good; mu is held.
func (k *CachingChecker) stands(s sequencer.Sequencer, now session.Instant, epoch api.Epoch) bool {
	l := k.locks[s.Path]
	if l == nil || l.good != s || l.epoch != epoch || now.Sub(l.sent) >= k.maxAge {
		return false
	}
	k.recent.MoveToFront(l.place)
	return true
}

// keep keeps a good answer, unless what was known of the lock has fallen since
// the question was sent; mu is held.
func (k *CachingChecker) keep(s sequencer.Sequencer, q *question) {
	l := k.locks[s.Path]
	if l == nil {
		if len(k.locks) >= k.most {
			k.forget(k.recent.Back().Value.(*checkedLock))
		}
		l = &checkedLock{path: s.Path}
		l.place = k.recent.PushFront(l)
		k.locks[s.Path] = l
	}
	k.recent.MoveToFront(l.place)
	if l.falls == q.falls && l.sent <= q.sent {
		l.good, l.sent, l.epoch = s, q.sent, q.epoch
	}
	k.attend(l)
}

// forget makes room for another lock; mu is held.
func (k *CachingChecker) forget(l *checkedLock) {
	k.recent.Remove(l.place)
	delete(k.locks, l.path)
	if l.unwatch != nil {
		l.unwatch()
	}
}

// fall makes the next question about the lock be asked; mu is held.
func (l *checkedLock) fall() {
	l.good = sequencer.Sequencer{}
	l.falls++
}

// attend sees to it that the lock is watched; mu is held. Only a good answer
// leads here: for an invented sequencer nothing is opened.
func (k *CachingChecker) attend(l *checkedLock) {
	b := k.client.session
	if l.unwatch != nil || k.closed || k.watchers == k.most || b.ended.Err() != nil || b.clock() < l.again {
		return
	}
	ctx, cancel := context.WithCancel(k.base)
	l.unwatch = cancel
	k.watchers++
	k.running.Go(func() {
		defer cancel()
		err := k.watch(ctx, l)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.watchers--
		l.unwatch, l.open = nil, false
		l.fall()
		if err == nil || ctx.Err() != nil || b.ended.Err() != nil {
			return // or it was watched, and the node is gone
		}
		l.again = b.clock().Add(watchAgain)
		if !l.said {
			l.said = true
			b.notifier.log(func() {
				b.logger.Warn("a lock cannot be watched, so that good answers about its sequencers serve for their whole time, although it is lost meanwhile",
					"path", l.path, "session", b.id, "time", k.maxAge, "error", err)
			})
		}
	})
}

// watch lets what is known of a lock fall at each of its events, until ctx, the
// session or the node ends. An error says that it never was told of any.
func (k *CachingChecker) watch(ctx context.Context, l *checkedLock) error {
	h, err := k.client.Open(ctx, l.path.String(), OpenOptions{
		Read: true, Events: []api.EventKind{api.EventLockAcquired, api.EventLockVacant},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = h.Close(ctx) // what cannot be closed goes with the session
	}()
	stat, err := h.Stat(ctx)
	if err != nil {
		return err
	}
	if stat.Ephemeral {
		return api.Errorf(api.InvalidArgument, "its node is ephemeral, and the handle to watch it by would keep it alive; lock a permanent file")
	}
	k.mu.Lock()
	l.open = true
	l.fall() // what was told before this handle was open may have come to an end without an event
	k.mu.Unlock()
	for _, err := range h.Events(ctx) {
		k.mu.Lock()
		l.fall()
		k.mu.Unlock()
		if err != nil {
			break // the handle, the session or ctx is over
		}
	}
	return nil
}
