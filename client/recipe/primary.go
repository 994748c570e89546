package recipe

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Primary is the winner of an election. Its methods may be called from several goroutines. Resign or
// HandOver, also after it has lost: that says that its work has stopped (client.Lock.Release).
type Primary struct {
	*campaign // that it has won
	lock      *client.Lock
	rank      rank

	ask   sync.Once
	asked chan struct{}      // closed when a candidate ranks before it
	stop  context.CancelFunc // ends attend
	done  chan struct{}      // closed when attend has ended
	end   ending             // gives up the lock
}

func (k *campaign) reign(l *client.Lock) *Primary {
	p := &Primary{campaign: k, lock: l, rank: rank{priority: k.options.Priority}, asked: make(chan struct{}), done: make(chan struct{})}
	if k.chosen {
		p.rank.chosen.Reign = l.Token() - 1 // before all later choices
	}
	ctx, cancel := context.WithCancel(l.Context())
	p.stop = cancel
	go p.attend(ctx)
	return p
}

// Context is that of the primary's work: the lock's (client.Lock.Context). It ends before another can be the
// primary, and when this one resigns.
func (p *Primary) Context() context.Context { return p.lock.Context() }

// Done is closed when Context ends.
func (p *Primary) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why this is no longer the primary, or nil.
func (p *Primary) Err() error { return p.lock.Err() }

// Path returns the path of the election's file.
func (p *Primary) Path() string { return p.path }

// Lock returns the lock that makes it the primary. Send its sequencer with every request to servers that
// serve only the primary; its token is the Reign's. Resign releases it.
func (p *Primary) Lock() *client.Lock { return p.lock }

// Name returns the name of the candidate.
func (p *Primary) Name() string { return p.options.Name }

// SetValue replaces the value, if this is the primary at the moment of the write. Otherwise it writes nothing
// and returns BadSequencer or LockLost. After SessionExpired it may have written, as the answer may be lost.
func (p *Primary) SetValue(ctx context.Context, value []byte) error {
	if err := p.lock.Err(); err != nil {
		return err
	}
	_, err := p.file.SetContents(ctx, value, client.IfSequencer(p.lock.Sequencer()))
	return ended(ctx, err, "set the value of", p.path)
}

// Asked is closed when a candidate waits that ranks before the primary: one chosen in this reign (Nominate),
// or, unless this primary was chosen, one of higher priority. A primary that can be replaced without harm
// then stops its work and calls Resign; it need not.
func (p *Primary) Asked() <-chan struct{} { return p.asked }

// Resign ends the context, then gives up the lock: stop the work before. Nil means that this is no longer the
// primary, whether it resigned or had lost. After an error, of ctx or Uncertain, the cell may still see
// it as the primary, until the background release; another call waits for that. The value remains in the
// file.
func (p *Primary) Resign(ctx context.Context) error {
	p.stop()
	ctx, cancel := p.c.CleanupContext(ctx)
	defer cancel()
	err := p.end.run(ctx, p.c, "resign from", p.path, func(ctx context.Context) error {
		faults := []error{p.lock.Release(ctx), p.presence.Withdraw(ctx), p.file.Close(ctx)} // the lock first: others wait for it
		<-p.done
		return errors.Join(slices.DeleteFunc(faults, over)...)
	})
	<-p.Done() // the release has begun, and ends it
	return ended(ctx, err, "resign from", p.path)
}

// over reports whether a lock needs no release because it is gone, or a registration no removal because
// another holds its file's lock (LockHeld).
func over(err error) bool {
	return gone(err) || errors.Is(err, api.LockLost) || errors.Is(err, api.LockHeld) || errors.Is(err, api.NotHeld) || errors.Is(err, api.SessionExpired)
}

// HandOver resigns so that the candidate of that name is the next primary, before all others. Without such a
// candidate it returns NotFound and changes nothing. If the candidate dies before it has the lock, the next
// in rank follows, once the cell has noticed. After another error, call HandOver again, or Resign.
func (p *Primary) HandOver(ctx context.Context, name string) error {
	if err := Nominate(ctx, p.c, p.path, name); err != nil {
		return err
	}
	return p.Resign(ctx)
}

// attend shows the primary, and checks whether a candidate ranks before it. It ends with the lock's context.
func (p *Primary) attend(ctx context.Context) {
	defer close(p.done)
	p.presence.mu.Lock()
	mine := p.presence.record
	p.presence.mu.Unlock()
	mine.Elected = p.lock.Token()
	_ = p.presence.rewrite(ctx, mine) // for people; the lock remains even if the announcement has ended
	for list, err := range p.roster.follow(ctx) {
		if err != nil {
			return
		}
		asked := false
		for _, e := range announced(list) {
			switch {
			case e.name == p.options.Name || e.record.Elected != 0 || e.record.session() == 0:
			case e.record.Chosen != mark{} && e.record.Chosen.Reign < p.lock.Token():
				// The mark was for a past reign. If this fails, the candidate ranks too high.
				_ = remark(ctx, p.c, p.roster.dir, e, mark{})
			default:
				asked = asked || e.record.rank().compare(p.rank) > 0 && p.lives(ctx, e)
			}
		}
		if asked {
			p.ask.Do(func() { close(p.asked) })
		}
	}
}

// lives reports whether a candidate's session is not known to have ended. Without an answer it counts as
// alive.
func (p *Primary) lives(ctx context.Context, e *entry) bool {
	over, err := p.roster.isOver(ctx, e)
	return err != nil || !over
}
