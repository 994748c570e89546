package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// CampaignOptions qualify Campaign.
type CampaignOptions struct {
	// Name is the candidate's name for operators and Nominate: one component of a path. Empty is host,
	// process and session.
	Name string
	// WaitForName makes the candidate wait, at most a minute, for a name that another session has, as in
	// Announce. For a process of this host that no longer runs it always waits.
	WaitForName bool
	// Value is what the primary says of itself, most often its address. It becomes the contents of the file,
	// and is part of the candidate's registration, in JSON, which must fit into a file too (TooLarge).
	Value []byte
	// Priority ranks the candidate: a higher one is preferred. Equal ranks come in the order in which they
	// began to wait.
	Priority int
	// Reason is shown in listings of holders; at most api.MaxReason bytes.
	Reason string
	// LockDelay is how long there is no primary after a failed one (Chubby §2.4): at most api.MaxLockDelay.
	// Zero is api.DefaultLockDelay; NoLockDelay is for servers that check sequencers.
	LockDelay time.Duration
	// OnQueued is client.OnQueued, while the candidate waits for the lock. It must not block: meanwhile the
	// candidate hears neither that it has the lock nor that another ranks before it.
	OnQueued func(client.Queued)
}

// Campaign waits until the caller is the primary (Chubby §2.4): until it has the lock of the file path,
// exclusively, and has written its value, on the condition that it still has the lock. So the file's value
// was true once, and a replaced primary cannot overwrite its successor's. The file is permanent and created
// if absent; its directory is not. Other writers of the file and holders of the lock, such as chubbyctl
// elect, take part.
//
// Candidates register by ephemeral files in the directory path.candidates. A candidate leaves the queue while
// another ranks before it: a chosen one (Nominate, HandOver), or one of a higher priority. If it gets the
// lock nevertheless, it looks again, and gives way before it writes. The lock alone makes the primary unique.
//
// If ctx ends first, the error is Cancelled or DeadlineExceeded; if another candidate has the Name, Exists
// (Announce); if the session has ended, SessionExpired. Nothing then remains of the campaign; while the cell
// is away, the cleanup runs in the background. If the lock is lost before the write, the campaign goes on.
//
// Others pass over a candidate whose session has ended, at most a lease and two seconds later, even if its
// file is kept open. They ignore permanent files, files that are no candidate's, and unreadable ones.
//
// A campaign costs some five calls, one for each change among the candidates, three for each new candidate,
// and one in each lease while another ranks before it. Each change reaches each candidate, so ten candidates
// are fine, and a thousand are not.
func Campaign(ctx context.Context, c *client.Client, path string, o CampaignOptions) (*Primary, error) {
	k, err := enter(ctx, c, path, o)
	if err != nil {
		return nil, hold.Ended(ctx, err, "campaign for", path)
	}
	p, err := k.run(ctx)
	if err != nil {
		k.withdraw(ctx)
		return nil, hold.Ended(ctx, err, "campaign for", path)
	}
	return p, nil
}

type campaign struct {
	c        *client.Client
	path     string
	options  CampaignOptions
	file     *client.Handle // of the lock; nil until it is opened again
	presence *presence
	roster   *roster
	standing *standing
	chosen   bool // at the last look
}

func enter(ctx context.Context, c *client.Client, path string, o CampaignOptions) (*campaign, error) {
	k := &campaign{c: c, path: path, options: o, roster: newRoster(c, candidatesOf(path)), standing: &standing{began: make(chan struct{})}}
	r := sign(c).with(o.Value)
	r.Priority = o.Priority
	if err := r.room(); err != nil {
		return nil, err
	}
	if err := k.open(ctx); err != nil {
		return nil, err
	}
	k.options.Name = cmp.Or(o.Name, fmt.Sprintf("%s-%d-%s", url.PathEscape(r.Host), r.PID, r.Session))
	var err error
	if k.presence, err = announce(ctx, c, candidatesOf(path), k.options.Name, r, announceOptions{wait: o.WaitForName}); err != nil {
		hold.Leave(ctx, k.file)
		return nil, err
	}
	return k, nil
}

func (k *campaign) open(ctx context.Context) (err error) {
	if k.file == nil {
		k.file, err = k.c.Open(ctx, k.path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: hold.Delay(k.options.LockDelay)})
	}
	return err
}

func (k *campaign) withdraw(ctx context.Context) {
	if k.file != nil {
		hold.Leave(ctx, k.file)
	}
	ctx, cancel := context.WithTimeout(ctx, hold.LeaveTime)
	defer cancel()
	_ = k.presence.Withdraw(ctx) // continues in the background
}

// run waits until the candidate is the primary. The campaign ends when the looks at the candidates fail, or the
// registration ends.
func (k *campaign) run(ctx context.Context) (*Primary, error) {
	alive, fail := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer fail(nil)
	watch.Go(func() { fail(k.watch(alive)) })
	registered := k.presence.Context()
	defer context.AfterFunc(registered, func() { fail(context.Cause(registered)) })()
	l, err := k.takeOffice(alive)
	switch {
	case err == nil:
		return k.reign(l), nil
	case ctx.Err() == nil && alive.Err() != nil:
		return nil, context.Cause(alive)
	}
	return nil, err
}

func (k *campaign) takeOffice(ctx context.Context) (*client.Lock, error) {
	for {
		turn, err := k.standing.awaitTurn(ctx)
		if err == nil {
			err = k.open(ctx)
		}
		if err != nil {
			return nil, err
		}
		l, err := k.acquire(ctx, turn)
		if err == nil {
			var won bool
			if won, err = k.win(ctx, l); won {
				return l, nil
			}
			hold.GiveUp(ctx, l)
		}
		switch {
		case err == nil || ctx.Err() == nil && turn.Err() != nil && errors.Is(err, api.Cancelled):
		//mutant: case false: //by TestTakenInTheMomentOfTheGrant of ./client/recipe
		case errors.Is(err, api.LockLost): // an operator took it before the answer came
		case hold.Gone(err):
			hold.Leave(ctx, k.file) // the file was deleted: there is no primary, and the next file is another
			k.file = nil
		default:
			return nil, err
		}
	}
}

// watch looks at the candidates at each change, and checks that those before this one live.
func (k *campaign) watch(ctx context.Context) error {
	for s, err := range follow(ctx, k.c, k.roster.dir, listing()) {
		look := k.standing.begin() // now, not when the wait for this sight began
		if err != nil {
			return err
		}
		var list []*entry
		if s.Handle != nil {
			list, err = k.roster.look(ctx, s.Handle)
		}
		if err == nil && s.due {
			err = k.unmask(ctx, list)
		}
		switch {
		case errors.Is(err, api.HandleClosed): // the next sight has another handle
		case err != nil:
			return err
		default:
			k.standing.found(look, k.before(list) != nil)
		}
	}
	return nil
}

// unmask asks the cell whether the candidate before this one lives, and if not, asks about the next, until
// one lives.
func (k *campaign) unmask(ctx context.Context, list []*entry) error {
	for {
		e := k.before(list)
		if e == nil {
			return nil
		}
		if over, err := k.roster.isOver(ctx, e); err != nil || !over {
			return err
		}
	}
}

// before returns the first of the other candidates, if it ranks before this one, or nil.
func (k *campaign) before(list []*entry) (best *entry) {
	mine := rank{priority: k.options.Priority}
	for _, e := range announced(list) {
		switch {
		case e.name == k.options.Name:
			mine = e.record.rank()
		case e.record.Elected != 0 || e.record.session() == 0 || k.roster.knowsOver(e): // a primary, or no candidate
		case best == nil || e.record.rank().compare(best.record.rank()) > 0:
			best = e
		}
	}
	if best != nil && best.record.rank().compare(mine) <= 0 {
		return nil
	}
	return best
}

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

// win makes the holder of the lock a primary, unless another candidate ranks before, or the lock was lost.
func (k *campaign) win(ctx context.Context, l *client.Lock) (bool, error) {
	// The write waits for caches to drop the file, which may outlast the lock.
	within, stop := l.With(ctx)
	defer stop()
	look := k.standing.begin()
	list, err := k.roster.once(within)
	if errors.Is(err, api.NotFound) {
		list, err = nil, nil // the directory was deleted: there are no others
	}
	if err == nil {
		behind := k.before(list) != nil
		k.standing.found(look, behind)
		if behind {
			return false, nil
		}
		k.chosen = false
		for _, e := range list {
			k.chosen = k.chosen || e.name == k.options.Name && e.record.Chosen != mark{}
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
