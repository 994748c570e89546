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

// TestCachedIsUncached: a client with a cache reads the same as one without: contents, metadata, absence, listings and
// refusals (Chubby §2.7). Meanwhile clients change a small tree, its access control lists and each other's sessions,
// and masters change. There is one operation at a time, so that there is one right answer. Each seed is another
// history.
func TestCachedIsUncached(t *testing.T) {
	seeds := uint64(2)
	if *full {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				w := newMirror(t, ctx, c, seed)
				for step := range 600 {
					who, what := w.disturb(ctx)
					<-time.After(time.Duration(w.rng.IntN(3)) * time.Millisecond) // time for removals in the background
					w.compare(ctx, fmt.Sprintf("step %d, after %s by %s", step, what, w.hosts[who]))
					if t.Failed() {
						return
					}
				}
				var hits uint64
				for _, cl := range w.cached {
					hits += cl.Stats().Cache.Hits
				}
				failIf(t, hits == 0, "no cache answered, so the test proves nothing")
			}, cell.RefuseEntries)
		})
	}
}

// mirror has three principals, each with a client with a cache and one without.
type mirror struct {
	t             *testing.T
	c             *celltest.Cell
	rng           *rand.Rand
	hosts         []string
	admin         *client.Client
	cached, plain []*client.Client
	open          [][]*client.Handle // handles that the caching clients keep
	paths         []string
}

func newMirror(t *testing.T, ctx context.Context, c *celltest.Cell, seed uint64) *mirror {
	w := &mirror{t: t, c: c, rng: rand.New(rand.NewPCG(seed, 1)), hosts: []string{"a", "b", "c"}, open: make([][]*client.Handle, 3)}
	w.admin = dial(t, ctx, c, "admin", client.Config{As: "admin"})
	for _, list := range []string{"la", "lb"} {
		w.setList(ctx, list, "*\n")
	}
	for _, host := range w.hosts {
		w.cached = append(w.cached, dial(t, ctx, c, host, client.Config{As: host}))
		w.plain = append(w.plain, dial(t, ctx, c, "plain", client.Config{As: host, NoCache: true}))
	}
	for _, dir := range []string{"/d1", "/d1/e1", "/d2"} {
		w.paths = append(w.paths, "/ls/local"+dir)
		for i := range 3 {
			w.paths = append(w.paths, fmt.Sprintf("/ls/local%s/f%d", dir, i))
		}
	}
	return w
}

func (w *mirror) setList(ctx context.Context, name, text string) {
	h := must(w.admin.Open(ctx, "/ls/local/acl/"+name, client.OpenOptions{Write: true, Create: client.File}))(w.t)
	must(h.SetContents(ctx, []byte(text)))(w.t)
	_ = h.Close(ctx) // nothing depends on it
}

func (w *mirror) any(of ...string) string { return of[w.rng.IntN(len(of))] }

// disturb does one random operation; it may be refused.
func (w *mirror) disturb(ctx context.Context) (who int, what string) {
	who = w.rng.IntN(len(w.cached))
	cl, path := w.cached[who], w.any(w.paths...)
	file := path[len(path)-2] == 'f'
	with := func(o client.OpenOptions, do func(h *client.Handle)) {
		if h, err := cl.Open(ctx, path, o); err == nil {
			do(h)
			_ = h.Close(ctx) // the node may be gone
		}
	}
	switch n := w.rng.IntN(120); {
	case n < 30:
		o := client.OpenOptions{Read: true, Write: true, ChangeACL: true, Create: client.Directory}
		if file {
			o.Create, o.Ephemeral = client.File, w.rng.IntN(3) == 0
		}
		h, err := cl.Open(ctx, path, o)
		if err == nil {
			w.open[who] = append(w.open[who], h)
		}
		what = "an Open of " + path
	case n < 60:
		with(client.OpenOptions{Write: true}, func(h *client.Handle) { _, _ = h.SetContents(ctx, []byte(w.any("x", "y", "z"))) })
		what = "a write of " + path
	case n < 75:
		with(client.OpenOptions{Write: true}, func(h *client.Handle) { _ = h.Delete(ctx) })
		what = "a deletion of " + path
	case n < 85:
		with(client.OpenOptions{ChangeACL: true}, func(h *client.Handle) {
			_, _ = h.SetACL(ctx, api.ACL{Read: w.any("la", "lb", "everyone"), Write: w.any("la", "lb", "everyone")})
		})
		what = "a change of the ACL of " + path
	case n < 95:
		w.setList(ctx, w.any("la", "lb"), w.any("*\n", "a\nadmin\n", "b\nadmin\n", "c\nadmin\n"))
		what = "a change of a list"
	case n < 116:
		if k := len(w.open[who]); k > 0 {
			_ = w.open[who][k-1].Close(ctx) // the node may be gone
			w.open[who] = w.open[who][:k-1]
		}
		what = "a Close"
	case n == 116:
		w.c.Restart(w.c.FailOver())
		what = "a fail-over"
	case n == 117:
		if w.rng.IntN(2) == 0 {
			w.c.Reset(w.hosts[who]) // so that answers are lost: Cut only delays them
		} else {
			w.c.Cut(w.hosts[who])
		}
		<-time.After(time.Duration(w.rng.IntN(14)) * time.Second)
		w.c.Heal(w.hosts[who])
		<-time.After(time.Second)
		what = "a cut"
	case n == 118:
		w.c.Expire(cl.Session())
		<-time.After(2 * time.Second)
		what = "an expiry"
	}
	if cl.Err() != nil {
		w.open[who] = nil
		w.cached[who] = dial(w.t, ctx, w.c, w.hosts[who], client.Config{As: w.hosts[who]})
	}
	return who, what
}

// compare reads one path with a cache and without.
func (w *mirror) compare(ctx context.Context, when string) {
	who, path := w.rng.IntN(len(w.cached)), w.any(w.paths...)
	both := func() (got, want string) {
		own, list := shown(ctx, w.cached[who], path)
		plain, children := shown(ctx, w.plain[who], path)
		for i := range min(len(list), len(children)) { // what was told while the reader might read the child may stay in its cache until it changes
			if s := children[i]; s.Withheld && s.Path == list[i].Path {
				list[i] = api.Stat{Path: s.Path, Kind: list[i].Kind, Ephemeral: list[i].Ephemeral, Withheld: true}
			}
		}
		return fmt.Sprintf("%s %+v", own, list), fmt.Sprintf("%s %+v", plain, children)
	}
	got, want := both()
	if got != want { // an ephemeral node may have been removed between the two
		<-time.After(100 * time.Millisecond)
		got, want = both()
	}
	if got != want {
		w.t.Errorf("%s, %s reads %s with a cache as\n%s\nand without as\n%s", when, w.hosts[who], path, got, want)
	}
}

// shown returns everything that a client reads of a path, except what a caching client does not show.
func shown(ctx context.Context, cl *client.Client, path string) (own string, children []api.Stat) {
	h, err := cl.Open(ctx, path, client.OpenOptions{Read: true})
	if err != nil {
		return api.CodeOf(err).String(), nil
	}
	defer h.Close(ctx)
	stat, err := h.Stat(ctx)
	if err != nil {
		return api.CodeOf(err).String(), nil
	}
	stat.Lock = 0
	if stat.Kind == api.File {
		text, _, err := h.Contents(ctx)
		return fmt.Sprintf("%+v %q %v", stat, text, api.CodeOf(err)), nil
	}
	list, err := h.ReadDir(ctx)
	for i := range list {
		list[i].Lock = 0
		if cl.Stats().Cache.Misses == 0 { // it does not cache
			list[i].Children = 0
		}
	}
	return fmt.Sprintf("%+v %v", stat, api.CodeOf(err)), list
}

// register is one file with one author. writes increases when a change begins and when it is acknowledged, so while it
// is odd the contents may be the old or the new ones.
type register struct {
	path   string
	writes atomic.Int64
}

// contents returns the file's contents after that many writes; it is absent after every third change.
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
			failIf(t, ctx.Err() == nil, "change %d of %s: %v", n, r.path, err)
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

// cacheTrial has clients read a few files again and again, through their caches, while authors change them and the
// given failures happen. It returns how often a cache answered, and the first wrong answer.
func cacheTrial(t *testing.T, ctx context.Context, c *celltest.Cell, span time.Duration, trouble ...func(stop <-chan struct{})) (hits uint64, wrong error) {
	t.Helper()
	var registers []*register
	for i := range 4 {
		registers = append(registers, &register{path: fmt.Sprintf("/ls/local/d/%d", i)})
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	noErr(t, errOf(dial(t, ctx, c, "root", client.Config{}).Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory})))
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
		report(t, wrong)
		failIf(t, hits < 500, "the caches answered only %d times", hits)
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
