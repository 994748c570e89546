package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// runRound asks the replicas of the cell in turn, without a long wait for any, until one claims to be the
// master. Otherwise both results are nil; an error is one that another round would not change.
func (l *locator) runRound(ctx context.Context, q *inquiry) (*target, error) {
	servers, err := l.addresses(ctx)
	if err != nil {
		if api.CodeOf(err) != api.Unavailable {
			return nil, err
		}
		l.noteAnswers([]locateAnswer{{address: "the servers of cell " + l.cfg.Cell, err: err}})
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
	defer cancel()
	r := &round{locator: l, inquiry: q}
	l.mu.Lock()
	r.toAsk, r.firstContact = l.servers.askingOrder(servers, l.lastMaster), l.lastMaster == nil
	l.mu.Unlock()
	found, err := r.findMaster(ctx)
	l.noteAnswers(r.answers)
	if found == nil && err == nil && r.firstContact {
		err = r.refusal()
	}
	return found, err
}

// refusal returns a server's error if no answering server believes the client's identity, or the client none
// of theirs. Silent servers do not count against it.
func (r *round) refusal() (refused error) {
	for _, a := range r.answers {
		switch {
		case a.err == nil:
			return nil
		case api.CodeOf(a.err) == api.Unauthenticated && refused == nil:
			refused = a.err
		}
	}
	if len(r.toAsk) > 0 {
		return nil
	}
	return refused
}

func (l *locator) noteAnswers(answers []locateAnswer) {
	slices.SortFunc(answers, func(a, b locateAnswer) int { return strings.Compare(a.address, b.address) })
	l.mu.Lock()
	l.lastAnswers = answers
	l.mu.Unlock()
}

// round is one round of a search. It belongs to the goroutine of the search.
type round struct {
	locator      *locator
	inquiry      *inquiry
	firstContact bool     // no master was ever found: an answer from another cell means a wrong configuration
	toAsk        []string // addresses still to ask
	asked        []string
	answers      []locateAnswer
	doubtedClaim locateAnswer // the doubted claim of the highest epoch
}

// findMaster asks until the master is found, all have answered, or ctx ends. A doubted master may have lost
// an election without knowing it: so findMaster first asks the others, and the latest epoch decides.
func (r *round) findMaster(ctx context.Context) (*target, error) {
	found, err := r.collect(ctx)
	if found == nil && err == nil && r.doubtedClaim.isMaster() {
		return r.locator.targetOf(r.doubtedClaim)
	}
	return found, err
}

func (r *round) collect(ctx context.Context) (*target, error) {
	r.askNext()
	timer := time.NewTimer(r.timeout())
	defer timer.Stop()
	for len(r.answers) < len(r.asked) {
		select {
		case one := <-r.inquiry.answers:
			if !r.noteAnswer(one) {
				continue
			}
			if r.firstContact && api.CodeOf(one.err) == api.WrongCell {
				return nil, one.err
			}
			if one.isMaster() {
				if !r.locator.isDoubtful(one) {
					return r.locator.targetOf(one)
				}
				r.noteDoubtedClaim(one)
			}
			if address := one.reply.GetMasterAddress(); address != "" && !slices.Contains(r.asked, address) {
				r.toAsk = slices.DeleteFunc(r.toAsk, func(s string) bool { return s == address })
				r.toAsk = slices.Insert(r.toAsk, 0, address)
			}
			r.askNext()
		case <-timer.C:
			if len(r.toAsk) == 0 {
				r.noteSilent(ctx)
				return nil, nil
			}
			r.askNext()
		case <-ctx.Done():
			r.noteSilent(ctx)
			return nil, nil
		}
		timer.Reset(r.timeout())
	}
	return nil, nil
}

// noteAnswer takes an answer, perhaps an earlier round's. It returns false for a late replica: ask it again.
func (r *round) noteAnswer(one locateAnswer) bool {
	asked := slices.Contains(r.asked, one.address)
	delete(r.inquiry.pending, one.address)
	if errors.Is(one.err, errSilent) {
		if asked {
			r.inquiry.ask(one.address)
		}
		return false
	}
	if !asked {
		r.toAsk = slices.DeleteFunc(r.toAsk, func(s string) bool { return s == one.address })
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
		return r.locator.cfg.DialTimeout
	}
	return stragglerDelay
}

func (r *round) noteSilent(ctx context.Context) {
	for _, name := range r.asked {
		if !slices.ContainsFunc(r.answers, func(s locateAnswer) bool { return s.address == name }) {
			err := fmt.Errorf("no answer yet")
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer within %v", r.locator.cfg.DialTimeout)
			}
			r.answers = append(r.answers, locateAnswer{address: name, err: err})
		}
	}
}

func (r *round) askNext() {
	if len(r.toAsk) == 0 {
		return
	}
	address := r.toAsk[0]
	r.toAsk, r.asked = r.toAsk[1:], append(r.asked, address)
	r.inquiry.ask(address)
}

func (l *locator) askReplica(ctx context.Context, address string) locateAnswer {
	t, giveBack, err := l.pool.borrow(address)
	if err != nil {
		return locateAnswer{address: address, err: err}
	}
	defer giveBack()
	//mutant: late := time.AfterFunc(stragglerDelay, func() { l.pool.checkControl(t) })
	//mutant: late := time.AfterFunc(min(lateAfter, l.cfg.DialTimeout/2), func() { })
	late := time.AfterFunc(min(lateAfter, l.cfg.DialTimeout/2), func() { l.pool.checkControl(t) })
	defer late.Stop()
	reply, err := t.control().cell.Locate(ctx, &chubbypb.LocateRequest{Cell: l.cfg.Cell})
	if err != nil {
		return locateAnswer{address: address, err: t.explainError(err)}
	}
	if own := reply.GetCell(); l.cfg.Cell != api.LocalCell && own != "" && own != l.cfg.Cell {
		return locateAnswer{address: address, err: &api.Error{Code: api.WrongCell, Op: "look for the master", Path: "/" + api.Root + "/" + l.cfg.Cell,
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
