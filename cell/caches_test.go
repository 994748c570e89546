package cell_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// register is one file with one author, and what is known to be in it: writes
// counts up when a change begins and when it is acknowledged, so it is odd while
// the contents may be either.
type register struct {
	path   string
	writes atomic.Int64
}

// contents is what the file holds after that many; it is absent after every
// third change.
func (r *register) contents(writes int64) (text string, absent bool) {
	return fmt.Sprint(writes), writes/2%3 == 2
}

// author makes changes until stop is closed.
func (r *register) author(t *testing.T, ctx context.Context, cl *client.Client, stop <-chan struct{}, pause time.Duration) {
	for n := int64(0); ; n += 2 {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.Int64N(int64(pause)))):
		}
		text, absent := r.contents(n + 2)
		r.writes.Store(n + 1)
		h, err := cl.Open(ctx, r.path, client.OpenOptions{Write: true, Create: client.File, Contents: []byte(text)})
		switch {
		case err != nil:
		case absent:
			err = h.Delete(ctx)
		case !h.Created():
			_, err = h.SetContents(ctx, []byte(text))
		}
		if h != nil {
			err = errors.Join(err, h.Close(ctx))
		}
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("change %d of %s: %v", n, r.path, err)
			}
			return
		}
		r.writes.Store(n + 2)
	}
}

// look reads the file and compares: a read that no change overlaps shows what the
// last acknowledged change left.
func (r *register) look(ctx context.Context, cl *client.Client) error {
	before := r.writes.Load()
	h, err := cl.Open(ctx, r.path, client.OpenOptions{Read: true})
	absent := errors.Is(err, api.NotFound)
	if err != nil && !absent {
		return err
	}
	var got []byte
	if !absent {
		got, _, err = h.Contents(ctx)
		absent = errors.Is(err, api.HandleClosed)
		if err != nil && !absent {
			return err
		}
		if err := h.Close(ctx); err != nil {
			return err
		}
	}
	if r.writes.Load() != before || before%2 == 1 {
		return nil
	}
	if text, gone := r.contents(before); before > 0 && (gone != absent || !gone && string(got) != text) {
		return fmt.Errorf("%s: after change %d was acknowledged, and before another, it reads %q, absent %v", r.path, before/2, got, absent)
	}
	return nil
}

// list reads the directory and compares as look does.
func list(ctx context.Context, d *client.Handle, registers []*register) error {
	before := make([]int64, len(registers))
	for i, r := range registers {
		before[i] = r.writes.Load()
	}
	children, err := d.ReadDir(ctx)
	if err != nil {
		return err
	}
	for i, r := range registers {
		if r.writes.Load() != before[i] || before[i]%2 == 1 || before[i] == 0 {
			continue
		}
		there := slices.ContainsFunc(children, func(s api.Stat) bool { return s.Path.String() == r.path })
		if _, gone := r.contents(before[i]); gone == there {
			return fmt.Errorf("%s: after change %d was acknowledged, and before another, it is listed: %v", r.path, before[i]/2, there)
		}
	}
	return nil
}

// cacheTrial has clients read a few files again and again, through their caches,
// while authors change them and trouble is made, and returns how often a cache
// answered and the first wrong answer.
func cacheTrial(t *testing.T, ctx context.Context, c *celltest.Cell, span time.Duration, trouble ...func(stop <-chan struct{})) (hits uint64, wrong error) {
	t.Helper()
	var registers []*register
	for i := range 4 {
		registers = append(registers, &register{path: fmt.Sprintf("/ls/local/d/%d", i)})
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	if _, err := dial(t, ctx, c, "root", client.Config{}).Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory}); err != nil {
		t.Fatal(err)
	}
	for i, r := range registers {
		cl := dial(t, ctx, c, fmt.Sprint("author", i), client.Config{})
		busy.Go(func() { r.author(t, ctx, cl, stop, 500*time.Millisecond) })
	}
	var mu sync.Mutex
	report := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if wrong == nil && ctx.Err() == nil && !errors.Is(err, api.SessionExpired) {
			wrong = err
		}
	}
	var readers []*client.Client
	for i := range 4 {
		host := fmt.Sprint("reader", i)
		c.Slow(host, time.Duration(1+i)*time.Millisecond)
		cl := dial(t, ctx, c, host, client.Config{Lease: 4 * time.Second})
		readers = append(readers, cl)
		d, err := cl.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.Int64N(int64(5 * time.Millisecond)))):
				}
				if rand.N(10) == 0 {
					err = list(ctx, d, registers)
				} else {
					err = registers[rand.N(len(registers))].look(ctx, cl)
				}
				if err != nil {
					report(err)
				}
			}
		})
	}
	for _, brew := range trouble {
		busy.Go(func() { brew(stop) })
	}
	time.Sleep(span)
	close(stop)
	busy.Wait()
	for _, cl := range readers {
		hits += cl.CacheStats().Hits
	}
	return hits, wrong
}

// Chubby §2.7: clients see consistent data or an error, never old data, whatever
// happens to the network, to masters and to clients.
func TestCachesAreConsistent(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		hits, wrong := cacheTrial(t, ctx, c, 45*time.Second,
			func(stop <-chan struct{}) { killMasters(c, 11*time.Second, stop) },
			func(stop <-chan struct{}) { flap(c, "reader0", stop) },
			func(stop <-chan struct{}) { cutForLong(c, "reader1", 7*time.Second, stop) },
		)
		if wrong != nil {
			t.Error(wrong)
		}
		if hits < 500 {
			t.Errorf("the caches answered %d times only", hits)
		}
		t.Logf("%d answers from caches", hits)
	}, cell.RefuseEntries)
}

// cutForLong cuts a host off for that long, again and again.
func cutForLong(c *celltest.Cell, host string, span time.Duration, stop <-chan struct{}) {
	for {
		for _, change := range []func(...string){c.Cut, c.Heal} {
			select {
			case <-stop:
				c.Heal(host)
				return
			case <-time.After(span):
			}
			change(host)
		}
	}
}

// Chubby §2.7: a change waits for a client that has the file in its cache and
// does not answer, but no longer than its lease; and not for one that caches
// nothing.
func TestChangeWaitsForLease(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path, lease = "/ls/local/f", 8 * time.Second
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		for _, test := range []struct {
			host          string
			cfg           client.Config
			least, within time.Duration
		}{
			{"caching", client.Config{Lease: lease}, time.Second, lease + time.Second},
			{"plain", client.Config{Lease: lease, NoCache: true}, 0, time.Second},
		} {
			reader := open(t, ctx, dial(t, ctx, c, test.host, test.cfg), path, 0)
			if _, _, err := reader.Contents(ctx); err != nil {
				t.Fatal(err)
			}
			c.Cut(test.host)
			time.Sleep(time.Second)
			began := time.Now()
			if _, err := h.SetContents(ctx, []byte("new")); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < test.least || took > test.within {
				t.Errorf("with a %s client cut off the write took %v", test.host, took)
			}
		}
	})
}

// decision 12: after a fail-over reads and locks do not wait for a client that
// is gone, and changes no longer than its lease.
func TestFailOverWaitsForCachesOnly(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const lease = 12 * time.Second
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), "/ls/local/f", 0)
		dead := open(t, ctx, dial(t, ctx, c, "dead", client.Config{Lease: lease}), "/ls/local/other", 0)
		if _, _, err := dead.Contents(ctx); err != nil {
			t.Fatal(err)
		}
		c.Cut("dead")
		master := c.Master()
		began := time.Now()
		c.Kill(master)
		if _, err := h.Stat(ctx); err != nil {
			t.Fatal(err)
		}
		if err := acquire(t, ctx, h).Release(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a read and a lock took %v after the master was killed", took)
		}
		if _, err := h.SetContents(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < lease-2*time.Second || took > lease+3*time.Second {
			t.Errorf("a change took %v after the master was killed with a caching client", took)
		}
	})
}

// A retried change does not wait again for what it has waited for, and one that
// is refused waits for nobody.
func TestRefusedChangeWaitsForNobody(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		reader := open(t, ctx, dial(t, ctx, c, "reader", client.Config{}), path, 0)
		if _, _, err := reader.Contents(ctx); err != nil {
			t.Fatal(err)
		}
		c.Cut("reader")
		began := time.Now()
		if _, err := h.SetContents(ctx, nil, client.IfGeneration(99)); !errors.Is(err, api.GenerationMismatch) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		c.Heal("reader")
	})
}

// The policy of decision 10: a client that holds up a change for longer than
// SlowClient is not extended any more.
func TestSlowClientIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := celltest.Start(t, 3, func(cfg *cell.Config) { cfg.SlowClient = 2 * time.Second })
		const path = "/ls/local/f"
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		slow := dial(t, ctx, c, "slow", client.Config{Lease: 30 * time.Second})
		if _, _, err := open(t, ctx, slow, path, 0).Contents(ctx); err != nil {
			t.Fatal(err)
		}
		c.Cut("slow")
		wrote := make(chan error, 1)
		go func() { _, err := h.SetContents(ctx, nil); wrote <- err }()
		time.Sleep(8 * time.Second) // longer than one attempt of the author's
		c.Heal("slow")
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		<-slow.Done()
		if !errors.Is(slow.Err(), client.EndedByCell) {
			t.Errorf("%v", slow.Err())
		}
	})
}

// Chubby §2.7: what is cached costs no call: contents, metadata, absence,
// listings and Opens.
func TestCachedReadsMakeNoCalls(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		author := dial(t, ctx, c, "author", client.Config{})
		cl := dial(t, ctx, c, "reader", client.Config{Lease: api.MaxLease})
		h := open(t, ctx, cl, "/ls/local/f", 0)
		if _, err := h.SetContents(ctx, []byte("a")); err != nil {
			t.Fatal(err)
		}
		d, err := cl.Open(ctx, "/ls/local", client.OpenOptions{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		all := func(want string) {
			t.Helper()
			got, _, err := h.Contents(ctx)
			_, statErr := h.Stat(ctx)
			children, listErr := d.ReadDir(ctx)
			_, absentErr := cl.Open(ctx, "/ls/local/absent", client.OpenOptions{Read: true})
			again, openErr := cl.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true})
			if err := errors.Join(err, statErr, listErr, openErr); err != nil || !errors.Is(absentErr, api.NotFound) {
				t.Fatal(err, absentErr)
			}
			if err := again.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if string(got) != want || len(children) != 2 {
				t.Errorf("%q, %d children", got, len(children))
			}
		}
		all("a")
		c.Cut("reader") // from here on no call can succeed
		for range 100 {
			all("a")
		}
		c.Heal("reader")
		before := cl.CacheStats()
		if _, err := open(t, ctx, author, "/ls/local/f", 0).SetContents(ctx, []byte("b")); err != nil {
			t.Fatal(err)
		}
		all("b")
		if after := cl.CacheStats(); after.Invalidations == before.Invalidations || before.Hits < 500 {
			t.Errorf("%+v, then %+v", before, after)
		}
	})
}

// An Open after an acknowledged change of an access control list obeys it, also
// where a handle could be used again (Chubby §2.3).
func TestCachedOpenObeysACL(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		admin := dial(t, ctx, c, "admin", client.Config{As: "admin"})
		list, err := admin.Open(ctx, "/ls/local/acl/readers", client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte("bob\nadmin\n")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Read: "readers"}}); err != nil {
			t.Fatal(err)
		}
		bob := dial(t, ctx, c, "bob", client.Config{As: "bob"})
		for range 3 {
			h, err := bob.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if bob.CacheStats().Hits == 0 {
			t.Error("no handle was used again")
		}
		if _, err := list.SetContents(ctx, []byte("admin\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := bob.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true}); !errors.Is(err, api.PermissionDenied) {
			t.Errorf("%v", err)
		}
	})
}
