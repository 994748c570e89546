package recipe

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
	"github.com/chubbylock/chubby/sequencer"
)

// MaxParty is the most participants that a DoubleBarrier can have: each change of its state is heard
// by all, so a round costs the square of their number. With a very long path it is fewer, as one file names
// all of them; Enter says so.
const MaxParty = 200

// DoubleBarrier lets n participants begin together and end together, round after round. It is a
// directory: a state file {round, inside, members}, changed by compare-and-swap only, and an ephemeral
// file of each member, whose lock the member holds.
//
// A round is first gathering: members are entered into the state. Whoever would be the n-th asks the
// cell, after its own file is made and locked, which of the others still hold the locks of theirs, and
// strikes out those who do not; if there are n, the same write makes the round one that is inside.
// Nobody joins it then: members are only struck out, by themselves in Leave, or by others once their
// files are gone, or are not locked by them any more: a reader may keep the file of one who is dead. The
// write that strikes out the last makes the next round, which gathers.
//
// The invariants, which hold over fail-over, death, lost answers and whoever gives up:
//
//  1. A round is inside only if n members, of different names that no other round has seen, had entered
//     it, and each lived, and wanted in, at a moment after the last of them had come.
//  2. Enter returns nil only while its member is in a round that is inside, and Context has not ended.
//  3. The round number grows only when every member of it has left, or its session has ended, or its
//     lock was taken away by an operator and it has let go of it (with force: at once).
//  4. Leave returns nil only when the round number has grown; Enter joins none that is inside.
//
// That somebody is dead is known when the cell has ended his session, at the latest a lease after he
// was last heard of: so one that has crashed may be counted, if he came in just before, and holds up
// those who leave for so long; and for another lease, if somebody has his file open. It is not told to
// those who are inside; what depends on the others is to ask them. A participant knows of itself before
// the others may take it for dead (Pass.Context).
type DoubleBarrier struct {
	c   *client.Client
	dir string
	n   int
}

// Pass is the membership of one who was let in. Leave it; if the process cannot, the end of its session
// does.
type Pass struct {
	b     *DoubleBarrier
	round uint64
	name  string
	held  *held // the member's file
}

// party is the state of a double barrier, as it is in the file.
type party struct {
	Size    int               `json:"size"`
	Round   uint64            `json:"round"`
	Inside  bool              `json:"inside"`  // else it is gathering
	Members map[string]string `json:"members"` // sequencers by the names of files
}

const (
	stateName    = "state"
	memberPrefix = "member-"
)

// NewDoubleBarrier returns a double barrier for n participants, 1 to MaxParty. It asks nobody: the
// directory is made by the first Enter, in one that is there, with the n of that; from then on another
// n is refused. To change it, delete the file "state" of the directory while nobody uses the barrier.
func NewDoubleBarrier(c *client.Client, dir string, n int) *DoubleBarrier {
	return &DoubleBarrier{c: c, dir: dir, n: n}
}

// Enter waits until the round before is over and n participants, this one included, have come. Several
// may enter over one client: each call is a participant.
//
// If ctx ends before, it withdraws, and is DeadlineExceeded or Cancelled; but if it turns out that it
// has been counted, and others are let in because of it, it is in too, and returns the Pass and no error
// although ctx has ended. If the cell does not tell within two seconds it is Uncertain; the member goes
// with its file, in the background, as if it had died. If the member's lock is lost while it waits (an
// operator took it away, or the cell was away for a lease), the error says so, and it has left.
func (b *DoubleBarrier) Enter(ctx context.Context) (*Pass, error) {
	if b.n < 1 || b.n > MaxParty {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "enter", Path: b.dir, Message: fmt.Sprintf("a double barrier for %d; want 1 to %d", b.n, MaxParty)}
	}
	first, err := json.Marshal(party{Size: b.n, Round: 1})
	if err != nil {
		return nil, err
	}
	file, err := openIn(ctx, b.c, b.dir, stateName, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: first})
	if err != nil {
		return nil, ended(ctx, err, "enter", b.dir)
	}
	p, err := b.enter(ctx, file)
	leave(ctx, file)
	if err != nil {
		return nil, err
	}
	// What came last may have waited for a cell that was away, and the others may have gone on without it.
	if err := p.held.lock.Err(); err != nil {
		leave(ctx, p.held.handle)
		return nil, fmt.Errorf("enter %s: its member was lost at once: %w", b.dir, err)
	}
	return p, nil
}

// enter makes a member, and waits until its round is inside.
func (b *DoubleBarrier) enter(ctx context.Context, file *client.Handle) (*Pass, error) {
	p := &Pass{b: b, name: memberPrefix + rand.Text()}
	var err error
	own := client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}
	if p.held, err = take(ctx, b.c, b.dir+"/"+p.name, own, api.Exclusive, false, client.Reason("participant of a double barrier")); err != nil {
		return nil, ended(ctx, err, "enter", b.dir)
	}
	if err := b.room(p); err != nil {
		leave(ctx, p.held.handle)
		return nil, err
	}
	waiting, stop := p.held.lock.With(ctx)
	defer stop()
	lock := p.held.lock.Context()
	err = p.join(waiting, file)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = p.withdraw(ctx, file, ended(ctx, err, "enter", b.dir))
	case errors.Is(err, api.BadSequencer): // nothing has been heard of it yet
		err = fmt.Errorf("enter %s: its member was lost while it waited: %w", b.dir, err)
	case lock.Err() != nil:
		err = fmt.Errorf("enter %s: its member was lost while it waited: %w", b.dir, context.Cause(lock))
	}
	if err != nil {
		leave(ctx, p.held.handle)
		return nil, err
	}
	return p, nil
}

// room refuses a path so long that the state could not name all participants: those who had entered would
// wait for ever for one who cannot.
func (b *DoubleBarrier) room(p *Pass) error {
	const rest = 32 // quotes, a comma, and the digits of a greater generation
	most := b.n * (len(p.name) + len(p.held.lock.Sequencer().String()) + rest)
	if most <= api.MaxContents {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: "enter", Path: b.dir, Message: fmt.Sprintf(
		"with so long a path the state of %d participants may have %d bytes, and a file holds at most %d; take a shorter path", b.n, most, api.MaxContents)}
}

// join makes a member of the pass, and waits until its round is inside.
func (p *Pass) join(ctx context.Context, file *client.Handle) error {
	// Whoever makes the round one that is inside asks the cell for the others, and is himself asked for by
	// the write.
	alive := client.IfSequencer(p.held.lock.Sequencer())
	return p.b.watch(ctx, "enter", func(s sight) (done bool, err error) {
		dir, due := s.Handle, s.due
		err = p.b.change(ctx, file, func(s *party) (bool, error) {
			_, member := s.Members[p.name]
			switch {
			case p.round != 0 && (!member || s.Round != p.round):
				return false, &api.Error{Code: api.NotHeld, Op: "enter", Path: p.b.dir + "/" + p.name, Message: "the member was struck out, as its file was deleted; enter again"}
			case member:
				p.round, done = s.Round, s.Inside
				return false, nil
			case s.Inside:
				return p.b.strike(ctx, dir, s, due) // whoever waits for the round to be over sees to it
			}
			s.Members[p.name] = p.held.lock.Sequencer().String()
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

// withdraw takes the member out of a round that gathers. It returns nil if the round is inside with it,
// and else why it left. It writes in any case: a write of before that was left without an answer has
// happened then, or never will.
func (p *Pass) withdraw(ctx context.Context, file *client.Handle, why error) error {
	given := ctx.Err()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
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

// Round returns the number of the round: it grows by one with each, and is the same for all who are
// in it.
func (p *Pass) Round() uint64 { return p.round }

// Context is that of the work between Enter and Leave: it ends, with the cause, before the others may
// take this participant for dead (client.Lock.Context), and by Leave.
func (p *Pass) Context() context.Context { return p.held.lock.Context() }

// Done is closed when Context ends.
func (p *Pass) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why the others may take this participant for dead, nil while they may not.
func (p *Pass) Err() error { return p.held.lock.Err() }

// Path returns the path of the participant's file.
func (p *Pass) Path() string { return p.held.handle.Path() }

// Leave says that this participant has done its part, and returns when all of the round have left or
// died. If ctx ends before, it is DeadlineExceeded or Cancelled, and to be called again: until it has
// told the cell, the others wait for this participant. If the state was deleted, or made anew, there is
// no round to leave any more: it is NotFound, HandleClosed, or InvalidArgument where it is of another
// size, and the participant is gone.
func (p *Pass) Leave(ctx context.Context) error {
	ctx, cancel := p.b.c.CleanupContext(ctx)
	defer cancel()
	err := p.leave(ctx)
	if gone(err) || errors.Is(err, api.InvalidArgument) {
		_ = p.held.release(ctx) // nobody waits for it, and its file is to go
	}
	return err
}

func (p *Pass) leave(ctx context.Context) error {
	file, err := p.b.c.Open(ctx, p.b.dir+"/"+stateName, client.OpenOptions{Read: true, Write: true})
	if err != nil {
		return ended(ctx, err, "leave", p.b.dir)
	}
	defer leave(ctx, file)
	return p.b.watch(ctx, "leave", func(s sight) (over bool, err error) {
		dir, due := s.Handle, s.due
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
			_ = p.held.release(ctx) // the others need it no more; once
		}
		return over, err
	})
}

// watch calls look at once, whenever the state or who is there may have changed, and when it is due,
// until it is done.
func (b *DoubleBarrier) watch(ctx context.Context, op string, look func(s sight) (done bool, err error)) error {
	watching := client.OpenOptions{Read: true, Kind: api.Directory, Events: []api.EventKind{api.EventChildModified, api.EventChildRemoved}}
	for s, err := range follow(ctx, b.c, b.dir, watching) {
		if err != nil {
			return ended(ctx, err, op, b.dir)
		}
		if s.Handle == nil {
			return &api.Error{Code: api.NotFound, Op: op, Path: b.dir, Message: "the directory of the double barrier was deleted while it was used"}
		}
		done, err := look(s)
		if err != nil || done {
			return ended(ctx, err, op, b.dir)
		}
	}
	return nil
}

// change changes the state by compare-and-swap: edit is called with what it is, until it does not want
// it changed or the change was made. The options are those of the write.
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

// strike strikes out the members whose files are gone, and, when that is due, those who do not hold the
// locks of theirs any more; it begins the next round if that leaves none. It reports whether there was
// anything to do. The round is inside.
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

// holding strikes out the members, but for one, who do not hold the locks of their files any more: a file stays for a moment after the
// session that had it open. It is one call for all. The sequencers are not checked: those that a program of v0.1.0 has written have no
// proof, and a lock that an operator takes away counts until its holder has let go.
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
