package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/session"
)

// maxSilence is the max time from a client's last sign of life to the start of a grant. A KeepAlive parked
// for longer is no such sign: its client may have stopped, or lost the network. So a silent client's locks
// are free after lease, lock-delay and maxSilence.
//
// Any arrival on the connection is a sign of life, so sessions that share one seldom need another.
const maxSilence = time.Second

// Connection is the connection of a session's KeepAlives, which sessions may share.
type Connection interface {
	// LastArrival returns when data last arrived.
	LastArrival() session.Instant
	// AskForLife reports whether to ask for a sign of life: true if no call has asked after since. Then it
	// counts as asked at now.
	AskForLife(now, since session.Instant) bool
}

// signsOfLife is what a call's client showed of its life.
type signsOfLife struct {
	receipt session.Instant // of the call
	conn    Connection      // nil if unknown
}

// isFresh reports whether there was a recent sign of life.
func (s signsOfLife) isFresh(now session.Instant) bool {
	last := s.receipt
	if s.conn != nil {
		last = max(last, s.conn.LastArrival())
	}
	//mutant: _ = now.Sub(last); return true //by TestSilentHolder of ./cell
	return now.Sub(last) <= maxSilence
}

// awaitSignOfLife reports whether to answer a parked call without news and without a grant, because its
// client is silent. A live client calls again at once, and gets the grant. One session of a connection is
// asked so; others wait for the result.
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

// hasNews reports whether a call has events to bring.
func (s *Sessions) hasNews(k *KeepAlive) bool {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box := s.boxes.byID[k.caller.Session]
	return box == nil || len(box.after(k.told)) > 0
}
