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
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// register is one file with one author. writes increases when a change begins
// and when it is acknowledged, so while it is odd the contents may be the old
// or the new ones.
type register struct {
	path   string
	writes atomic.Int64
}

// contents returns the file's contents after that many writes; it is absent
// after every third change.
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

// look reads the file and compares: a read that no change overlaps must return
// the state after the last acknowledged change.
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

// cacheTrial has clients read a few files again and again, through their
// caches, while authors change them and the given failures happen. It returns
// how often a cache answered, and the first wrong answer.
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
		hits += cl.Stats().Cache.Hits
	}
	return hits, wrong
}

// Chubby §2.7: clients see consistent data or an error, never old data, whatever
// happens to the network, to masters and to clients.
func TestCachesAreConsistent(t *testing.T) {
	span := 24 * time.Second // long enough for four fail-overs
	if *full {
		span = 10 * time.Minute
	}
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		hits, wrong := cacheTrial(t, ctx, c, span,
			func(stop <-chan struct{}) { killMasters(c, 5*time.Second, stop) },
			func(stop <-chan struct{}) { flap(c, "reader0", stop) },
			func(stop <-chan struct{}) { cutForLong(c, "reader1", 7*time.Second, stop) },
		)
		if wrong != nil {
			t.Error(wrong)
		}
		if hits < 500 {
			t.Errorf("the caches answered only %d times", hits)
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
