package recipetest

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// World is a cell in a bubble of virtual time.
type World struct {
	*celltest.Cell
	T   *testing.T
	Ctx context.Context //nolint:containedctx // of the whole test: an hour of virtual time, so that what hangs fails
}

// Run runs a test with a cell of its own. With one replica it costs least: most of a virtual minute are heartbeats.
// Goroutines that the test starts end before it returns.
func Run(t *testing.T, replicas int, test func(w *World)) {
	t.Helper()
	celltest.Run(t, replicas, func(t *testing.T, c *celltest.Cell) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		test(&World{Cell: c, T: t, Ctx: ctx})
	})
}

// OK ends the test on an error.
func (w *World) OK(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Brief returns a context of that length.
func (w *World) Brief(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.Ctx, d)
}

// Pass lets virtual time pass.
func Pass(d time.Duration) { time.Sleep(d) }

// Settle lets so much time pass that all have done what is to be done.
func (w *World) Settle() { Pass(30 * time.Second) }

// Succeed kills the master, and brings it back when another serves.
func (w *World) Succeed() {
	w.T.Helper()
	w.Restart(w.FailOver())
}

// Mkdir makes a directory in an existing one.
func (w *World) Mkdir(c *client.Client, path string) {
	w.T.Helper()
	w.open(c, path, client.OpenOptions{Read: true, Create: client.Directory}, nil)
}

// Put writes a file, created if absent.
func (w *World) Put(c *client.Client, path, contents string) {
	w.T.Helper()
	w.open(c, path, client.OpenOptions{Write: true, Create: client.File}, func(h *client.Handle) error {
		_, err := h.SetContents(w.Ctx, []byte(contents))
		return err
	})
}

// Cat reads a file.
func (w *World) Cat(c *client.Client, path string) (contents string) {
	w.T.Helper()
	w.open(c, path, client.OpenOptions{Read: true, Kind: api.File}, func(h *client.Handle) error {
		text, _, err := h.Contents(w.Ctx)
		contents = string(text)
		return err
	})
	return contents
}

// Rm deletes a node.
func (w *World) Rm(c *client.Client, path string) {
	w.T.Helper()
	w.open(c, path, client.OpenOptions{Write: true}, func(h *client.Handle) error { return h.Delete(w.Ctx) })
}

// open does something with a node, if act is not nil, and closes it.
func (w *World) open(c *client.Client, path string, o client.OpenOptions, act func(h *client.Handle) error) {
	w.T.Helper()
	h, err := c.Open(w.Ctx, path, o)
	w.OK(err)
	if act != nil {
		w.OK(act(h))
	}
	w.OK(h.Close(w.Ctx))
}

// Read opens a node, and keeps it open.
func (w *World) Read(c *client.Client, path string) *client.Handle {
	w.T.Helper()
	h, err := c.Open(w.Ctx, path, client.OpenOptions{Read: true})
	w.OK(err)
	return h
}

// Spoil puts nodes into a recipe's directory that others cannot use: a directory, and a file that only a stranger
// may open.
func (w *World) Spoil(directory, file string) {
	w.T.Helper()
	stranger := w.Client("stranger")
	w.Mkdir(stranger, directory)
	w.Put(stranger, "/ls/local/acl/strangers", "stranger\n")
	acl := api.ACL{Read: "strangers", Write: "strangers", Change: "strangers"}
	w.open(stranger, file, client.OpenOptions{Write: true, Create: client.NewFile, ACL: acl}, nil)
}

// Lives fails the test if a session is over some leases later: the cell extends none whose owner keeps a lock that
// was taken away.
func (w *World) Lives(c *client.Client) {
	w.T.Helper()
	Pass(2 * time.Minute)
	if err := c.Err(); err != nil {
		w.T.Errorf("the session is over: %v", err)
	}
}

// Ends fails the test unless something ends, after longer than a name is waited for.
func (w *World) Ends(it interface{ Done() <-chan struct{} }) {
	w.T.Helper()
	select {
	case <-it.Done():
	case <-time.After(2 * (api.MaxLease + api.MinLease)):
		w.T.Error("it has not ended")
	}
}

// Holds reports whether a session holds a lock.
func Holds(l client.LockInfo, session api.SessionID) bool {
	return slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return h.Session == session })
}

// Deaf is a session that does not hear the answers to a method.
type Deaf struct {
	*client.Client
	hears atomic.Bool
}

// Hear says whether it hears all answers from now on.
func (d *Deaf) Hear(all bool) { d.hears.Store(all) }

// Deafen opens a session that does not hear the answers to a method.
func (w *World) Deafen(host, method string) *Deaf {
	w.T.Helper()
	d := &Deaf{}
	d.Client = w.Client(host, func(cfg *client.Config) {
		cfg.Dialer = w.Lossy(host, func(called string) bool { return !d.hears.Load() && path.Base(called) == method })
	})
	return d
}

// Rob waits until a deaf session has a lock of that path, takes it away, and lets the session hear.
func (w *World) Rob(operator *client.Client, d *Deaf, lock string, now bool) {
	w.T.Helper()
	for range 1000 {
		locks, err := operator.Cell().Locks(w.Ctx, "")
		w.OK(err)
		at := slices.IndexFunc(locks, func(l client.LockInfo) bool { return Holds(l, d.Session()) && strings.HasPrefix(l.Path, lock) })
		if at >= 0 {
			w.OK(operator.BreakLock(w.Ctx, locks[at].Path, "a test", now))
			Pass(time.Second)
			d.Hear(true)
			return
		}
		Pass(10 * time.Millisecond)
	}
	w.T.Fatalf("it does not have the lock of %s", lock)
}

// IsRobbed runs act in sessions that do not hear that a method has granted the lock of that path, which an operator
// takes away in that moment: act has to succeed all the same, and its session to live. prepare, if any, comes before.
func IsRobbed(
	t *testing.T, lock, method string,
	prepare func(w *World, operator *client.Client), act func(ctx context.Context, c *client.Client) error,
) {
	t.Helper()
	for _, now := range []bool{false, true} {
		Run(t, 1, func(w *World) {
			operator, d := w.Client("operator"), w.Deafen("deaf", method)
			if prepare != nil {
				prepare(w, operator)
			}
			done := make(chan error, 1)
			go func() {
				ctx, cancel := w.Brief(time.Minute)
				defer cancel()
				done <- act(ctx, d.Client)
			}()
			w.Rob(operator, d, lock, now)
			if err := <-done; err != nil {
				w.T.Errorf("%s, now %v: %v", lock, now, err)
			}
			w.Lives(d.Client)
		})
	}
}

// Take takes something, and returns what gives it back.
type Take func(w *World, c *client.Client) (giveBack func(context.Context) error, err error)

// GivesBack checks that what is taken is given back at once also by those whose context has ended, as that of a
// program that got a signal. The session stays open, and frees nothing.
func GivesBack(t *testing.T, all map[string]Take) {
	t.Helper()
	for name, take := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, 1, func(w *World) {
				one, two := w.Client("one"), w.Client("two")
				giveBack, err := take(w, one)
				w.OK(err)
				over, cancel := context.WithCancel(w.Ctx)
				cancel()
				w.OK(giveBack(over))
				began := time.Now()
				again, err := take(w, two)
				w.OK(err)
				if d := time.Since(began); d > time.Second {
					w.T.Errorf("the next had it after %v", d)
				}
				w.OK(again(w.Ctx))
				w.OK(one.Err())
			})
		})
	}
}
