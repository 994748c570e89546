package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
)

const (
	stragglerDelay = 200 * time.Millisecond // how long a round waits for the last answers, after most

	// When to log a search without a master: later than an election takes, and often enough to explain a
	// hanging program.
	firstSearchLine    = time.Second
	searchLineInterval = 10 * time.Second
)

// errSilent is the error of a replica without an answer within DialTimeout.
var errSilent = errors.New("no answer")

// search is one search for the master, in rounds. A round ends soon after most replicas have answered; the next
// round takes the other answers. Otherwise a far or busy master's answer would never count.
type search struct {
	locator *locator
	waiters int           // guarded by locator.mu
	done    chan struct{} // closed when found and err are set
	found   *target
	err     error

	ctx     context.Context //nolint:containedctx // of the search and its questions
	cancel  context.CancelFunc
	asking  sync.WaitGroup // goroutines that ask a replica
	answers chan locateAnswer

	// Of the goroutine of the search.
	pending      map[string]struct{} // addresses with questions whose answers were not taken
	refused      bool                // the last rounds have shown that no replica is there,
	refusedSince session.Instant     // the first of them at this time
}

func newSearch(l *locator) *search {
	s := &search{locator: l, done: make(chan struct{}), answers: make(chan locateAnswer), pending: map[string]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(l.pool.life)
	return s
}

func (s *search) run() (*target, error) {
	l := s.locator
	if l.awaitNextSearch(s.ctx); s.ctx.Err() != nil {
		return nil, closedError() // for no caller, as below
	}
	defer s.endQuestions()
	var p retryPause
	var began, nextLine session.Instant // nextLine is 0 before the first round
	for {
		believed := l.believedMaster()
		found, err := s.runRound()
		if err == nil && found == nil {
			err = s.endIfRefused()
		}
		if err != nil {
			return nil, err
		}
		if found != nil {
			s.endQuestions() // before setMaster: pool.retain keeps replicas with pending questions
			return l.setMaster(found, believed), nil
		}
		switch now := l.cfg.Clock(); {
		case nextLine == 0:
			began, nextLine = now, now.Add(firstSearchLine)
		case now >= nextLine:
			nextLine = now.Add(searchLineInterval)
			l.cfg.Logger.WarnContext(s.ctx, "no master of the cell has been found yet",
				"cell", l.cfg.Cell, "waited", now.Sub(began), "said", l.diagnosis())
		}
		if p.wait(s.ctx); s.ctx.Err() != nil {
			return nil, closedError() // no caller waits any more, or the Cell was closed
		}
	}
}

func (s *search) ask(address string) {
	if _, pending := s.pending[address]; pending {
		return
	}
	s.pending[address] = struct{}{}
	s.asking.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.locator.cfg.DialTimeout)
		defer cancel()
		one := s.locator.askReplica(ctx, address)
		if one.err != nil && ctx.Err() != nil {
			one.err = errSilent
		}
		select {
		case s.answers <- one:
		case <-s.ctx.Done():
		}
	})
}

func (s *search) endQuestions() {
	s.cancel()
	s.asking.Wait()
}

// runRound asks the replicas of the cell in turn, without a long wait for any, until one claims to be the
// master. Otherwise both results are nil; an error is one that another round would not change.
func (s *search) runRound() (*target, error) {
	l := s.locator
	servers, err := l.addresses(s.ctx)
	if err != nil {
		if api.CodeOf(err) != api.Unavailable {
			return nil, err
		}
		l.noteAnswers([]locateAnswer{{address: "the servers of cell " + l.cfg.Cell, err: err}})
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, l.cfg.DialTimeout)
	defer cancel()
	r := &round{search: s}
	l.mu.Lock()
	r.toAsk, r.firstContact = l.servers.askingOrder(servers, l.lastMaster), l.lastMaster == nil
	l.mu.Unlock()
	found, err := r.findMaster(ctx)
	l.noteAnswers(r.answers)
	if found == nil && err == nil && r.firstContact {
		err = r.rejection()
	}
	return found, err
}

func (l *locator) noteAnswers(answers []locateAnswer) {
	slices.SortFunc(answers, func(a, b locateAnswer) int { return strings.Compare(a.address, b.address) })
	l.mu.Lock()
	l.lastAnswers = answers
	l.mu.Unlock()
}

// round is one round of a search. It belongs to the goroutine of the search.
type round struct {
	search       *search
	firstContact bool     // no master was ever found: an answer from another cell means a wrong configuration
	toAsk        []string // addresses still to ask
	asked        []string
	answers      []locateAnswer
	doubtedClaim locateAnswer // the doubted claim of the highest epoch
}

// findMaster asks until the master is found, all have answered, or ctx ends. A doubted master may have lost
// an election without knowing it: so findMaster first asks the others, and the latest epoch decides.
func (r *round) findMaster(ctx context.Context) (*target, error) {
	l := r.search.locator
	r.askNext()
	timer := time.NewTimer(r.timeout())
	defer timer.Stop()
	for over := false; !over && len(r.answers) < len(r.asked); {
		select {
		case one := <-r.search.answers:
			if !r.noteAnswer(one) {
				continue
			}
			switch {
			case r.firstContact && api.CodeOf(one.err) == api.WrongCell:
				return nil, one.err
			case one.isMaster() && !l.isDoubtful(one):
				return l.targetOf(one)
			case one.isMaster():
				r.noteDoubtedClaim(one)
			}
			if address := one.reply.GetMasterAddress(); address != "" && !slices.Contains(r.asked, address) {
				r.dropToAsk(address)
				r.toAsk = slices.Insert(r.toAsk, 0, address)
			}
			r.askNext()
			timer.Reset(r.timeout())
		case <-timer.C:
			over = len(r.toAsk) == 0
			r.askNext()
			timer.Reset(r.timeout())
		case <-ctx.Done():
			over = true
		}
	}
	r.noteSilent(ctx)
	if r.doubtedClaim.isMaster() {
		return l.targetOf(r.doubtedClaim)
	}
	return nil, nil
}

// noteAnswer takes an answer, perhaps an earlier round's. It returns false for a late replica: ask it again.
func (r *round) noteAnswer(one locateAnswer) bool {
	asked := slices.Contains(r.asked, one.address)
	delete(r.search.pending, one.address)
	if errors.Is(one.err, errSilent) {
		if asked {
			r.search.ask(one.address)
		}
		return false
	}
	if !asked {
		r.dropToAsk(one.address)
		r.asked = append(r.asked, one.address)
	}
	r.answers = append(r.answers, one)
	return true
}

// noteDoubtedClaim keeps a doubted claim, and asks all other replicas at once.
func (r *round) noteDoubtedClaim(one locateAnswer) {
	if !r.doubtedClaim.isMaster() || one.reply.GetEpoch() > r.doubtedClaim.reply.GetEpoch() {
		r.doubtedClaim = one
	}
	for len(r.toAsk) > 0 {
		r.askNext()
	}
}

// timeout returns how long to wait for missing answers: briefly while others remain to be asked, or once most
// have answered.
func (r *round) timeout() time.Duration {
	switch {
	case len(r.toAsk) > 0:
		return hedgeDelay
	case 2*len(r.answers) < len(r.asked) && !r.doubtedClaim.isMaster():
		return r.search.locator.cfg.DialTimeout
	}
	return stragglerDelay
}

func (r *round) noteSilent(ctx context.Context) {
	why := errors.New("no answer yet")
	if ctx.Err() != nil {
		why = fmt.Errorf("no answer within %v", r.search.locator.cfg.DialTimeout)
	}
	for _, address := range r.asked {
		if !slices.ContainsFunc(r.answers, func(a locateAnswer) bool { return a.address == address }) {
			r.answers = append(r.answers, locateAnswer{address: address, err: why})
		}
	}
}

func (r *round) dropToAsk(address string) {
	r.toAsk = slices.DeleteFunc(r.toAsk, func(s string) bool { return s == address })
}

func (r *round) askNext() {
	if len(r.toAsk) > 0 {
		r.search.ask(r.toAsk[0])
		r.toAsk, r.asked = r.toAsk[1:], append(r.asked, r.toAsk[0])
	}
}

// rejection returns a server's error if no answering server believes the client's identity, or the client none
// of theirs. Silent servers do not count against it.
func (r *round) rejection() (rejected error) {
	for _, a := range r.answers {
		switch {
		case a.err == nil:
			return nil
		case api.CodeOf(a.err) == api.Unauthenticated && rejected == nil:
			rejected = a.err
		}
	}
	if len(r.toAsk) > 0 {
		return nil
	}
	return rejected
}

func (l *locator) askReplica(ctx context.Context, address string) locateAnswer {
	t, giveBack, err := l.pool.borrow(address)
	if err != nil {
		return locateAnswer{address: address, err: err}
	}
	defer giveBack()
	// KeepAlives do not check the connection during a search, and other calls over it only start the search.
	//mutant: late := time.AfterFunc(stragglerDelay, func() { t.checkConnection(t.control(), lateAfter) })
	//mutant: late := time.AfterFunc(min(lateAfter, l.cfg.DialTimeout/2), func() { })
	late := time.AfterFunc(min(lateAfter, l.cfg.DialTimeout/2), func() { t.checkConnection(t.control(), lateAfter) })
	defer late.Stop()
	reply, err := t.control().cell.Locate(ctx, &chubbypb.LocateRequest{Cell: l.cfg.Cell})
	if err != nil {
		return locateAnswer{address: address, err: t.explainError(err)}
	}
	if own := reply.GetCell(); l.cfg.Cell != api.LocalCell && own != "" && own != l.cfg.Cell {
		return locateAnswer{address: address, err: &api.Error{Code: api.WrongCell, Op: "look for the master", Path: rootPath(l.cfg),
			Replica: reply.GetReplica(), Cell: own,
			Message: fmt.Sprintf("the server at %s belongs to cell %s; look at the servers configured for %s", address, own, l.cfg.Cell)}}
	}
	l.mu.Lock()
	l.cellName = reply.GetCell()
	l.servers.noteTold(reply)
	l.mu.Unlock()
	if reply.GetMaster() != "" {
		l.noteEpoch(api.Epoch(reply.GetEpoch()))
	}
	one := locateAnswer{address: address, reply: reply}
	if one.isMaster() {
		t.noteClaim(reply)
	}
	return one
}

// endIfRefused is called after each round without a master. It returns an error after Config.RefusedFor without
// a replica at any address (see isNoReplica), except for a cell that has answered before: a fail-over or a restart
// also refuses connections for a moment.
func (s *search) endIfRefused() error {
	l, limit := s.locator, s.locator.cfg.RefusedFor
	l.mu.Lock()
	answers, reached := l.lastAnswers, l.lastMaster != nil || l.cellName != ""
	l.mu.Unlock()
	mayAnswer := func(a locateAnswer) bool { return !isNoReplica(a.err) }
	if limit == 0 || reached || len(answers) == 0 || slices.ContainsFunc(answers, mayAnswer) {
		s.refused = false
		return nil
	}
	now := l.cfg.Clock()
	if !s.refused {
		s.refused, s.refusedSince = true, now
	}
	if now.Sub(s.refusedSince) < limit {
		return nil
	}
	if slices.ContainsFunc(answers, func(a locateAnswer) bool { return !errors.Is(a.err, syscall.ECONNREFUSED) }) {
		return &api.Error{Code: api.Unavailable, Err: NothingListens,
			Message: "no server of cell " + l.cfg.Cell + " is where it is looked for: " + said(answers)}
	}
	var addresses []string
	for _, a := range answers {
		addresses = append(addresses, a.address)
	}
	return refusedByAll(l.cfg.Cell, addresses, limit)
}

// isNoReplica reports whether a failed call has shown that no replica is there now: nothing listens, the name
// service knows no such host, or an HTTP server listens.
func isNoReplica(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) && dns.IsNotFound || errors.Is(err, frames.ErrHTTP)
}

func refusedByAll(cell string, addresses []string, limit time.Duration) *api.Error {
	message := "no server of cell " + cell + " is running: connections are refused at " + strings.Join(addresses, ", ")
	if limit > 0 {
		message += ", for " + limit.String()
	}
	return &api.Error{Code: api.Unavailable, Message: message, Err: NothingListens}
}
