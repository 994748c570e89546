package recipes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
	"github.com/chubbylock/chubby/sequencer"
)

// MaxParty limits the participants of a DoubleBarrier: a round costs the square of their number, as all hear
// each change. A very long path lowers the limit, as one file names all; Enter says so.
const MaxParty = 200

// DoubleBarrier lets n participants begin together and end together, round after round. It is a directory: a
// state file {round, inside, members}, changed by compare-and-swap only, and an ephemeral file for each
// member, whose lock the member holds.
//
// A round first gathers: participants enter themselves into the state. The n-th makes and locks its file,
// asks the cell which others still hold their locks, and strikes out the rest. If n remain, the same write
// makes the round inside. No participant joins it then. Members strike themselves out in Leave, or others do
// once their files are gone or no longer locked. (A reader may keep a dead member's file.) Striking out the
// last begins the next round.
//
// The invariants hold over fail-over, death, lost answers and participants that give up:
//
//  1. A round is inside only if n members, of different names that no other round has seen, had entered it,
//     and each lived, and wanted in, at a moment after the last had come.
//  2. Enter returns nil only while its member is in a round that is inside, and Context has not ended.
//  3. The round number grows only when every member has left, or its session has ended, or an operator took
//     its lock away and it has let go (with force: at once).
//  4. Leave returns nil only when the round number has grown; Enter joins no round that is inside.
//
// The cell learns of a death when it ends the session, at most a lease after it last heard from the member.
// So a round may count a member that has just crashed, which delays Leave for a lease, and for another if its
// file is open. Members inside do not hear of a death; they ask each other. A participant knows before others
// may take it for dead (Pass.Context).
type DoubleBarrier struct {
	c   *client.Client
	dir string
	n   int
}

// Pass is a participant's membership. Leave it, or the end of its session does.
type Pass struct {
	b     *DoubleBarrier
	round uint64
	name  string
	held  *hold.Held // the member's file
}

type party struct {
	Size    int               `json:"size"`
	Round   uint64            `json:"round"`
	Inside  bool              `json:"inside"`  // or gathering
	Members map[string]string `json:"members"` // sequencers by file name
}

const (
	stateName    = "state"
	memberPrefix = "member-"
)

// NewDoubleBarrier returns a double barrier for n participants, 1 to MaxParty, without a call. The first
// Enter makes the directory, in an existing one, with its n; then another n is rejected. To change n, delete
// the file "state" of the directory while the barrier is unused.
func NewDoubleBarrier(c *client.Client, dir string, n int) *DoubleBarrier {
	return &DoubleBarrier{c: c, dir: dir, n: n}
}

// Enter waits until the round before has ended and n participants, this one included, have come. Each call is
// a participant, also over one client.
//
// If ctx ends first, Enter withdraws and returns DeadlineExceeded or Cancelled. But if others were let in
// because of it, it returns the Pass and no error. Without an answer within two seconds, the error is
// Uncertain; the member goes with its file, in the background, as if it had died. If it loses its lock while
// it waits (an operator took it, or the cell was away for a lease), it has left and the error says so.
func (b *DoubleBarrier) Enter(ctx context.Context) (*Pass, error) {
	if b.n < 1 || b.n > MaxParty {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "enter", Path: b.dir, Message: fmt.Sprintf("a double barrier for %d; want 1 to %d", b.n, MaxParty)}
	}
	first, err := json.Marshal(party{Size: b.n, Round: 1})
	if err != nil {
		return nil, err
	}
	file, err := hold.OpenIn(ctx, b.c, b.dir, stateName, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: first})
	if err != nil {
		return nil, hold.Ended(ctx, err, "enter", b.dir)
	}
	p, err := b.enter(ctx, file)
	hold.Leave(ctx, file)
	if err != nil {
		return nil, err
	}
	// The last call may have waited for an absent cell, and the others may have gone on.
	if err := p.held.Lock.Err(); err != nil {
		hold.Leave(ctx, p.held.Handle)
		return nil, fmt.Errorf("enter %s: its member was lost at once: %w", b.dir, err)
	}
	return p, nil
}

func (b *DoubleBarrier) enter(ctx context.Context, file *client.Handle) (*Pass, error) {
	p := &Pass{b: b, name: memberPrefix + rand.Text()}
	own := client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}
	var err error
	p.held, err = hold.Take(ctx, b.c, b.dir+"/"+p.name, own, api.Exclusive, false, client.Reason("participant of a double barrier"))
	if err != nil {
		return nil, hold.Ended(ctx, err, "enter", b.dir)
	}
	if err := b.room(p); err != nil {
		hold.Leave(ctx, p.held.Handle)
		return nil, err
	}
	waiting, stop := p.held.Lock.With(ctx)
	defer stop()
	lock := p.held.Lock.Context()
	err = p.join(waiting, file)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = p.withdraw(ctx, file, hold.Ended(ctx, err, "enter", b.dir))
	case errors.Is(err, api.BadSequencer): // its event has not come yet
		err = fmt.Errorf("enter %s: its member was lost while it waited: %w", b.dir, err)
	case lock.Err() != nil:
		err = fmt.Errorf("enter %s: its member was lost while it waited: %w", b.dir, context.Cause(lock))
	}
	if err != nil {
		hold.Leave(ctx, p.held.Handle)
		return nil, err
	}
	return p, nil
}

// room rejects a path too long for the state to name all participants: early ones would wait permanently.
func (b *DoubleBarrier) room(p *Pass) error {
	const rest = 32 // quotes, a comma, and digits of a greater generation
	most := b.n * (len(p.name) + len(p.held.Lock.Sequencer().String()) + rest)
	if most <= api.MaxContents {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: "enter", Path: b.dir, Message: fmt.Sprintf(
		"with so long a path the state of %d participants may have %d bytes, and a file holds at most %d; take a shorter path", b.n, most, api.MaxContents)}
}

func (p *Pass) join(ctx context.Context, file *client.Handle) error {
	// The n-th participant asks the cell for the others' locks; the write checks its own.
	alive := client.IfSequencer(p.held.Lock.Sequencer())
	return p.b.watch(ctx, "enter", func(dir *client.Handle, due bool) (done bool, err error) {
		err = p.b.change(ctx, file, func(s *party) (bool, error) {
			_, member := s.Members[p.name]
			switch {
			case p.round != 0 && (!member || s.Round != p.round):
				return false, &api.Error{Code: api.NotHeld, Op: "enter", Path: p.b.dir + "/" + p.name, Message: "the member was struck out, as its file was deleted; enter again"}
			case member:
				p.round, done = s.Round, s.Inside
				return false, nil
			case s.Inside:
				return p.b.strike(ctx, dir, s, due) // waiters for the round's end retry this
			}
			s.Members[p.name] = p.held.Lock.Sequencer().String()
			if len(s.Members) < p.b.n {
				return true, nil
			}
			if err := p.b.holding(ctx, s, p.name); err != nil {
				return false, err
			}
			s.Inside = len(s.Members) == p.b.n
			return true, nil
		}, alive)
		return done, err
	})
}

// withdraw takes the member out of a round that gathers. It returns nil if the round is inside with it, and
// else why it left. It always writes: that settles an earlier unanswered write.
func (p *Pass) withdraw(ctx context.Context, file *client.Handle, why error) error {
	given := ctx.Err()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hold.LeaveTime)
	defer cancel()
	counted := false
	err := p.b.change(ctx, file, func(s *party) (bool, error) {
		_, member := s.Members[p.name]
		if counted = member && s.Inside; counted {
			p.round = s.Round
			return false, nil
		}
		delete(s.Members, p.name)
		return true, nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return &api.Error{Code: api.Uncertain, Op: "enter", Path: p.b.dir, Err: given,
			Message: "it was given up, and may have been counted; if it was, it will be taken for dead: " + err.Error()}
	case err != nil:
		return err
	case counted:
		return nil
	}
	return why
}

// Round returns the number of the round, which grows by one; all its members have the same.
func (p *Pass) Round() uint64 { return p.round }

// Context is that of the work between Enter and Leave. It ends, with the cause, before others may take this
// participant for dead (client.Lock.Context), and by Leave.
func (p *Pass) Context() context.Context { return p.held.Lock.Context() }

// Done is closed when Context ends.
func (p *Pass) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why others may take this participant for dead, or nil.
func (p *Pass) Err() error { return p.held.Lock.Err() }

// Path returns the path of the participant's file.
func (p *Pass) Path() string { return p.held.Handle.Path() }

// Leave says that this participant is done, and returns when all of the round have left or died. If ctx ends
// first, it returns DeadlineExceeded or Cancelled; call it again: until the cell knows, the others wait. If
// the state was deleted or made anew, the participant is gone: the error is NotFound, HandleClosed, or
// InvalidArgument for another size.
func (p *Pass) Leave(ctx context.Context) error {
	ctx, cancel := p.b.c.CleanupContext(ctx)
	defer cancel()
	err := p.leave(ctx)
	if hold.Gone(err) || errors.Is(err, api.InvalidArgument) {
		_ = p.held.Release(ctx) // no participant waits for it
	}
	return err
}

func (p *Pass) leave(ctx context.Context) error {
	file, err := p.b.c.Open(ctx, p.b.dir+"/"+stateName, client.OpenOptions{Read: true, Write: true})
	if err != nil {
		return hold.Ended(ctx, err, "leave", p.b.dir)
	}
	defer hold.Leave(ctx, file)
	return p.b.watch(ctx, "leave", func(dir *client.Handle, due bool) (over bool, err error) {
		err = p.b.change(ctx, file, func(s *party) (bool, error) {
			switch {
			case s.Round > p.round:
				over = true
				return false, nil
			case s.Round < p.round || !s.Inside:
				return false, &api.Error{Code: api.NotFound, Op: "leave", Path: file.Path(),
					Message: "the state was deleted while the double barrier was used, and made anew; there is no such round any more, so enter again"}
			}
			_, member := s.Members[p.name]
			delete(s.Members, p.name)
			struck, err := p.b.strike(ctx, dir, s, due)
			return struck || member, err
		})
		if err == nil {
			_ = p.held.Release(ctx) // the others no longer need it
		}
		return over, err
	})
}

// watch calls look at once, at each change of the state or its members, and when due, until it is done. It is due
// once in each period of verify, as no event tells of the end of a session whose file another has open.
func (b *DoubleBarrier) watch(ctx context.Context, op string, look func(dir *client.Handle, due bool) (done bool, err error)) error {
	dir, err := b.c.Open(ctx, b.dir, client.OpenOptions{Read: true, Kind: api.Directory, Events: []api.EventKind{api.EventChildModified, api.EventChildRemoved}})
	if err != nil {
		return hold.Ended(ctx, err, op, b.dir)
	}
	defer hold.Leave(ctx, dir)
	for due := false; ; due = true {
		if more, err := watchPeriod(ctx, dir, due, look); !more {
			return hold.Ended(ctx, err, op, b.dir)
		}
	}
}

// watchPeriod is watch until the next look is due. It reports whether to go on.
func watchPeriod(ctx context.Context, dir *client.Handle, due bool, look func(dir *client.Handle, due bool) (bool, error)) (more bool, err error) {
	period, stop := context.WithTimeout(ctx, verify)
	defer stop()
	for {
		if done, err := look(dir, due); done || err != nil {
			return false, err
		}
		due = false
		if err := awaitEvents(period, dir); err != nil {
			return ctx.Err() == nil && period.Err() != nil, err
		}
	}
}

// awaitEvents waits for an event, and a moment for others that come with it.
func awaitEvents(ctx context.Context, dir *client.Handle) error {
	if _, err := dir.Next(ctx); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	for {
		if _, err := dir.Next(soon); err != nil {
			return nil //nolint:nilerr // the moment is over, or the next call finds it again
		}
	}
}

// change changes the state by compare-and-swap. It calls edit with the present state until edit declines or
// the change is made. The options are those of the write.
func (b *DoubleBarrier) change(ctx context.Context, file *client.Handle, edit func(s *party) (bool, error), options ...client.WriteOption) error {
	for {
		text, stat, err := file.Contents(ctx)
		if err != nil {
			return err
		}
		s := party{}
		if err := json.Unmarshal(text, &s); err != nil {
			return &api.Error{Code: api.InvalidArgument, Op: "read", Path: file.Path(), Err: err, Message: "it is not the state of a double barrier"}
		}
		if s.Size != b.n {
			return &api.Error{Code: api.InvalidArgument, Op: "enter", Path: b.dir, Message: fmt.Sprintf(
				"this double barrier was made for %d, and the directory says %d; make all of one size, or delete %s while nobody uses it", b.n, s.Size, file.Path())}
		}
		if s.Members == nil {
			s.Members = map[string]string{}
		}
		write, err := edit(&s)
		if err != nil || !write {
			return err
		}
		if text, err = json.Marshal(s); err != nil {
			return err
		}
		if _, err = file.SetContents(ctx, text, append(options, client.IfGeneration(stat.Content))...); !errors.Is(err, api.GenerationMismatch) {
			return err
		}
	}
}

// strike strikes out the members whose files are gone and, when due, those that no longer hold their locks.
// Without members it begins the next round. It reports whether it had work. The round is inside.
func (b *DoubleBarrier) strike(ctx context.Context, dir *client.Handle, s *party, due bool) (struck bool, err error) {
	list, err := dir.ReadDir(ctx)
	if err != nil {
		return false, err
	}
	before := len(s.Members)
	maps.DeleteFunc(s.Members, func(name, _ string) bool {
		return !slices.ContainsFunc(list, func(one api.Stat) bool { return one.Path.Base() == name })
	})
	if due && len(s.Members) > 0 {
		if err := b.holding(ctx, s, ""); err != nil {
			return false, err
		}
	}
	if len(s.Members) == 0 {
		s.Round, s.Inside = s.Round+1, false
		return true, nil
	}
	return len(s.Members) < before, nil
}

// holding strikes out the members, except one, that no longer hold their locks, as a file outlives its
// session for a moment. It is one call for all. It does not check sequencers: those of v0.1.0 programs have
// no proof, and a lock that an operator took counts until its holder has let go.
func (b *DoubleBarrier) holding(ctx context.Context, s *party, but string) error {
	locks, err := b.c.Cell().Locks(ctx, b.dir)
	if err != nil {
		return err
	}
	held := map[string]api.Generation{}
	for _, l := range locks {
		if path, err := api.ParsePath(l.Path); err == nil && len(l.Holders) > 0 {
			held[path.Base()] = l.Generation
		}
	}
	maps.DeleteFunc(s.Members, func(name, text string) bool {
		seq, err := sequencer.Parse(text)
		return name != but && (err != nil || held[name] != seq.Generation)
	})
	return nil
}
