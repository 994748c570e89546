package client

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

const (
	hedgeDelay     = 30 * time.Millisecond  // without an answer by then, the next replica is asked too
	stragglerDelay = 200 * time.Millisecond // how long a round waits for the last answers, after most
	minPause       = 20 * time.Millisecond  // the first pause between two attempts
	maxPause       = 500 * time.Millisecond // the longest
)

// retryPause is the pause between two attempts, each about half as long again as the one before: if they
// doubled, a call that waits for an election would on average end too late by half of it. Jitter spreads the
// clients that lost their master together (Chubby §2.9).
type retryPause struct{ last time.Duration }

func (p *retryPause) next() time.Duration {
	p.last = min(max(p.last+p.last/2, minPause), maxPause)
	return p.last/2 + rand.N(p.last/2+1)
}

func (p *retryPause) wait(ctx context.Context) {
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// locator knows the master of a cell, or finds it. One search, in its own goroutine, runs for all waiting
// callers. The master is "believed", as another may have been elected since.
type locator struct {
	cfg     Config
	pool    *pool
	resolve func(ctx context.Context) ([]string, error)
	running sync.WaitGroup // searches, look-ups and followServers; Add only under mu, and not after closed

	mu           sync.Mutex // guards what follows; target.mu may be taken under it
	closed       bool
	master       *target        // the believed master, or nil
	lastMaster   *target        // the last believed master
	search       *search        // the running one, or nil
	lookup       *lookup        // the running one, or nil
	lastAnswers  []locateAnswer // of the last round
	servers      serverList
	cellName     string    // the cell's own name, once a replica has reported it
	highestEpoch api.Epoch // the highest of any known master

	foundAt      session.Instant // when a master was last found
	searchPause  retryPause      // between searches that find the same master again
	nextSearchAt session.Instant // no search begins before
}

func (l *locator) noteEpoch(epoch api.Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highestEpoch = max(l.highestEpoch, epoch)
}

func (l *locator) latestEpoch() api.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highestEpoch
}

// cellNameOr returns the cell's own name, or called until a replica has reported it.
func (l *locator) cellNameOr(called string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.cellName, called)
}

// isDoubtful reports whether a replica that claims to be the master may not be: a later epoch is known, or
// the replica was believed to be the master until a call to it failed.
func (l *locator) isDoubtful(a locateAnswer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return api.Epoch(a.reply.GetEpoch()) < l.highestEpoch || l.lastMaster != nil && l.lastMaster.matches(a)
}

// targetOf returns the replica that answered. For the believed master it returns that target, whatever the
// address, so that calls go on. (A replica may be configured by one address and name itself by another.)
func (l *locator) targetOf(a locateAnswer) (*target, error) {
	if believed := l.believedMaster(); believed != nil && believed.matches(a) {
		return believed, nil
	}
	return l.pool.get(a.address)
}

type search struct {
	cancel  context.CancelFunc
	waiters int           // guarded by locator.mu
	done    chan struct{} // closed when all below is set
	found   *target
	err     error
}

// locateAnswer is one replica's answer to a Locate, or why it is missing.
type locateAnswer struct {
	address string
	reply   *chubbypb.LocateReply
	err     error
}

// String returns the answer as text for people.
func (a locateAnswer) String() string {
	switch {
	case a.err != nil:
		return a.address + ": " + brief(a.err)
	case a.reply.GetMaster() == "":
		return a.address + " (" + a.reply.GetReplica() + ") knows of no master"
	}
	return a.address + " (" + a.reply.GetReplica() + ") believes that " + a.reply.GetMaster() + " at " + a.reply.GetMasterAddress() + " is the master"
}

func brief(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

func (a locateAnswer) isMaster() bool {
	return a.err == nil && a.reply.GetMaster() != "" && a.reply.GetMaster() == a.reply.GetReplica()
}

func (l *locator) locate(ctx context.Context) (*target, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, closedError()
	}
	if l.master != nil {
		defer l.mu.Unlock()
		return l.master, nil
	}
	s := l.search
	if s == nil {
		s = l.startSearch(ctx)
	}
	s.waiters++
	l.mu.Unlock()

	select {
	case <-s.done:
		return s.found, s.err
	case <-ctx.Done():
		l.leaveSearch(s)
		return nil, contextError(ctx)
	}
}

// startSearch starts a search; mu is held. The search outlives ctx, which is only the first caller's.
func (l *locator) startSearch(ctx context.Context) *search {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &search{cancel: cancel, done: make(chan struct{})}
	l.search = s
	l.running.Go(func() {
		defer cancel()
		found, err := l.runSearch(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.search == s {
			l.search = nil
		}
		s.found, s.err = found, err
		close(s.done)
	})
	return s
}

// leaveSearch ends the wait of one caller. The last stops the search.
func (l *locator) leaveSearch(s *search) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.waiters--; s.waiters == 0 && l.search == s {
		s.cancel()
		l.search = nil
	}
}

// joinSearch joins or starts the search for the master, although t is believed to be it; nil if t is not, or
// after close.
func (l *locator) joinSearch(ctx context.Context, t *target) *search {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.master != t {
		return nil
	}
	s := l.search
	if s == nil {
		s = l.startSearch(ctx)
	}
	s.waiters++
	return s
}

func (l *locator) runSearch(ctx context.Context) (*target, error) {
	var p retryPause
	var refused refusedRounds
	var log searchLog
	if l.awaitNextSearch(ctx); ctx.Err() != nil {
		return nil, closedError() // for no caller, as below
	}
	q := l.newInquiry(ctx)
	defer q.cancelAll()
	for {
		believed := l.believedMaster()
		found, err := l.runRound(ctx, q)
		if err == nil && found == nil {
			err = refused.noteFailedRound(l)
		}
		if err != nil {
			return nil, err
		}
		if found != nil {
			q.cancelAll() // before setMaster: pool.retain keeps replicas with pending questions
			return l.setMaster(found, believed), nil
		}
		log.noteFailedRound(ctx, l)
		if p.wait(ctx); ctx.Err() != nil {
			return nil, closedError() // no caller waits any more, or close was called
		}
	}
}

func (l *locator) knownAddresses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.servers.all()
	if l.lastMaster != nil {
		list = append(list, l.lastMaster.address)
	}
	return list
}

func (l *locator) believedMaster() *target {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.master
}

// ready returns the result of locate without a wait; nil if locate would wait or fail.
func (l *locator) ready() *target {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	return l.master
}

// setMaster makes t the believed master in place of instead, which may be nil, and cancels the calls to the
// previous one. A third believed master is newer knowledge, and stays. It returns the believed master.
func (l *locator) setMaster(t, instead *target) *target {
	l.mu.Lock()
	if l.master != nil && l.master != instead {
		defer l.mu.Unlock()
		return l.master
	}
	former := l.lastMaster
	l.master, l.lastMaster = t, t
	l.paceSearches(former == t)
	keep := append(l.servers.all(), t.address)
	l.mu.Unlock()
	if former != nil && former != t {
		former.supersede()
	}
	l.pool.retain(keep)
	return t
}

// paceSearches delays the next search if this one has found the same master again: calls to it may fail for a
// reason that no search can find, such as a lack of connections. The pauses grow until a search finds another
// master, or none was needed for a while; mu is held.
func (l *locator) paceSearches(again bool) {
	now := l.cfg.Clock()
	if !again || now.Sub(l.foundAt) > 2*maxPause {
		l.searchPause = retryPause{}
	}
	l.foundAt, l.nextSearchAt = now, now
	if again {
		l.nextSearchAt = now.Add(l.searchPause.next())
	}
}

func (l *locator) awaitNextSearch(ctx context.Context) {
	l.mu.Lock()
	wait := l.nextSearchAt.Sub(l.cfg.Clock())
	l.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(min(wait, maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *locator) forgetMaster(t *target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.master == t {
		l.master = nil
	}
}

// redirect believes t, if t is the believed master, that another address is the master's. It
// reports whether there is a believed
// master now.
func (l *locator) redirect(t *target, address string) bool {
	if believed := l.believedMaster(); believed != t {
		return believed != nil
	}
	if address == "" || address == t.address {
		l.forgetMaster(t)
		return false
	}
	next, err := l.pool.get(address)
	if err != nil {
		l.forgetMaster(t)
		return false
	}
	l.setMaster(next, t)
	return true
}

func (l *locator) close() {
	l.mu.Lock()
	l.closed = true
	if l.search != nil {
		l.search.cancel()
	}
	if l.lookup != nil {
		l.lookup.cancel()
	}
	l.mu.Unlock()
	l.running.Wait()
}

func (l *locator) diagnosis() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lastAnswers) == 0 {
		return ""
	}
	var parts []string
	for _, a := range l.lastAnswers {
		parts = append(parts, a.String())
	}
	return "asked for the master: " + strings.Join(parts, "; ")
}
