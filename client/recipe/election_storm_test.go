//go:build linux

package recipe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/client"
)

// ballot is what has become of an election in which everything goes wrong.
type ballot struct {
	t *testing.T

	mu      sync.Mutex // guards what follows
	reigns  []*Primary
	written map[uint64][]string // by token
	calm    bool                // no more trouble
	paused  string              // whose clock stands still, and to whom its lock does not end
}

// elected takes note of a primary, and checks that it is the only one, and newer than all before.
func (b *ballot) elected(p *Primary) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.reigns {
		if o.Name() != b.paused && o.Lock().Err() == nil && p.Lock().Err() == nil {
			b.t.Errorf("%s with token %d is the primary, and so is %s with token %d", o.Name(), o.Lock().Token(), p.Name(), p.Lock().Token())
		}
		if o.Lock().Token() >= p.Lock().Token() {
			b.t.Errorf("token %d after %d", p.Lock().Token(), o.Lock().Token())
		}
	}
	b.reigns = append(b.reigns, p)
}

// pause takes note of who is paused; "" is nobody, when there is one primary at most again.
func (b *ballot) pause(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = name
	believe := 0
	for _, p := range b.reigns {
		if p.Lock().Err() == nil {
			believe++
		}
	}
	if believe > 1 {
		b.t.Errorf("%d believe to be the primary", believe)
	}
}

// write has a value written, which may come to be seen from now on.
func (b *ballot) write(token uint64, value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written[token] = append(b.written[token], value)
}

// isCalm reports whether there is no more trouble.
func (b *ballot) isCalm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calm
}

// candidate campaigns until ctx ends, and reigns for a while each time.
func (b *ballot) candidate(ctx context.Context, cfg client.Config, name string, others []string) {
	delay := time.Duration(rand.N(3)) * 5 * time.Second
	for n := 0; ctx.Err() == nil; {
		_ = client.Renew(ctx, cfg, func(ctx context.Context, c *client.Client) error {
			for ctx.Err() == nil {
				n++
				value := fmt.Sprintf("%s-%d", name, n)
				p, err := Campaign(ctx, c, office, CampaignOptions{Name: name, Value: []byte(value), Priority: rand.N(3), LockDelay: delay})
				if err != nil {
					return err
				}
				b.elected(p)
				b.write(p.Lock().Token(), value)
				if err := b.reign(ctx, p, value, others); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// reign is what a primary does.
func (b *ballot) reign(ctx context.Context, p *Primary, value string, others []string) error {
	for i := 0; p.Lock().Err() == nil && ctx.Err() == nil; i++ {
		asked := p.Asked()
		if b.isCalm() {
			asked = nil
		}
		select {
		case <-time.After(time.Duration(1+rand.N(10)) * time.Second):
			next := fmt.Sprintf("%s-%d", value, i)
			b.write(p.Lock().Token(), next)
			_ = p.SetValue(p.Context(), []byte(next))
			if b.isCalm() {
				continue
			}
		case <-asked:
		case <-p.Context().Done():
		case <-ctx.Done():
		}
		switch rand.N(4) {
		case 0:
			_ = p.HandOver(ctx, others[rand.N(len(others))])
		case 1:
			continue
		}
		return p.Resign(ctx)
	}
	return p.Resign(ctx)
}

// Whatever happens to candidates and masters, and whoever is preferred to whom: at most one primary has a
// context that has not ended, tokens rise, and observers see values with the tokens of their authors only.
func TestElectionStorm(t *testing.T) {
	inWorld(t, func(w *world) {
		w.storm(min(time.Duration(*rounds)*3*time.Second, 45*time.Minute)) // a world lasts an hour
	})
}

func (w *world) storm(length time.Duration) {
	names := []string{"anna", "bert", "carl", "dora"}
	b := &ballot{t: w.T, written: map[uint64][]string{}}
	ctx, cancel := context.WithCancel(w.Ctx)
	var running sync.WaitGroup
	for _, name := range names {
		running.Go(func() { b.candidate(ctx, w.ConfigOf(name), name, names) })
	}
	near, far := w.observe("near"), w.observe("far")
	for began := time.Now(); time.Since(began) < length; {
		pass(time.Duration(rand.N(20_000)) * time.Millisecond)
		w.trouble(b, names[rand.N(len(names))])
	}
	b.mu.Lock()
	b.calm = true
	b.mu.Unlock()
	w.Heal(append(names, "far")...)
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	for _, o := range []observation{near, far} {
		o.check(w.T, b.written)
	}
	if last := b.reigns[len(b.reigns)-1]; last.Lock().Err() != nil || len(b.reigns) < 5 {
		w.T.Errorf("%d reigns, the last is over: %v", len(b.reigns), last.Lock().Err())
	}
	cancel()
	running.Wait()
}

// trouble makes some of it.
func (w *world) trouble(b *ballot, name string) {
	switch rand.N(8) {
	case 0:
		w.Succeed()
	case 1:
		w.Transfer()
	case 2:
		if rand.N(2) == 0 {
			w.Reset(name, "far") // answers are lost, where Cut delays them
		} else {
			w.Cut(name, "far")
		}
		time.Sleep(time.Duration(rand.N(5)) * time.Second) // the observer is to keep its session
		w.Heal("far")
		time.Sleep(time.Duration(rand.N(40)) * time.Second)
		w.Heal(name)
	case 3:
		b.pause(name)
		w.Pause(name)
		time.Sleep(time.Duration(rand.N(30)) * time.Second)
		w.Resume(name)
		b.pause("")
	case 4:
		c := w.Client("operator")
		_ = Nominate(w.Ctx, c, office, name)
	case 5: // a primary whose lock-delay is 0 would not know in time: so the others
		c := w.Client("operator")
		list, err := Candidates(w.Ctx, c, office)
		w.OK(err)
		for _, k := range list {
			if !k.Primary && k.Session != 0 {
				w.Expire(k.Session)
				return
			}
		}
	case 6:
		_ = w.Client("operator").BreakLock(w.Ctx, office, "a drill", false) // it may be free
	case 7:
		c := w.Client("operator")
		x, err := c.Cell().Explain(w.Ctx, office)
		w.OK(err)
		for _, h := range x.Lock.Holders {
			_ = c.EndSession(w.Ctx, h.Session, "a drill") // it may have ended
		}
	}
}
