package client

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// How the master is looked for.
const (
	hedge        = 30 * time.Millisecond  // without an answer for so long, the next replica is asked as well
	straggle     = 200 * time.Millisecond // what a round waits for the last ones, once all others have answered
	firstPause   = 20 * time.Millisecond  // between two attempts, at first
	longestPause = 500 * time.Millisecond // and at last
)

// pause is the waits between attempts: each about half as long again as the one
// before, so that a call that waits for an election is not late by half of it, and
// jittered, so that clients that lost their master together do not come back
// together (Chubby §2.9; a new master must not be stormed).
type pause struct{ last time.Duration }

func (p *pause) next() time.Duration {
	p.last = min(max(p.last+p.last/2, firstPause), longestPause)
	return p.last/2 + rand.N(p.last/2+1)
}

// wait waits for the next pause to be over or ctx to end.
func (p *pause) wait(ctx context.Context) {
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// finder knows the master of a cell, or finds it. However many ask, one search
// runs, in a goroutine of its own, for as long as somebody waits for it.
type finder struct {
	cfg     Config
	pool    *pool
	resolve func(ctx context.Context) ([]string, error)
	running sync.WaitGroup // searches and look-ups; Add only under mu, and not after closed

	mu      sync.Mutex // guards what follows
	closed  bool
	master  *target   // believed; nil when none is
	former  *target   // the last believed
	search  *search   // running; nil when none is
	lookup  *lookup   // running; nil when none is
	said    []answer  // what the last round was told
	servers []string  // what the last round asked
	name    string    // the cell's own name, once a replica told it
	epoch   api.Epoch // the highest that any master was heard of in

	found session.Instant // when a master was found last
	vain  pause           // grows while it is the one before
	rest  session.Instant // no search begins before
}

// learn takes note that there is, or was, a master in that epoch.
func (f *finder) learn(epoch api.Epoch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch = max(f.epoch, epoch)
}

// latest returns the highest epoch that any master was heard of in.
func (f *finder) latest() api.Epoch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch
}

// ownName returns what the cell calls itself, or was called if it has not said.
func (f *finder) ownName(called string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.name, called)
}

// doubtful reports whether the one that says it is the master may not be: a later
// master was heard of, or it is the one that was believed and then forgotten
// because a call to it failed.
func (f *finder) doubtful(a answer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return api.Epoch(a.reply.GetEpoch()) < f.epoch || f.former != nil && f.former.matches(a)
}

// at returns the replica that answered. If that is the believed master, it is the
// one that is believed, whose calls go on, also if it was found by another address:
// a replica may be configured by one and name itself by another.
func (f *finder) at(a answer) (*target, error) {
	if believed := f.believed(); believed != nil && believed.matches(a) {
		return believed, nil
	}
	return f.pool.get(a.address)
}

// search is one search for the master.
type search struct {
	cancel  context.CancelFunc
	waiting int           // guarded by finder.mu
	done    chan struct{} // closed when what follows is set
	found   *target
	err     error
}

// answer is what one replica said when asked for the master.
type answer struct {
	address string
	reply   *chubbypb.LocateReply
	err     error
}

// String says it for people.
func (a answer) String() string {
	switch {
	case a.err != nil:
		return a.address + ": " + brief(a.err)
	case a.reply.GetMaster() == "":
		return a.address + " (" + a.reply.GetReplica() + ") knows of no master"
	}
	return a.address + " (" + a.reply.GetReplica() + ") believes that " + a.reply.GetMaster() + " at " + a.reply.GetMasterAddress() + " is the master"
}

// brief is an error of a call without the codes around it.
func brief(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

func (a answer) isMaster() bool {
	return a.err == nil && a.reply.GetMaster() != "" && a.reply.GetMaster() == a.reply.GetReplica()
}

// find returns the believed master, or looks for it until ctx ends.
func (f *finder) find(ctx context.Context) (*target, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, closedError()
	}
	if f.master != nil {
		defer f.mu.Unlock()
		return f.master, nil
	}
	s := f.search
	if s == nil {
		s = f.start(ctx)
	}
	s.waiting++
	f.mu.Unlock()

	select {
	case <-s.done:
		return s.found, s.err
	case <-ctx.Done():
		f.leave(s)
		return nil, contextError(ctx)
	}
}

// start begins a search; f.mu is held. The search outlives the ctx of the one
// who happens to ask first.
func (f *finder) start(ctx context.Context) *search {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &search{cancel: cancel, done: make(chan struct{})}
	f.search = s
	f.running.Go(func() {
		defer cancel()
		found, err := f.look(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.search == s {
			f.search = nil
		}
		s.found, s.err = found, err
		close(s.done)
	})
	return s
}

// leave stops a search that nobody waits for any more.
func (f *finder) leave(s *search) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.waiting--; s.waiting == 0 && f.search == s {
		s.cancel()
		f.search = nil
	}
}

// doubt joins the search for the master, and begins it if there is none, while t
// is believed to be the master. It returns nil if t is not, or no search can be.
func (f *finder) doubt(ctx context.Context, t *target) *search {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.master != t {
		return nil
	}
	s := f.search
	if s == nil {
		s = f.start(ctx)
	}
	s.waiting++
	return s
}

// look makes round after round.
func (f *finder) look(ctx context.Context) (*target, error) {
	var p pause
	var refused refusals
	var said searchLog
	if f.breathe(ctx); ctx.Err() != nil {
		return nil, closedError() // as below
	}
	q := f.inquire(ctx)
	defer q.end()
	for {
		believed := f.believed()
		found, err := f.round(ctx, q)
		if err == nil && found == nil {
			err = refused.count(f)
		}
		if err != nil {
			return nil, err
		}
		if found != nil {
			q.end() // or those who are being asked are not forgotten
			return f.adopt(found, believed), nil
		}
		said.note(ctx, f)
		if p.wait(ctx); ctx.Err() != nil {
			return nil, closedError() // nobody waits any more, or close was called
		}
	}
}

// known returns the addresses of the replicas that calls may be sent to.
func (f *finder) known() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.Clone(f.servers)
	if f.former != nil {
		list = append(list, f.former.address)
	}
	return list
}

// believed returns the believed master; nil if none is.
func (f *finder) believed() *target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.master
}

// ready returns the master that find would return without a wait; nil if find would
// wait or fail.
func (f *finder) ready() *target {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	return f.master
}

// adopt makes t the believed master instead of another, or of none, and tells
// those who still talk to the one before. If a third is believed by now, that was
// learned later, and stays. It returns the believed master.
func (f *finder) adopt(t, instead *target) *target {
	f.mu.Lock()
	if f.master != nil && f.master != instead {
		defer f.mu.Unlock()
		return f.master
	}
	former := f.former
	f.master, f.former = t, t
	f.pace(former == t)
	keep := append(slices.Clone(f.servers), t.address)
	f.mu.Unlock()
	if former != nil && former != t {
		former.supersede()
	}
	f.pool.retain(keep)
	return t
}

// pace has the next search begin after a pause if this one has found again whom calls to
// had failed: they may fail for a reason that no search finds, such as that there is no
// connection for them, and each would begin another. The pauses grow until a search finds
// somebody else, or none was needed for a while; f.mu is held.
func (f *finder) pace(again bool) {
	now := f.cfg.Clock()
	if !again || now.Sub(f.found) > 2*longestPause {
		f.vain = pause{}
	}
	f.found, f.rest = now, now
	if again {
		f.rest = now.Add(f.vain.next())
	}
}

// breathe waits until a search may begin, or ctx ends.
func (f *finder) breathe(ctx context.Context) {
	f.mu.Lock()
	wait := f.rest.Sub(f.cfg.Clock())
	f.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(min(wait, longestPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// drop forgets that t is the master.
func (f *finder) drop(t *target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.master == t {
		f.master = nil
	}
}

// follow takes t's word that the master is at another address, if t is still
// believed; it reports whether there is somebody to ask now.
func (f *finder) follow(t *target, address string) bool {
	if believed := f.believed(); believed != t {
		return believed != nil
	}
	if address == "" || address == t.address {
		f.drop(t)
		return false
	}
	next, err := f.pool.get(address)
	if err != nil {
		f.drop(t)
		return false
	}
	f.adopt(next, t)
	return true
}

// close stops the search and waits for it.
func (f *finder) close() {
	f.mu.Lock()
	f.closed = true
	if f.search != nil {
		f.search.cancel()
	}
	if f.lookup != nil {
		f.lookup.cancel()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// diagnosis says what the last round was told, for people.
func (f *finder) diagnosis() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.said) == 0 {
		return ""
	}
	var parts []string
	for _, a := range f.said {
		parts = append(parts, a.String())
	}
	return "asked for the master: " + strings.Join(parts, "; ")
}
