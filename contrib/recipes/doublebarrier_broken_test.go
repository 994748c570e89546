//go:build linux

package recipes

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
	"github.com/chubbylock/chubby/sequencer"
)

// member returns the path of the file of a participant of the double barrier who holds its lock.
func (w *world) member(c *client.Client, but string) string {
	w.T.Helper()
	for range 1000 {
		locks, err := c.Cell().Locks(w.Ctx, partyDir)
		w.OK(err)
		for _, l := range locks {
			if len(l.Holders) > 0 && l.Path != but {
				return l.Path
			}
		}
		pass(10 * time.Millisecond)
	}
	w.T.Fatal("there is no participant")
	return ""
}

// One who waits at a double barrier, and whose lock is taken away by an operator, is told, and keeps its
// session.
func TestParticipantIsBroken(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, operator := w.Client("h1"), w.Client("operator")
			entered := make(chan error, 1)
			go func() {
				_, err := NewDoubleBarrier(one, partyDir, 2).Enter(w.Ctx)
				entered <- err
			}()
			pass(5 * time.Second)
			w.OK(operator.BreakLock(w.Ctx, w.member(operator, ""), "a test", now))
			select {
			case err := <-entered:
				if !errors.Is(err, api.LockLost) {
					t.Errorf("Enter: %v", err)
				}
			case <-time.After(time.Second):
				t.Error("Enter goes on with a member that is lost")
			}
			w.Lives(one)
			for _, p := range w.party(2, one, operator) {
				if p == nil || p.Round() != 1 {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// One whose lock is taken away while it works is waited for until it has let go, also when those who wait
// ask who lives.
func TestParticipantIsBrokenInside(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
		passes := w.party(2, one, two)
		left := make(chan error, 1)
		go func() { left <- passes[1].Leave(w.Ctx) }()
		pass(verify - 2*time.Second)
		w.OK(operator.BreakLock(w.Ctx, partyDir+"/"+passes[0].name, "a test", false))
		<-passes[0].Context().Done()
		select {
		case err := <-left:
			t.Fatalf("let out while the other had not let go: %v", err)
		case <-time.After(3 * time.Second): // it takes some time to stop
		}
		w.OK(one.Err())
		w.OK(passes[0].Leave(w.Ctx))
		w.OK(<-left)
	})
}

// Whoever would be the n-th lets nobody in if its own lock was taken away in the last moment.
func TestLastParticipantIsBroken(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const way = 200 * time.Millisecond
		w.Slow("h2", way)
		one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
		for i := range 32 {
			ctx, cancel := w.Brief(10 * time.Second)
			type result struct {
				pass *Pass
				err  error
				at   time.Time
			}
			enter := func(c *client.Client) chan result {
				ch := make(chan result, 1)
				go func() {
					p, err := NewDoubleBarrier(c, partyDir, 2).Enter(ctx)
					ch <- result{p, err, time.Now()}
				}()
				return ch
			}
			first := enter(one)
			pass(time.Second)
			mine := w.member(operator, "")
			second := enter(two)
			theirs := w.member(operator, mine)
			pass(time.Duration(i) * way / 4)
			broken := time.Now()
			err := operator.BreakLock(w.Ctx, theirs, "a test", true)
			a, b := <-first, <-second
			cancel()
			if err == nil && a.err == nil && a.at.Sub(broken) > way/8 {
				t.Errorf("%d: let in %v after the other was dead", i, a.at.Sub(broken))
			}
			var leaving sync.WaitGroup // one waits for the other
			for _, r := range []result{a, b} {
				if r.err == nil {
					leaving.Go(func() {
						ctx, cancel := w.Brief(time.Minute)
						defer cancel()
						_ = r.pass.Leave(ctx)
					})
				}
			}
			leaving.Wait()
		}
	})
}

// A participant that has died holds up nobody for longer than a lease, whether they leave or come, also if
// somebody has its file open.
func TestDeadParticipantIsRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		reader, four, five := w.Client("reader"), w.Client("h4"), w.Client("h5")
		for _, leaves := range []bool{true, false} {
			one, two := w.Client("h1"), w.Client("h2")
			passes := w.party(2, one, two)
			for _, p := range passes {
				if p == nil {
					t.Fatal("the round before is not over")
				}
				defer hold.Leave(w.Ctx, w.Read(reader, partyDir+"/"+p.name))
			}
			w.Expire(one.Session())
			ctx, cancel := w.Brief(verify + time.Second)
			if leaves {
				if err := passes[1].Leave(ctx); err != nil {
					t.Errorf("Leave: %v", err)
				}
			} else {
				w.Expire(two.Session())
				began := time.Now()
				w.party(2, four, five)
				if took := time.Since(began); took > verify+time.Second {
					t.Errorf("Enter took %v", took)
				}
			}
			cancel()
		}
	})
}

// A double barrier whose state could not name all participants is refused at once, before anybody waits in it.
func TestDoubleBarrierOfALongPath(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		dir := "/ls/local"
		for range 3 {
			dir += "/" + strings.Repeat("ü", api.MaxComponent/2) // which takes three times its bytes in a sequencer
			w.Mkdir(one, dir)
		}
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		if _, err := NewDoubleBarrier(one, dir+"/big", MaxParty).Enter(ctx); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "shorter path") {
			t.Errorf("%v", err)
		}
		if locks, err := two.Cell().LocksOf(w.Ctx, one.Session()); err != nil || len(locks) != 0 {
			t.Errorf("%v, %v", locks, err)
		}
		entered := make(chan error, 2)
		for range 2 {
			go func() {
				p, err := NewDoubleBarrier(two, dir+"/small", 2).Enter(ctx)
				if err == nil {
					err = p.Leave(ctx)
				}
				entered <- err
			}()
		}
		w.OK(<-entered)
		w.OK(<-entered)
	})
}

// A participant is a program of v0.1.0, which has taken its lock at a cell that makes proofs: the state has its sequencer as it got it, without
// one. It holds its lock, and so counts: what such a program does goes on as before, but at guards with a session.
func TestDoubleBarrierCountsMembersOfV010(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		old := w.Client("old")
		w.Mkdir(old, partyDir)
		h, err := old.Open(w.Ctx, partyDir+"/member-OLD", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true})
		w.OK(err)
		lock, err := h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		bare := lock.Sequencer()
		bare.Proof = sequencer.Proof{}
		text, err := json.Marshal(party{Size: 2, Round: 1, Members: map[string]string{"member-OLD": bare.String()}})
		w.OK(err)
		w.Put(old, partyDir+"/state", string(text))
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		if _, err := NewDoubleBarrier(w.Client("new"), partyDir, 2).Enter(ctx); err != nil {
			t.Errorf("both have come: %v", err)
		}
		w.OK(lock.Err())
		read, _, err := old.Get(w.Ctx, partyDir+"/state")
		w.OK(err)
		var s party
		w.OK(json.Unmarshal(read, &s))
		if _, counts := s.Members["member-OLD"]; !counts || !s.Inside {
			t.Errorf("a member that holds its lock was struck out: %s", read)
		}
	})
}

// A participant whose session has ended before it had a handle gets an error, and the others go on.
func TestDoubleBarrierWithoutASession(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		over, one := w.Client("over"), w.Client("one")
		w.Expire(over.Session())
		<-over.Done()
		if p, err := NewDoubleBarrier(over, partyDir, 1).Enter(w.Ctx); p != nil || !errors.Is(err, api.SessionExpired) {
			t.Errorf("%v, %v", p, err)
		}
		p, err := NewDoubleBarrier(one, partyDir, 1).Enter(w.Ctx)
		w.OK(err)
		w.OK(p.Leave(w.Ctx))
	})
}
