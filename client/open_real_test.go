//go:build linux

package client_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A node is created on the condition that a lock is held, also one that a transaction cannot create, and neither created
// nor opened without.
func TestOpenIfSequencer(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		h := opened(t, c.one, "/ls/local/leader", client.OpenOptions{Write: true, Create: client.File})
		l := c.acquire(h)
		seq := l.Sequencer()
		must(t, c.one.MkdirAll(t.Context(), "/ls/local/dir"))
		opens := map[string]client.OpenOptions{
			"ephemeral": {Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("a"), IfSequencer: &seq},
			"directory": {Read: true, Create: client.Directory, IfSequencer: &seq},
			"file":      {Write: true, Create: client.File, IfSequencer: &seq},
		}
		made := map[string]*client.Handle{}
		for name, o := range opens {
			made[name] = opened(t, c.two, "/ls/local/dir/"+name, o) // which need not be the holder
			if !made[name].Created() || made[name].Path() != "/ls/local/dir/"+name {
				t.Fatalf("%s: created %v, as %s", name, made[name].Created(), made[name].Path())
			}
		}
		if again, err := c.two.Open(t.Context(), "/ls/local/dir/file", opens["file"]); err != nil || again.Created() {
			t.Errorf("a file that is there: %v", err)
		}
		if _, err := c.two.Open(t.Context(), "/ls/local/no/file", opens["file"]); api.CodeOf(err) != api.NotFound {
			t.Errorf("in a directory that is not there: %v", err)
		}
		must(t, h.Close(t.Context())) // with the lock
		wants(t, "the handle is bound", second(made["file"].SetContents(t.Context(), []byte("b"))), nil)
		dir := opened(t, c.two, "/ls/local/dir", client.OpenOptions{Read: true})
		for name, o := range opens {
			if _, err := c.two.Open(t.Context(), "/ls/local/dir/late-"+name, o); api.CodeOf(err) != api.BadSequencer {
				t.Errorf("%s after the lock was released: %v", name, err)
			}
			if _, err := dir.Open(t.Context(), "late-"+name, o); api.CodeOf(err) != api.BadSequencer {
				t.Errorf("%s below a handle, after the lock was released: %v", name, err)
			}
		}
		if _, err := c.two.Open(t.Context(), "/ls/local/dir/file", opens["file"]); api.CodeOf(err) != api.BadSequencer {
			t.Errorf("a file that is there, after the lock was released: %v", err)
		}
		if list, err := c.two.List(t.Context(), "/ls/local/dir"); err != nil || len(list) != len(opens) {
			t.Errorf("%d nodes, %v; want %d", len(list), err, len(opens))
		}
	})
}

// The lock is released after its sequencer was found valid, and before the Open: nothing is created, and what is there is not
// opened.
func TestOpenIfSequencerInBetween(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		two := cell.Client("two")
		var release atomic.Pointer[client.Lock]
		one := cell.Client("one", func(cfg *client.Config) {
			cfg.NoCache = true
			cfg.Dialer = cell.Lossy("one", func(method string) bool {
				if path.Base(method) == "SetSequencer" {
					if l := release.Swap(nil); l != nil {
						wants(t, "Release", l.Release(ctx), nil)
					}
				}
				return false
			})
		})
		wants(t, "MkdirAll", two.MkdirAll(ctx, "/ls/local/dir"), nil)
		wants(t, "Put", second(two.Put(ctx, "/ls/local/dir/old", nil)), nil)
		for name, o := range map[string]client.OpenOptions{
			"new":       {Write: true, Create: client.NewFile},
			"file":      {Write: true, Create: client.File},
			"ephemeral": {Write: true, Create: client.File, Ephemeral: true},
			"directory": {Read: true, Create: client.Directory},
			"old":       {Write: true, Create: client.File},
		} {
			l := ok(two.Acquire(ctx, lockPath))(t)
			seq := l.Sequencer()
			release.Store(l)
			o.IfSequencer = &seq
			wants(t, name, second(one.Open(ctx, "/ls/local/dir/"+name, o)), api.BadSequencer)
			if release.Load() != nil {
				t.Error("the lock is held still")
			}
		}
		list, err := two.List(ctx, "/ls/local/dir")
		if err != nil || len(list) != 1 {
			t.Errorf("%d nodes, %v; want 1", len(list), err)
		}
		if n := handlesOf(ctx, t, one); n != 0 {
			t.Errorf("%d handles are open", n)
		}
	})
}

// An Open that depends on a sequencer, and is given up when it was done, leaves no handle, though that of the directory is
// closed meanwhile: what it has made goes if it is ephemeral.
func TestOpenIfSequencerGivenUp(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		two := cell.Client("two")
		var losing atomic.Int64 // so many answers to Opens come before they are lost
		losing.Store(1 << 30)
		one := cell.Client("one", func(cfg *client.Config) {
			cfg.NoCache = true
			cfg.Dialer = cell.Lossy("one", func(method string) bool { return path.Base(method) == "Open" && losing.Add(-1) < 0 })
		})
		wants(t, "MkdirAll", two.MkdirAll(ctx, "/ls/local/dir"), nil)
		l := ok(two.Acquire(ctx, lockPath))(t)
		seq := l.Sequencer()
		brief, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		losing.Store(1) // that to the Open of the directory comes
		wants(t, "Open", second(one.Open(brief, "/ls/local/dir/x", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true, IfSequencer: &seq})), api.Uncertain)
		wants(t, "it was not made", second(two.Stat(ctx, "/ls/local/dir/x")), nil)
		losing.Store(1 << 30)
		var err error
		for range 100 {
			if _, err = two.Stat(ctx, "/ls/local/dir/x"); errors.Is(err, api.NotFound) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		wants(t, "Stat", err, api.NotFound)
		if n := handlesOf(ctx, t, one); n != 0 {
			t.Errorf("%d handles are open", n)
		}
		wants(t, "Release", l.Release(ctx), nil)
	})
}

// The answer to an Open is lost, and the file that it has opened is deleted before the next attempt: nothing is left of it, so
// it is not uncertain. The file is created, if that is asked for, or is not there; and who wants its lock has it.
func TestDeletedAfterALostAnswer(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		two := cell.Client("two")
		var losing atomic.Bool
		one := cell.Client("one", func(cfg *client.Config) {
			cfg.Dialer = cell.Lossy("one", func(method string) bool {
				if path.Base(method) != "Open" || !losing.CompareAndSwap(true, false) {
					return false
				}
				wants(t, "Delete", two.Delete(ctx, lockPath), nil)
				return true
			})
		})
		locked := func(l *client.Lock, err error) error {
			if err == nil {
				err = l.Release(ctx)
			}
			return err
		}
		opened := func(h *client.Handle, err error) error {
			if err == nil {
				err = h.Close(ctx)
			}
			return err
		}
		called := 0
		for name, test := range map[string]struct {
			call func() error
			want error
		}{
			"Acquire":     {func() error { return locked(one.Acquire(ctx, lockPath)) }, nil},
			"Acquire Try": {func() error { return locked(one.Acquire(ctx, lockPath, client.Try())) }, nil},
			"Do": {func() error {
				return one.Do(ctx, lockPath, func(context.Context, *client.Lock) error { called++; return nil })
			}, nil},
			"Open, and create": {func() error {
				return opened(one.Open(ctx, lockPath, client.OpenOptions{Write: true, Create: client.File, LockDelay: 1}))
			}, nil},
			"Open": {func() error {
				return opened(one.Open(ctx, lockPath, client.OpenOptions{Write: true, LockDelay: 1}))
			}, api.NotFound},
		} {
			must(t, second(two.Put(ctx, lockPath, nil)))
			losing.Store(true)
			wants(t, name, test.call(), test.want)
			if losing.Load() {
				t.Errorf("%s: no answer was lost", name)
			}
		}
		if called != 1 {
			t.Errorf("the function of Do was called %d times", called)
		}
	})
}

// A lock is not lost because its handle is bound to another, which is. A new
// master, that asks of every lock, brings that out.
func TestLockOfABoundHandleIsKept(t *testing.T) {
	celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
		c := cell.Client("host")
		var locks []*client.Lock
		var handles []*client.Handle
		for _, name := range []string{"held", "given-up"} {
			h := opened(t, c, "/ls/local/"+name, client.OpenOptions{Read: true, Write: true, Create: client.File})
			l := acquired(t, h)
			handles, locks = append(handles, h), append(locks, l)
		}
		must(t, handles[0].SetSequencer(t.Context(), locks[1].Sequencer()))
		must(t, locks[1].Release(t.Context()))
		cell.FailOver()
		time.Sleep(30 * time.Second)
		wants(t, "Stat through the bound handle", second(handles[0].Stat(t.Context())), api.BadSequencer)
		wants(t, "the lock", locks[0].Err(), nil)
		wants(t, "CheckSequencer", c.CheckSequencer(t.Context(), locks[0].Sequencer().String()), nil)
		wants(t, "Release", locks[0].Release(t.Context()), nil)
	})
}

// A Put that creates a file, and whose first answer is lost, returns the generation of its own contents, also if another has
// written meanwhile: a Put on the condition of that generation does not overwrite what the other has written.
func TestPutThatCreatesReturnsItsOwnGeneration(t *testing.T) {
	for name, options := range map[string][]client.WriteOption{"without a condition": nil, "if absent": {client.IfGeneration(0)}} {
		t.Run(name, func(t *testing.T) {
			celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
				ctx := bounded(t, time.Hour)
				const path = "/ls/local/f"
				other := cell.Client("other")
				var armed atomic.Bool
				written := make(chan api.Stat, 1)
				dial := cell.Lossy("one", func(method string) bool {
					if !strings.HasSuffix(method, "/Open") || !armed.CompareAndSwap(true, false) {
						return false
					}
					stat, err := other.Put(ctx, path, []byte("the other's"))
					if err != nil {
						t.Error(err)
					}
					written <- stat
					return true
				})
				one := cell.Client("one", func(cfg *client.Config) { cfg.Dialer = dial })
				armed.Store(true)
				own := ok(one.Put(ctx, path, []byte("one"), options...))(t)
				if theirs := <-written; own.Size != len("one") || own.Content != own.Instance || own.Content >= theirs.Content {
					t.Errorf("Put returned %+v; what another has written since is %+v", own, theirs)
				}
				wants(t, "a Put on the condition that nothing was written since", second(one.Put(ctx, path, []byte("one, again"), client.IfGeneration(own.Content))), api.GenerationMismatch)
			})
		})
	}
}

// CreatedStat is of what Open has created, and not of what is there when it is asked.
func TestCreatedStat(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		ctx := t.Context()
		one, other := cell.Client("one"), cell.Client("other")
		opening := client.OpenOptions{Write: true, Create: client.File, Contents: []byte("one")}
		h := ok(one.Open(ctx, "/ls/local/f", opening))(t)
		must(t, second(other.Put(ctx, "/ls/local/f", []byte("the other's"))))
		if stat, ok := h.CreatedStat(); !ok || stat.Size != len("one") || stat.Content != stat.Instance {
			t.Errorf("of a file that was created: %+v, %v", stat, ok)
		}
		h = ok(one.Open(ctx, "/ls/local/f", opening))(t)
		if stat, ok := h.CreatedStat(); ok || stat != (api.Stat{}) {
			t.Errorf("of a file that was there: %+v, %v", stat, ok)
		}
	})
}
