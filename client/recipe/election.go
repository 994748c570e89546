package recipe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// CampaignOptions are a candidate's.
type CampaignOptions struct {
	// Name is what the candidate is called by operators and in Nominate: one component of a path. Empty
	// is host, process and session.
	Name string
	// WaitForName makes the candidate wait for its name, a minute at the most, if another session has it, as
	// the option of Announce does. For a process of this host that does not run any more it waits anyway.
	WaitForName bool
	// Value is what the primary says of itself, most often its address. It is the contents of the file, and
	// part of what the candidate is registered with, in JSON, which must fit into a file too (TooLarge).
	Value []byte
	// Priority ranks the candidate: one of a higher priority is preferred. Those of equal rank come in
	// the order in which they began to wait.
	Priority int
	// Reason is shown to those who look who holds the lock and why; at most api.MaxReason bytes.
	Reason string
	// LockDelay is how long there is no primary after one that failed (Chubby §2.4): at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
	// OnQueued is called as client.OnQueued says, while the candidate waits for the lock. It must not
	// block: the candidate waits for it, and meanwhile hears neither that it has the lock nor that another
	// ranks before it.
	OnQueued func(client.Queued)
}

// Campaign waits until the caller is the primary (Chubby §2.4): until it has the lock of the file path,
// exclusively, and has written its value to the file, on the condition that it still has the lock; so
// what the file says was true once, and a primary that was replaced without knowing it cannot write
// over its successor's value. The file is permanent, and created if it is absent; the directory that it
// is in is not. Who writes the file otherwise, or takes the lock, as chubbyctl elect does, takes part.
//
// Candidates register, by ephemeral files in the directory path.candidates. One leaves the queue of the
// lock while another ranks before it: one that was chosen (Nominate, HandOver), or is of a higher
// priority. If it gets the lock all the same, it looks again, and gives way before it has written. None of
// this is what makes the primary the only one: that is the lock alone.
//
// If ctx ends first, the error is Cancelled or DeadlineExceeded; it is Exists if another candidate has
// that Name (Announce), and SessionExpired if the session is over. Nothing is left then of the campaign;
// while the cell is away, what is to go goes in the background. If the lock is lost before the value is
// written, the campaign goes on.
//
// A candidate whose session has ended is passed by, a lease and two seconds later at the latest, also if somebody has its
// file open, so that it stays. Files of the directory that are permanent, that are no candidate's or that
// may not be read count for nothing.
//
// A campaign costs some five calls, a call for each change among the candidates and three for each
// candidate that is new, and one in each lease while another ranks before it; each candidate is told of
// each change, so ten are well, and a thousand are not.
func Campaign(ctx context.Context, c *client.Client, path string, o CampaignOptions) (*Primary, error) {
	k, err := enter(ctx, c, path, o)
	if err != nil {
		return nil, ended(ctx, err, "campaign for", path)
	}
	p, err := k.run(ctx)
	if err != nil {
		k.withdraw(ctx)
		return nil, ended(ctx, err, "campaign for", path)
	}
	return p, nil
}

// campaign is one call of Campaign.
type campaign struct {
	c        *client.Client
	path     string
	options  CampaignOptions
	file     *client.Handle // of the lock; nil when it is to be opened again
	presence *Presence
	roster   *roster
	ghosts   *ghosts
	standing *standing
	chosen   bool // when it looked last
}

// enter registers a candidate.
func enter(ctx context.Context, c *client.Client, path string, o CampaignOptions) (*campaign, error) {
	k := &campaign{c: c, path: path, options: o, roster: newRoster(c, candidatesOf(path)), ghosts: newGhosts(), standing: newStanding()}
	r := sign(c).with(o.Value)
	r.Priority = o.Priority
	if err := r.room(); err != nil {
		return nil, err
	}
	if err := k.open(ctx); err != nil {
		return nil, err
	}
	name := o.Name
	if name == "" {
		name = fmt.Sprintf("%s-%d-%s", url.PathEscape(r.Host), r.PID, r.Session)
	}
	k.options.Name = name
	var err error
	if k.presence, err = announce(ctx, c, candidatesOf(path), name, r, announceOptions{wait: o.WaitForName}); err != nil {
		leave(ctx, k.file)
		return nil, err
	}
	return k, nil
}

// open opens the file of the lock.
func (k *campaign) open(ctx context.Context) (err error) {
	if k.file == nil {
		k.file, err = k.c.Open(ctx, k.path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: delayOf(k.options.LockDelay)})
	}
	return err
}

// withdraw leaves nothing of the campaign.
func (k *campaign) withdraw(ctx context.Context) {
	if k.file != nil {
		leave(ctx, k.file)
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = k.presence.Withdraw(ctx) // in the background then
}

// run waits for the lock, until it is that of a primary.
func (k *campaign) run(ctx context.Context) (*Primary, error) {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() { k.watch(watching) })
	registered := k.presence.Context()
	unhook := context.AfterFunc(registered, func() { k.standing.fail(context.Cause(registered)) })
	defer unhook()
	for {
		turn, err := k.standing.awaitTurn(ctx)
		if err != nil {
			return nil, err
		}
		if err := k.open(ctx); err != nil {
			return nil, err
		}
		l, err := k.acquire(ctx, turn)
		if err == nil {
			var won bool
			if won, err = k.win(ctx, l); won {
				return k.reign(l), nil
			}
			giveUp(ctx, l)
		}
		switch {
		case err == nil || ctx.Err() == nil && turn.Err() != nil && errors.Is(err, api.Cancelled):
		//mutant: case false: //by TestTakenInTheMomentOfTheGrant of ./client/recipe
		case errors.Is(err, api.LockLost): // it was taken away before the answer was here
		case gone(err):
			leave(ctx, k.file) // the file was deleted: there is no primary, and another file
			k.file = nil
		default:
			return nil, err
		}
	}
}

// watch looks at the candidates whenever they have changed, and whether those before this one live.
func (k *campaign) watch(ctx context.Context) {
	o := client.OpenOptions{Read: true, Kind: api.Directory, Events: childEvents()}
	for s, err := range follow(ctx, k.c, k.roster.dir, o) {
		look := k.standing.begin() // now, and not when the wait for this sight began
		var list []*entry
		if err == nil && s.Handle != nil {
			list, err = k.roster.look(ctx, s.Handle)
		}
		if err == nil && s.due {
			err = k.unmask(ctx, list)
		}
		switch {
		case errors.Is(err, api.HandleClosed): // it comes as another sight
		case err != nil:
			k.standing.fail(err)
			return
		default:
			k.standing.found(look, k.isOutranked(list))
		}
	}
}

// unmask asks the cell whether the candidate that ranks before this one lives, and, if it does not, of the
// next that does.
func (k *campaign) unmask(ctx context.Context, list []*entry) error {
	k.ghosts.keep(list)
	for {
		e := k.before(list)
		if e == nil {
			return nil
		}
		if over, err := k.ghosts.find(ctx, k.c, e.record); err != nil || !over {
			return err
		}
	}
}

// isOutranked reports whether another candidate ranks before this one.
func (k *campaign) isOutranked(list []*entry) bool { return k.before(list) != nil }

// before returns the first of the other candidates, if it ranks before this one, and else nil.
func (k *campaign) before(list []*entry) (best *entry) {
	mine := rank{priority: k.options.Priority}
	for _, e := range announced(list) {
		switch {
		case e.name == k.options.Name:
			mine = e.record.rank()
		case e.record.Elected != 0 || e.record.session() == 0 || k.ghosts.has(e.record): // a primary, or no candidate
		case best == nil || e.record.rank().compare(best.record.rank()) > 0:
			best = e
		}
	}
	if best != nil && best.record.rank().compare(mine) <= 0 {
		return nil
	}
	return best
}

// acquire waits for the lock, as long as nobody ranks before.
func (k *campaign) acquire(ctx, turn context.Context) (*client.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(turn, func() { cancel(context.Cause(turn)) })
	defer stop()
	options := []client.LockOption{client.Reason(k.options.Reason)}
	if k.options.OnQueued != nil {
		options = append(options, client.OnQueued(k.options.OnQueued))
	}
	return k.file.Acquire(ctx, api.Exclusive, options...)
}

// win makes a primary of who has the lock, unless another candidate ranks before, or the lock has been
// lost again.
func (k *campaign) win(ctx context.Context, l *client.Lock) (bool, error) {
	// What is waited for here, caches that are to be dropped, may take longer than the lock lasts.
	within, stop := l.With(ctx)
	defer stop()
	look := k.standing.begin()
	list, err := k.roster.once(within)
	if errors.Is(err, api.NotFound) {
		list, err = nil, nil // somebody has deleted the directory: there are no others
	}
	if err == nil {
		behind := k.isOutranked(list)
		k.standing.found(look, behind)
		if behind {
			return false, nil
		}
		k.chosen = false
		for _, e := range list {
			k.chosen = k.chosen || e.name == k.options.Name && e.record.Chosen != nil
		}
		_, err = k.file.SetContents(within, k.options.Value, client.IfSequencer(l.Sequencer()))
	}
	switch {
	case err == nil && l.Err() == nil:
		return true, nil
	case ctx.Err() != nil || k.c.Err() != nil:
		return false, err
	case l.Err() != nil || errors.Is(err, api.BadSequencer):
		return false, nil
	}
	return false, err
}
