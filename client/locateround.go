package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// round asks the replicas of the cell, one after the other but without waiting
// long for any, who the master is, until the one they name says so itself. It
// returns neither a master nor an error if there is none; the error is one that
// another round would not change.
func (f *finder) round(ctx context.Context, q *inquiry) (*target, error) {
	servers, err := f.addresses(ctx)
	if err != nil {
		if api.CodeOf(err) != api.Unavailable {
			return nil, err
		}
		f.note([]answer{{address: "the servers of cell " + f.cfg.Cell, err: err}})
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.DialTimeout)
	defer cancel()
	a := &asking{finder: f, inquiry: q}
	a.queue, a.first = f.order(servers)
	found, err := a.all(ctx)
	f.note(a.said)
	return found, err
}

// note keeps what a round was told.
func (f *finder) note(said []answer) {
	slices.SortFunc(said, func(a, b answer) int { return strings.Compare(a.address, b.address) })
	f.mu.Lock()
	f.said = said
	f.mu.Unlock()
}

// order is the order of asking: the last master first, because it is most often
// still the master; the others by chance, to spread the load. first says that
// there never was a master.
func (f *finder) order(servers []string) (order []string, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	order = slices.Compact(slices.Sorted(slices.Values(servers)))
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if f.former != nil {
		order = slices.DeleteFunc(order, func(s string) bool { return s == f.former.address })
		order = slices.Insert(order, 0, f.former.address)
	}
	return order, f.former == nil
}

// asking is one round. It belongs to the goroutine of the search.
type asking struct {
	finder  *finder
	inquiry *inquiry
	first   bool     // no master was ever found: a server of another cell is a fault of the configuration
	queue   []string // still to be asked
	names   []string // asked
	said    []answer // answered
	claim   answer   // of the highest epoch, of those who say that they are the master and are doubted
}

// all asks until the master is found, everybody has answered, or ctx ends. Of
// those who say that they are the master, one that is doubted may have been
// deposed and not know it yet: the others are asked first, and the later epoch
// counts.
func (a *asking) all(ctx context.Context) (*target, error) {
	found, err := a.listen(ctx)
	if found == nil && err == nil && a.claim.isMaster() {
		return a.finder.at(a.claim)
	}
	return found, err
}

// listen asks until the master of the highest epoch is found, everybody has
// answered, or ctx ends.
func (a *asking) listen(ctx context.Context) (*target, error) {
	a.ask()
	timer := time.NewTimer(a.patience())
	defer timer.Stop()
	for len(a.said) < len(a.names) {
		select {
		case one := <-a.inquiry.answers:
			if !a.hear(one) {
				continue
			}
			if a.first && api.CodeOf(one.err) == api.WrongCell {
				return nil, one.err
			}
			if one.isMaster() {
				if !a.finder.doubtful(one) {
					return a.finder.at(one)
				}
				a.hearOut(one)
			}
			if address := one.reply.GetMasterAddress(); address != "" && !slices.Contains(a.names, address) {
				a.queue = slices.DeleteFunc(a.queue, func(s string) bool { return s == address })
				a.queue = slices.Insert(a.queue, 0, address)
			}
			a.ask()
		case <-timer.C:
			if len(a.queue) == 0 {
				a.silent(ctx)
				return nil, nil
			}
			a.ask()
		case <-ctx.Done():
			a.silent(ctx)
			return nil, nil
		}
		timer.Reset(a.patience())
	}
	return nil, nil
}

// hear takes note of an answer, also one to a question of an earlier round, and reports
// whether it is one: who has not answered in time is asked again.
func (a *asking) hear(one answer) bool {
	asked := slices.Contains(a.names, one.address)
	delete(a.inquiry.open, one.address)
	if errors.Is(one.err, errSilent) {
		if asked {
			a.inquiry.ask(one.address)
		}
		return false
	}
	if !asked {
		a.queue = slices.DeleteFunc(a.queue, func(s string) bool { return s == one.address })
		a.names = append(a.names, one.address)
	}
	a.said = append(a.said, one)
	return true
}

// hearOut keeps a claim that is doubted, and asks everybody else at once.
func (a *asking) hearOut(one answer) {
	if !a.claim.isMaster() || one.reply.GetEpoch() > a.claim.reply.GetEpoch() {
		a.claim = one
	}
	for len(a.queue) > 0 {
		a.ask()
	}
}

// patience is how long to wait for those who were asked and have not answered:
// not long while there is somebody else to ask, or once most have answered.
func (a *asking) patience() time.Duration {
	switch {
	case len(a.queue) > 0:
		return hedge
	case 2*len(a.said) < len(a.names) && !a.claim.isMaster():
		return a.finder.cfg.DialTimeout
	}
	return straggle
}

// silent notes who has not answered.
func (a *asking) silent(ctx context.Context) {
	for _, name := range a.names {
		if !slices.ContainsFunc(a.said, func(s answer) bool { return s.address == name }) {
			err := fmt.Errorf("no answer yet")
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer within %v", a.finder.cfg.DialTimeout)
			}
			a.said = append(a.said, answer{address: name, err: err})
		}
	}
}

// ask asks the next one of the queue, if there is one.
func (a *asking) ask() {
	if len(a.queue) == 0 {
		return
	}
	address := a.queue[0]
	a.queue, a.names = a.queue[1:], append(a.names, address)
	a.inquiry.ask(address)
}

// locate asks one replica who the master is.
func (f *finder) locate(ctx context.Context, address string) answer {
	t, giveBack, err := f.pool.borrow(address)
	if err != nil {
		return answer{address: address, err: err}
	}
	defer giveBack()
	doubt := time.AfterFunc(min(lateAfter, f.cfg.DialTimeout/2), func() { f.pool.checkControl(t) })
	defer doubt.Stop()
	reply, err := t.control().cell.Locate(ctx, &chubbypb.LocateRequest{Cell: f.cfg.Cell})
	if err != nil {
		return answer{address: address, err: t.explain(err)}
	}
	if own := reply.GetCell(); f.cfg.Cell != api.LocalCell && own != "" && own != f.cfg.Cell {
		return answer{address: address, err: &api.Error{Code: api.WrongCell, Op: "look for the master", Path: "/" + api.Root + "/" + f.cfg.Cell,
			Replica: reply.GetReplica(), Cell: own,
			Message: fmt.Sprintf("the server at %s belongs to cell %s; look at the servers configured for %s", address, own, f.cfg.Cell)}}
	}
	f.mu.Lock()
	f.name = reply.GetCell()
	f.mu.Unlock()
	if reply.GetMaster() != "" {
		f.learn(api.Epoch(reply.GetEpoch()))
	}
	one := answer{address: address, reply: reply}
	if one.isMaster() {
		t.noteClaim(reply)
	}
	return one
}
