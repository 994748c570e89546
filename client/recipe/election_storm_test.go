//go:build linux

package recipe

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
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

// writtenBy returns what a primary has had written until now.
func (b *ballot) writtenBy(token uint64) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.written[token])
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
		o.check(w.T, b.writtenBy) // the last primary goes on writing
	}
	b.mu.Lock()
	reigns := slices.Clone(b.reigns)
	b.mu.Unlock()
	if last := reigns[len(reigns)-1]; last.Lock().Err() != nil || len(reigns) < 5 {
		w.T.Errorf("%d reigns, the last is over: %v", len(reigns), last.Lock().Err())
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
		list := ok(Candidates(w.Ctx, c, office))(w)
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
		x := ok(c.Cell().Explain(w.Ctx, office))(w)
		for _, h := range x.Lock.Holders {
			_ = c.EndSession(w.Ctx, h.Session, "a drill") // it may have ended
		}
	}
}

// No event tells of what is done while its reader may not read it. What is followed is looked at now and then, and so it is known
// a lease after it may be read again.
func TestWhatIsDoneWhileItMayNotBeRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("author")
		w.Put(c, "/ls/local/acl/authors", "author\n")
		w.Put(c, "/ls/local/acl/all", "author\nreader\n")
		const file, dir = "/ls/local/file", "/ls/local/dir"
		w.Put(c, file, "host:1")
		w.Mkdir(c, dir)
		permit := func(list string, paths ...string) {
			for _, path := range paths {
				h := ok(c.Open(w.Ctx, path, client.OpenOptions{ChangeACL: true}))(w)
				ok(h.SetACL(w.Ctx, api.ACL{Read: list, Write: list, Change: list}))(w)
				w.OK(h.Close(w.Ctx))
			}
		}
		permit("all", file, dir)
		l := ok(c.Acquire(w.Ctx, file))(w)

		reader := w.Client("reader")
		f := ok(WatchConfig(w.Ctx, w.ConfigOf("reader"), file, func(text []byte) (string, error) { return string(text), nil }, ConfigFileOptions[string]{}))(w)
		defer f.Close()
		watched := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Change, error] { return Watch(ctx, reader, file) })
		observed := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Reign, error] { return Observe(ctx, reader, file) })
		members := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]Member, error] { return WatchMembers(ctx, reader, dir) })
		endpoints := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]Endpoint, error] { return WatchEndpoints(ctx, reader, file) })
		pass(time.Second)
		permit("authors", file, dir)
		w.Put(c, file, "host:2")
		p := ok(Announce(w.Ctx, c, dir, "a", nil))(w)
		permit("all", dir+"/a", file, dir)
		pass(verify + time.Second)
		if f.Value() != "host:2" || !f.Fresh() {
			t.Errorf("the value is %q, fresh %v", f.Value(), f.Fresh())
		}
		for _, one := range []struct{ told, last string }{
			{watched.Words(func(c Change) string { return string(c.Contents) }, " "), "host:2"},
			{observed.Words(func(r Reign) string { return string(r.Value) }, " "), "host:2"},
			{members.Words(names, " "), "a="},
			{endpoints.Words(addresses, " "), "host:2*0"},
		} {
			if !strings.HasSuffix(one.told, one.last) {
				t.Errorf("told %q, want %q at last", one.told, one.last)
			}
		}
		w.OK(p.Withdraw(w.Ctx))
		w.OK(l.Release(w.Ctx))
	})
}

// The end of a node is told also to a session for which more events wait than are kept: an announcement
// is made again, and who follows a file follows the one that took its place.
func TestEndOfANodeAmongTooManyEvents(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		// Caches would have the changes below wait for the host that is cut off.
		open := func(host string) *client.Client {
			return w.Client(host, func(cfg *client.Config) { cfg.NoCache, cfg.Lease = true, api.MaxLease })
		}
		a, operator := open("a"), open("operator")
		p := ok(Announce(w.Ctx, a, up, "a", []byte("1")))(w)
		const busy, followed = "/ls/local/busy", "/ls/local/followed"
		w.Put(operator, busy, "0")
		w.Put(operator, followed, "old")
		watched := ok(a.Open(w.Ctx, busy, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}}))(w)
		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		values := make(chan string, 10)
		go func() {
			defer close(values)
			for s, err := range follow(ctx, a, followed, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}}) {
				if err != nil || s.Handle == nil {
					continue
				}
				if text, _, err := s.Contents(ctx); err == nil {
					values <- string(text)
				}
			}
		}()
		pass(time.Second)

		w.Cut("a")
		h := ok(operator.Open(w.Ctx, busy, client.OpenOptions{Write: true}))(w)
		for range api.MaxEventQueue + 1 {
			ok(h.SetContents(w.Ctx, []byte("1")))(w)
		}
		w.Rm(operator, up+"/a")
		w.Rm(operator, followed)
		w.Put(operator, followed, "new")
		w.Heal("a")
		w.Settle()

		list := ok(Members(w.Ctx, operator, up))(w)
		if names(list) != "a=1" {
			t.Errorf("announced: %q", names(list))
		}
		cancel()
		var last string
		for text := range values {
			last = text
		}
		if last != "new" || a.Err() != nil {
			t.Errorf("followed: %q; session %v", last, a.Err())
		}
		w.OK(watched.Close(w.Ctx))
		w.OK(p.Withdraw(w.Ctx))
	})
}
