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
	return now.Sub(last) <= maxSilence
}

// awaitSignOfLife reports whether a call that was parked, and has nothing to bring, is to be
// answered without a grant, because its client has shown no sign of life lately: it
// comes back at once, if it is there, and has the grant then. Of sessions that
// share a connection one is asked so; the others wait for what that brings.
func (s *Sessions) awaitSignOfLife(ctx context.Context, c Caller, p *parked, client signsOfLife) (bool, error) {
	now := s.epoch.clock()
	if client.isFresh(now) || s.hasNews(c) {
		return false, nil
	}
	wait := s.leaseOf(c.Session) / replyTogether
	if client.conn != nil && !client.conn.AskForLife(now, now.Add(-wait)) {
		p.await(ctx, wait)
		if err := s.check(ctx, p); err != nil {
			return false, err
		}
		if client.isFresh(s.epoch.clock()) || s.hasNews(c) {
			return false, nil
		}
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	if box := s.boxes.byID[c.Session]; box != nil {
		box.unpark(p)
		box.asked = true
	}
	return true, nil
}

// hasNews reports whether there is something to tell a session.
func (s *Sessions) hasNews(c Caller) bool {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box := s.boxes.byID[c.Session]
	return box == nil || len(box.events) > 0
}
