//go:build linux

package recipes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/internal/hold"
)

const partyDir = "/ls/local/party"

// Nobody is let in before n have come, or out before all have left, round after round, whoever dies,
// gives up or takes over.
func TestDoubleBarrierRandom(t *testing.T) {
	t.Parallel()
	const n, clients = 3, 5
	inWorld(t, func(w *world) {
		j := newJournal()
		s := recipetest.NewStorm(w.World, 0, *rounds)
		s.Expire = func(c *client.Client) {
			j.note(func(now int) { j.dead[c.Session()] = now })
			if err := s.Replica(s.Master()).ExpireSession(s.Ctx, c.Session()); err == nil {
				j.note(func(now int) { j.gone[c.Session()] = now })
			}
		}
		began := time.Now()
		for i := range clients {
			// What comes at a moment in virtual time comes before everything else; so the ways have a length.
			s.Slow(fmt.Sprintf("h%d", i), time.Duration(1+rand.IntN(200))*time.Millisecond)
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error { return j.participate(s.Ctx, c, n, r) })
		}
		s.Rage(3*time.Second, 0)
		made, faults := j.check(n)
		for _, fault := range faults[:min(len(faults), 10)] {
			t.Error(fault)
		}
		t.Logf("%d rounds of %d turns in %v of virtual time", made, len(j.turns), time.Since(began))
		if made < *rounds/10 {
			t.Errorf("only %d rounds in %d turns", made, *rounds)
		}
	})
}

// party enters n and returns their passes.
func (w *world) party(n int, clients ...*client.Client) []*Pass {
	w.T.Helper()
	passes := make([]*Pass, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			p, err := NewDoubleBarrier(c, partyDir, n).Enter(w.Ctx)
			if err != nil {
				w.T.Error(err)
				return
			}
			passes[i] = p
		})
	}
	all.Wait()
	return passes
}

// Two enter and leave together, over fail-overs; one that dies inside is not waited for.
func TestDoubleBarrier(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.Client("h1"), w.Client("h2"), w.Client("h3")
		passes := w.party(2, one, two)
		if passes[0].Round() != 1 || passes[1].Round() != 1 {
			t.Fatalf("rounds %d and %d", passes[0].Round(), passes[1].Round())
		}
		ctx, cancel := w.Brief(5 * time.Second)
		if _, err := NewDoubleBarrier(three, partyDir, 2).Enter(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("a third: %v", err)
		}
		cancel()
		left := make(chan error)
		go func() { left <- passes[0].Leave(w.Ctx) }()
		w.Succeed()
		select {
		case err := <-left:
			t.Errorf("left alone: %v", err)
		case <-time.After(30 * time.Second):
		}
		w.OK(passes[1].Leave(w.Ctx))
		w.OK(<-left)
		w.OK(passes[1].Leave(w.Ctx)) // again
		passes = w.party(2, two, three)
		go func() { left <- passes[0].Leave(w.Ctx) }()
		w.Cut("h3")
		<-passes[1].Context().Done()
		select {
		case err := <-left:
			t.Errorf("let out before the other's context ended: %v", err)
		default:
		}
		w.OK(<-left)
		if _, err := NewDoubleBarrier(one, partyDir, 4).Enter(w.Ctx); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "made for 4, and the directory says 2") {
			t.Errorf("another size: %v", err)
		}
	})
}

// One who has come and died is not counted, nor one who gave up.
func TestDoubleBarrierDeathAtTheDoor(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two, three := w.Client("h1"), w.Client("h2"), w.Client("h3")
		dead := make(chan error)
		go func() {
			_, err := NewDoubleBarrier(one, partyDir, 2).Enter(w.Ctx)
			dead <- err
		}()
		pass(time.Second)
		w.Expire(one.Session())
		if err := <-dead; !errors.Is(err, api.SessionExpired) {
			t.Errorf("the dead: %v", err)
		}
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		if _, err := NewDoubleBarrier(two, partyDir, 2).Enter(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("the second: %v", err)
		}
		passes := w.party(2, two, three)
		for _, p := range passes {
			if p == nil || p.Round() != 1 {
				t.Errorf("%+v", p)
			}
		}
	})
}

// A round whose members have all died is over for those who wait for the next.
func TestDoubleBarrierAllDie(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two, three, four := w.Client("h1"), w.Client("h2"), w.Client("h3"), w.Client("h4")
		w.party(2, one, two)
		w.Expire(one.Session())
		w.Expire(two.Session())
		for _, p := range w.party(2, three, four) {
			if p == nil || p.Round() != 2 {
				t.Errorf("%+v", p)
			}
		}
	})
}

// One who is inside, and whose state is deleted, or made anew, is told, and leaves nothing.
func TestDoubleBarrierStateIsDeleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string // that is made instead
		code  api.Code
	}{
		"deleted":         {"", api.NotFound},
		"of another size": {`{"size":3,"round":9}`, api.InvalidArgument},
		"of no round yet": {`{"size":2,"round":2}`, api.NotFound},
		"of an old round": {`{"size":2,"round":1,"inside":true,"members":{"x":"y"}}`, api.NotFound},
		"of nothing":      {`?`, api.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSmallWorld(t, func(w *world) {
				one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
				var all sync.WaitGroup
				for _, p := range w.party(2, one, two) {
					all.Go(func() { _ = p.Leave(w.Ctx) })
				}
				all.Wait()
				passes := w.party(2, one, two)
				left := make(chan error, 2)
				go func() { left <- passes[0].Leave(w.Ctx) }()
				pass(time.Second)
				w.Rm(operator, partyDir+"/"+stateName)
				if err := <-left; !hold.Gone(err) {
					t.Errorf("who waited: %v", err)
				}
				if c.state != "" {
					w.Put(operator, partyDir+"/"+stateName, c.state)
				}
				ctx, cancel := w.Brief(time.Minute)
				defer cancel()
				if err := passes[1].Leave(ctx); api.CodeOf(err) != c.code {
					t.Errorf("who came: %v", err)
				}
				if members, err := recipe.Members(w.Ctx, operator, partyDir); err != nil || len(members) != 0 {
					t.Errorf("left behind: %v %v", members, err)
				}
				for _, p := range passes {
					if p.Context().Err() == nil {
						t.Error("it holds its lock")
					}
				}
			})
		})
	}
}

// One who gives up is in if the round has begun with it, and is not counted if it has not.
func TestDoubleBarrierGivesUp(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const way = 100 * time.Millisecond
		w.Slow("h1", way)
		one, two := w.Client("h1"), w.Client("h2")
		counted := 0
		for i := range 24 {
			// The other comes some time before or after this one gives up, and hears of it.
			ctx, cancel := w.Brief(10 * time.Second)
			type result struct {
				pass *Pass
				err  error
			}
			first, second := make(chan result, 1), make(chan result, 1)
			go func() {
				p, err := NewDoubleBarrier(one, partyDir, 2).Enter(ctx)
				first <- result{p, err}
			}()
			pass(3*time.Second - time.Duration(i-3)*way/8)
			waiting, stop := w.Brief(10 * time.Second)
			go func() {
				p, err := NewDoubleBarrier(two, partyDir, 2).Enter(waiting)
				second <- result{p, err}
			}()
			a, b := <-first, <-second
			cancel()
			stop()
			switch {
			case (a.err == nil) != (b.err == nil):
				t.Errorf("%d: %v, and the other: %v", i, a.err, b.err)
			case a.err == nil:
				if ctx.Err() != nil {
					counted++
				}
				left := make(chan error, 1)
				go func() { left <- a.pass.Leave(w.Ctx) }()
				w.OK(b.pass.Leave(w.Ctx))
				w.OK(<-left)
			}
		}
		if counted == 0 {
			t.Error("none was counted that gave up")
		}
	})
}

// That the time was over is said once.
func TestDoubleBarrierSaysItOnce(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		ctx, cancel := w.Brief(time.Second)
		defer cancel()
		_, err := NewDoubleBarrier(w.Client("h1"), partyDir, 2).Enter(ctx)
		if !errors.Is(err, api.DeadlineExceeded) || strings.Count(err.Error(), "its time was over") != 1 {
			t.Error(err)
		}
	})
}
