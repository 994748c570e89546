package client

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// locator knows the master of a cell, or finds it. One search, in its own goroutine, runs for all waiting
// callers. The master is "believed", as another may have been elected since.
type locator struct {
	cfg     Config
	pool    *pool // its close ends the searches and look-ups
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

// locate returns the believed master, or waits for one until ctx ends, or ended is closed, which may be nil.
func (l *locator) locate(ctx context.Context, ended <-chan struct{}) (*target, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, closedError()
	}
	if l.master != nil {
		defer l.mu.Unlock()
		return l.master, nil
	}
	s := l.joinLocked()
	l.mu.Unlock()
	if err := awaitClosed(ctx, ended, s.done); err != nil {
		l.leaveSearch(s)
		return nil, err
	}
	return s.found, s.err
}

// joinLocked joins the running search for the master, or starts one, which outlives its first caller; mu is
// held.
func (l *locator) joinLocked() *search {
	if l.search == nil {
		s := newSearch(l)
		l.search = s
		l.running.Go(func() {
			defer s.cancel()
			found, err := s.run()
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.search == s {
				l.search = nil
			}
			s.found, s.err = found, err
			close(s.done)
		})
	}
	l.search.waiters++
	return l.search
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
func (l *locator) joinSearch(t *target) *search {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.master != t {
		return nil
	}
	return l.joinLocked()
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

// believedMaster returns the result of locate without a wait; nil if locate would wait or fail.
func (l *locator) believedMaster() *target {
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
	retained := append(l.servers.all(), t.address)
	l.mu.Unlock()
	if former != nil && former != t {
		former.supersede()
	}
	l.pool.retain(retained)
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
	sleep(ctx, min(wait, maxPause))
}

func (l *locator) forgetMaster(t *target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.master == t {
		l.master = nil
	}
}

// redirect believes t, if t is the believed master, that another address is the master's. It reports whether
// there is a believed master now.
func (l *locator) redirect(t *target, address string) bool {
	if believed := l.believedMaster(); believed != t {
		return believed != nil
	}
	if address != "" && address != t.address {
		if next, err := l.pool.get(address); err == nil {
			l.setMaster(next, t)
			return true
		}
	}
	l.forgetMaster(t)
	return false
}

// close returns when the goroutines have ended. The pool was closed before.
func (l *locator) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.running.Wait()
}

// locateAnswer is one replica's answer to a Locate, or why it is missing.
type locateAnswer struct {
	address string
	reply   *chubbypb.LocateReply
	err     error
}

func (a locateAnswer) isMaster() bool {
	return a.err == nil && a.reply.GetMaster() != "" && a.reply.GetMaster() == a.reply.GetReplica()
}

// said returns the answers as text for people: each error once.
func said(answers []locateAnswer) string {
	var parts []string
	from := map[string]string{}
	for _, a := range answers {
		who := a.address + " (" + a.reply.GetReplica() + ") "
		switch {
		case a.err != nil && from[brief(a.err)] == "":
			parts = append(parts, brief(a.err))
			from[brief(a.err)] = a.address
		case a.err != nil:
			from[brief(a.err)] += ", " + a.address
		case a.reply.GetMaster() == "":
			parts = append(parts, who+"knows of no master")
		default:
			parts = append(parts, who+"believes that "+a.reply.GetMaster()+" at "+a.reply.GetMasterAddress()+" is the master")
		}
	}
	for i, part := range parts {
		if from[part] != "" {
			parts[i] = from[part] + ": " + part
		}
	}
	return strings.Join(parts, "; ")
}

func brief(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

// diagnosis says what the replicas answered in the last round; "" before the first.
func (l *locator) diagnosis() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lastAnswers) == 0 {
		return ""
	}
	return "asked for the master: " + said(l.lastAnswers)
}

// silence says why no replica answers as the master; "" if a master is known.
func (l *locator) silence() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.master != nil {
		return ""
	}
	return said(l.lastAnswers)
}
