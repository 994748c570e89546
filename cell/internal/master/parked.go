package master

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// parked is a KeepAlive that waits.
type parked struct {
	mu     sync.Mutex // guards the fields below; innermost, also under epoch.mu
	woken  bool       // there are events, or nothing to wait for
	due    bool       // answer it now
	over   bool       // a newer KeepAlive has replaced it
	resume func()     // nil before notify
}

// Wake resumes the call.
func (p *parked) Wake() { p.signal(&p.woken) }

// hurry has the call answered now, even without events.
func (p *parked) hurry() { p.signal(&p.due) }

func (p *parked) signal(flag *bool) {
	p.mu.Lock()
	*flag = true
	resume := p.resume
	p.mu.Unlock()
	if resume != nil {
		resume()
	}
}

// isDue reports whether to answer the call now.
func (p *parked) isDue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.due || p.over
}

// rest lets a woken call wait on.
func (p *parked) rest() {
	p.mu.Lock()
	p.woken, p.resume = false, nil
	p.mu.Unlock()
}

// Replace ends the call because of a newer one.
func (p *parked) Replace() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.Wake()
}

func (p *parked) isReplaced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// notify calls resume when the call is woken, or at once if it was.
func (p *parked) notify(resume func()) {
	p.mu.Lock()
	p.resume = resume
	woken := p.woken
	p.mu.Unlock()
	if woken {
		resume()
	}
}

// forget releases the call. Its session's mailbox may have p for as long as the session lasts, which may be long after the
// end of the call's connection.
func (p *parked) forget() {
	p.mu.Lock()
	p.resume = nil
	p.mu.Unlock()
}

// KeepAlive is a call being served, by one goroutine at a time.
type KeepAlive struct {
	sessions *Sessions
	caller   Caller
	receipt  session.Instant
	conn     Connection      // nil if unknown
	number   uint64          // of the session's calls
	told     uint64          // the newest event the client has, or this call told
	place    *parked         // nil if the answer is due at once
	due      session.Instant // of the answer, if the call waits
	timer    *time.Timer     // for due; nil before Notify
	proof    proof           // none before Prove has resumed it
}

// proof is the result of a proof of the mastership, and what was granted if it succeeded.
type proof struct {
	known         bool
	lease, wanted time.Duration // see leasesOf; from before it began, since later the log may be the next master's
	t0            session.Instant
	err           error
}

// Waits reports whether the answer is not due yet.
func (k *KeepAlive) Waits() bool { return k.place != nil }

// Notify calls resume when there are events, the answer is due, or the epoch has ended; at once if the call does
// not wait. It may do so several times, with locks held: resume must not block. The transport resumes a call that
// has ended.
func (k *KeepAlive) Notify(resume func()) {
	if !k.Waits() {
		resume()
		return
	}
	if k.timer == nil {
		k.timer = time.AfterFunc(k.due.Sub(k.sessions.epoch.clock()), k.place.hurry) // the call may have waited to be parked
	}
	k.place.notify(resume)
	if k.place.isDue() { // since before notify
		resume()
	}
}

// IsHeard reports whether Finish would wait for nothing but a proof, because the client has been heard of lately.
func (k *KeepAlive) IsHeard() bool {
	return !k.Waits() || k.isFresh(k.sessions.epoch.clock()) || k.sessions.hasNews(k)
}

// Prove calls resume when the mastership has been proved, so that Finish does not wait. resume must not block. The
// transport resumes a call that has ended.
func (k *KeepAlive) Prove(resume func()) {
	lease, wanted := k.sessions.leasesOf(k.caller.Session)
	//mutant: func(then func(session.Instant, error)) { then(k.sessions.epoch.clock(), nil) }(func(t0 session.Instant, err error) { //by TestDeposedMaster of ./cell
	k.sessions.epoch.fence.Then(func(t0 session.Instant, err error) {
		k.proof = proof{known: true, lease: lease, wanted: wanted, t0: t0, err: err}
		resume()
	})
}

// Tell returns events for the client while its call waits on; none if the call should finish now. They take
// nothing away, so nothing waits for their acknowledgement; they extend no lease, so they need no proof of
// leadership.
func (k *KeepAlive) Tell() []*Event {
	s := k.sessions
	if !k.Waits() {
		return nil
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box, ok := s.boxes.ByID[k.caller.Session]
	if !ok || box.Calls != k.number || s.epoch.ctx.Err() != nil || k.place.isDue() {
		return nil
	}
	events := box.TakeAside(k.told)
	if len(events) == 0 {
		return nil
	}
	k.told = events[len(events)-1].Sequence
	k.place.rest()
	box.Parked = k.place
	return events
}

// await returns when the call is woken, after that time, or when ctx has ended.
func (p *parked) await(ctx context.Context, longest time.Duration) {
	woken := make(chan struct{})
	p.notify(sync.OnceFunc(func() { close(woken) }))
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
}

var errReplaced = api.Errorf(api.Cancelled, "a newer KeepAlive of the session has taken the place of this one")

// check returns why a call gets no answer; nil if it gets one. p is nil if it did not wait.
func (s *Sessions) check(ctx context.Context, p *parked) error {
	switch {
	case p != nil && p.isReplaced():
		return errReplaced
	case s.epoch.ctx.Err() != nil:
		return context.Cause(s.epoch.ctx)
	case ctx.Err() != nil:
		return &api.Error{Code: api.Cancelled, Message: "the call ended while it was parked", Err: context.Cause(ctx)}
	}
	return nil
}

// Finish answers the call: it proves the mastership, unless Prove has, and grants the lease from the start of that
// proof. Only if the call has not ended it reads what Prove writes.
func (k *KeepAlive) Finish(ctx context.Context) (Extension, error) {
	k.Abandon()
	s := k.sessions
	if err := s.check(ctx, k.place); err != nil {
		return Extension{}, err
	}
	p := k.proof
	if !p.known {
		if silent, err := s.awaitSignOfLife(ctx, k); silent || err != nil {
			return Extension{}, err
		}
		p.lease, p.wanted = s.leasesOf(k.caller.Session)
		//mutant: p.t0 = s.epoch.clock() //by TestSilentHolder of ./cell
		p.t0, p.err = s.epoch.fence.Prove(ctx)
	}
	if p.err != nil {
		return Extension{}, p.err
	}
	//mutant: p.t0 = s.epoch.clock(); return s.extendLease(k, p)
	//mutant: p.lease, p.wanted = s.leasesOf(k.caller.Session); return s.extendLease(k, p)
	return s.extendLease(k, p)
}

// Abandon releases what a call holds.
func (k *KeepAlive) Abandon() {
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.Waits() {
		//mutant: _ = k.place.forget
		k.place.forget()
	}
}

// endCalls wakes every parked call, at the end of the epoch.
func (s *Sessions) endCalls() {
	mu := s.epoch.mu.holdPatiently()
	defer mu.end()
	for _, box := range s.boxes.ByID {
		box.WakeCall()
		mu.pause(1)
	}
}

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

// isFresh reports whether there was a recent sign of life of a call's client.
func (k *KeepAlive) isFresh(now session.Instant) bool {
	last := k.receipt
	if k.conn != nil {
		last = max(last, k.conn.LastArrival())
	}
	//mutant: _ = now.Sub(last); return true //by TestSilentHolder of ./cell
	return now.Sub(last) <= maxSilence
}

// awaitSignOfLife reports whether to answer a parked call without news and without a grant, because its
// client is silent. A live client calls again at once, and gets the grant. One session of a connection is
// asked so; others wait for the result.
func (s *Sessions) awaitSignOfLife(ctx context.Context, k *KeepAlive) (bool, error) {
	if k.IsHeard() {
		return false, nil
	}
	now := s.epoch.clock()
	wait := s.leaseOf(k.caller.Session) / replyTogether
	if k.conn != nil && !k.conn.AskForLife(now, now.Add(-wait)) {
		k.place.await(ctx, wait)
		if err := s.check(ctx, k.place); err != nil {
			return false, err
		}
		if k.isFresh(s.epoch.clock()) || s.hasNews(k) {
			return false, nil
		}
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	if box := s.boxes.ByID[k.caller.Session]; box != nil {
		box.Unpark(k.place)
		box.Asked = true
	}
	return true, nil
}

// hasNews reports whether a call has events to bring.
func (s *Sessions) hasNews(k *KeepAlive) bool {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box := s.boxes.ByID[k.caller.Session]
	return box == nil || len(box.After(k.told)) > 0
}
