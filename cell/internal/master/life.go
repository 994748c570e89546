package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/session"
)

// maxSilence is how long before the start of a grant the client must have shown a
// sign of life at the latest. A KeepAlive that was parked for longer is none: its
// client may have been stopped since, or its network be silent, and the master
// would begin a whole lease for somebody who has gone. So what a client that falls
// silent holds is free after lease, lock-delay and this, however it fell silent.
//
// Whatever arrives over the connection of the session's KeepAlives is a sign of life:
// sessions that share one seldom have to give another.
const maxSilence = time.Second

// Connection is the connection of a session's KeepAlives, which other sessions may share.
type Connection interface {
	// LastArrival returns when anything last arrived over it.
	LastArrival() session.Instant
	// AskForLife reports whether a sign of life is to be asked for over the connection:
	// if that was not done after since. It counts as asked for at now.
	AskForLife(now, since session.Instant) bool
}

// signsOfLife is what is known of the life of a call's client.
type signsOfLife struct {
	receipt session.Instant // of the call
	conn    Connection      // nil if it is not known
}

// isFresh reports whether there was a sign of life lately.
func (s signsOfLife) isFresh(now session.Instant) bool {
	last := s.receipt
	if s.conn != nil {
		last = max(last, s.conn.LastArrival())
	}
	//mutant: _ = now.Sub(last); return true //by TestSilentHolder of ./cell
	return now.Sub(last) <= maxSilence
}

// awaitSignOfLife reports whether a call that was parked, and has nothing to bring, is to be
// answered without a grant, because its client has shown no sign of life lately: it
// comes back at once, if it is there, and has the grant then. Of sessions that
// share a connection one is asked so; the others wait for what that brings.
func (s *Sessions) awaitSignOfLife(ctx context.Context, k *KeepAlive) (bool, error) {
	now := s.epoch.clock()
	if k.client.isFresh(now) || s.hasNews(k) {
		return false, nil
	}
	wait := s.leaseOf(k.caller.Session) / replyTogether
	if k.client.conn != nil && !k.client.conn.AskForLife(now, now.Add(-wait)) {
		k.place.await(ctx, wait)
		if err := s.check(ctx, k.place); err != nil {
			return false, err
		}
		if k.client.isFresh(s.epoch.clock()) || s.hasNews(k) {
			return false, nil
		}
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	if box := s.boxes.byID[k.caller.Session]; box != nil {
		box.unpark(k.place)
		box.asked = true
	}
	return true, nil
}

// hasNews reports whether there is something that a call has yet to tell.
func (s *Sessions) hasNews(k *KeepAlive) bool {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box := s.boxes.byID[k.caller.Session]
	return box == nil || len(box.after(k.told)) > 0
}
