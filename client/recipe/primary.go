package recipe

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Primary is who has won an election. Its methods may be called from several goroutines. Resign, or
// HandOver, also when it has lost: that says that its work has stopped (client.Lock.Release).
type Primary struct {
	c        *client.Client
	path     string
	name     string
	rank     rank
	file     *client.Handle
	lock     *client.Lock
	presence *Presence
	ghosts   *ghosts

	ask   sync.Once
	asked chan struct{}      // closed when a candidate ranks before it
	stop  context.CancelFunc // ends attend
	done  chan struct{}      // closed when that has ended

	mu        sync.Mutex // guards what follows
	uncertain bool       // an attempt to resign has not been answered
}

// reign makes the primary that a candidate is.
func (k *campaign) reign(l *client.Lock) *Primary {
	p := &Primary{
		c: k.c, path: k.path, name: k.options.Name, file: k.file, lock: l, presence: k.presence, ghosts: k.ghosts, rank: rank{priority: k.options.Priority},
		asked: make(chan struct{}), done: make(chan struct{}),
	}
	if k.chosen {
		p.rank.chosen.Reign = l.Token() - 1 // before everything that is chosen from now on
	}
	ctx, cancel := context.WithCancel(l.Context())
	p.stop = cancel
	go p.attend(ctx, k.roster)
	return p
}

// Context is that of the primary's work: the lock's (client.Lock.Context). It ends before another can be
// the primary, and when this one resigns.
func (p *Primary) Context() context.Context { return p.lock.Context() }

// Done is closed when Context ends.
func (p *Primary) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why this is not the primary any more, nil while it is.
func (p *Primary) Err() error { return p.lock.Err() }

// Path returns the path of the election's file.
func (p *Primary) Path() string { return p.path }

// Lock returns the lock that makes it the primary. Its sequencer goes with every request to the servers
// that are to take them from the primary only; its token is that of the Reign. It is released by Resign.
func (p *Primary) Lock() *client.Lock { return p.lock }

// Name returns the name of the candidate.
func (p *Primary) Name() string { return p.name }

// SetValue replaces the value, if this is still the primary in the moment of the write: else
// BadSequencer, or LockLost, and nothing is written. After SessionExpired it may have been: the answer may
// have been lost before the session was.
func (p *Primary) SetValue(ctx context.Context, value []byte) error {
	if err := p.lock.Err(); err != nil {
		return err
	}
	_, err := p.file.SetContents(ctx, value, client.IfSequencer(p.lock.Sequencer()))
	return ended(ctx, err, "set the value of", p.path)
}

// Asked is closed when a candidate waits that ranks before the primary: one that was chosen in this
// reign (Nominate), or, unless this primary was chosen itself, has a higher priority. It is a question:
// a primary that can be replaced without harm stops its work and calls Resign.
func (p *Primary) Asked() <-chan struct{} { return p.asked }

// Resign gives the lock up; the context ends first, so the work is to have stopped. Nil means that this
// is not the primary any more, whether it resigned or had lost. After an error, of ctx or Uncertain, it
// may still be for the cell, until it is released in the background; Resign may be called again, to wait
// for that. The value remains in the file.
func (p *Primary) Resign(ctx context.Context) error {
	p.stop()
	ctx, cancel := p.c.CleanupContext(ctx)
	defer cancel()
	faults := []error{p.lock.Release(ctx), p.presence.Withdraw(ctx), p.file.Close(ctx)} // the lock first: others wait for it
	select {
	case <-p.done:
	case <-ctx.Done():
		faults = append(faults, ctx.Err())
	}
	for _, err := range faults {
		if err != nil && !over(err) {
			p.mu.Lock()
			p.uncertain = true
			p.mu.Unlock()
			return ended(ctx, err, "resign from", p.path)
		}
	}
	return p.resigned(ctx)
}

// over reports whether a lock is not to be released because there is none any more; or a registration
// not to be removed, as another holds the lock of its file (LockHeld).
func over(err error) bool {
	return gone(err) || errors.Is(err, api.LockLost) || errors.Is(err, api.LockHeld) || errors.Is(err, api.NotHeld) || errors.Is(err, api.SessionExpired)
}

// resigned asks the cell, if an attempt to resign was left without an answer.
func (p *Primary) resigned(ctx context.Context) error {
	p.mu.Lock()
	uncertain := p.uncertain
	p.mu.Unlock()
	select {
	case <-p.c.Done(): // the lock goes with the session
		return nil
	default:
	}
	if !uncertain {
		return nil
	}
	x, err := p.c.Cell().Explain(ctx, p.path)
	if err != nil {
		return ended(ctx, err, "resign from", p.path)
	}
	if uint64(x.Lock.Generation) == p.lock.Token() && holds(x.Lock, p.c.Session()) {
		return &api.Error{Code: api.Uncertain, Op: "resign from", Path: p.path, Message: "the lock is being released in the background; ask again"}
	}
	return nil
}

// HandOver resigns so that the candidate of that name is the next primary, before all others. If there
// is no such candidate it is NotFound, and nothing has changed. If it dies before it has the lock, the
// next in rank is the primary, once the cell has found that out. After another error, HandOver may be
// called again, or Resign.
func (p *Primary) HandOver(ctx context.Context, name string) error {
	if err := Nominate(ctx, p.c, p.path, name); err != nil {
		return err
	}
	return p.Resign(ctx)
}

// attend shows who is the primary, and looks whether anybody ranks before it. It ends with the lock's
// context.
func (p *Primary) attend(ctx context.Context, r *roster) {
	defer close(p.done)
	p.presence.mu.Lock()
	mine := p.presence.record
	p.presence.mu.Unlock()
	mine.Elected = p.lock.Token()
	_ = p.presence.rewrite(ctx, mine) // for people; if the announcement has ended, the lock is there still
	for list, err := range r.follow(ctx) {
		if err != nil {
			return
		}
		p.ghosts.keep(list)
		asked := false
		for _, e := range announced(list) {
			switch {
			case e.name == p.name || e.record.Elected != 0 || e.record.session() == 0:
			case e.record.Chosen != nil && e.record.Chosen.Reign < p.lock.Token():
				// It was for a reign that is over. Should this fail, it ranks higher than is meant.
				_ = remark(ctx, p.c, r.dir, e, nil)
			default:
				asked = asked || e.record.rank().compare(p.rank) > 0 && p.lives(ctx, e.record)
			}
		}
		if asked {
			p.ask.Do(func() { close(p.asked) })
		}
	}
}

// lives reports whether the session of a candidate is not known to be over. If nobody answers, it is taken to
// live, as its file is there.
func (p *Primary) lives(ctx context.Context, r record) bool {
	if p.ghosts.has(r) {
		return false
	}
	over, err := p.ghosts.find(ctx, p.c, r)
	return err != nil || !over
}
