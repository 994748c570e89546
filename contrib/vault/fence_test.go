package chubbyvault

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/vault/sdk/physical"
)

// active has a backend become the active node.
func (w *world) active(b *Backend, value string) (*Lock, <-chan struct{}) {
	w.Helper()
	l, err := b.LockWith("core/lock", value)
	if err != nil {
		w.Fatal(err)
	}
	lost, err := l.Lock(nil)
	if err != nil {
		w.Fatal(err)
	}
	if err := b.RegisterActiveNodeLock(l); err != nil {
		w.Fatal(err)
	}
	return l.(*Lock), lost
}

// A former active node, which does not know that it has been replaced, writes nothing: neither a new
// entry nor an old one, small or in chunks, and deletes none.
func TestFence(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.backend("one"), w.backend("two")
		w.put(one, "small", []byte("before"))
		w.put(one, "large", large('b'))
		l, _ := w.active(one, "one")
		w.put(one, "small", []byte("one"))
		w.put(one, "large", large('1'))
		one.fence.lost = func() error { return nil } // as in a process that is stopped after the check
		if err := l.Unlock(); err != nil {
			w.Fatal(err)
		}
		refused := func() {
			w.Helper()
			for _, err := range []error{
				one.Put(w.Context(), &physical.Entry{Key: "small", Value: []byte("late")}),
				one.Put(w.Context(), &physical.Entry{Key: "large", Value: large('l')}),
				one.Put(w.Context(), &physical.Entry{Key: "large", Value: []byte("late")}),
				one.Put(w.Context(), &physical.Entry{Key: "new", Value: []byte("late")}),
				one.Put(w.Context(), &physical.Entry{Key: "new", Value: large('l')}),
				one.Delete(w.Context(), "small"),
				one.Delete(w.Context(), "large"),
			} {
				if !errors.Is(err, api.BadSequencer) {
					w.Errorf("a former active node: %v", err)
				}
			}
			for _, b := range []*Backend{one, two} {
				w.want(b, "small", []byte("one"))
				w.want(b, "large", large('1'))
				w.want(b, "new", nil)
			}
		}
		refused()
		w.active(two, "two")
		refused()
		if n := w.chunked(); n != 1 {
			w.Errorf("%d values in chunks; want one", n)
		}
		w.put(two, "new", []byte("two"))
		if err := one.Put(physical.UnfencedWriteCtx(w.Context()), &physical.Entry{Key: "new", Value: []byte("unfenced")}); err != nil {
			w.Error(err)
		}
		w.want(two, "new", []byte("unfenced"))
		if err := one.Delete(physical.UnfencedWriteCtx(w.Context()), "new"); err != nil {
			w.Error(err)
		}
		w.want(two, "new", nil)
	})
}

// The local check spares the calls of a node that knows. When the node is active again it writes again.
func TestFenceKnows(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one := w.backend("one")
		l, _ := w.active(one, "one")
		if err := l.Unlock(); err != nil {
			w.Fatal(err)
		}
		w.cell.Cut("one") // a call would not return
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		if err := one.Put(ctx, &physical.Entry{Key: "small"}); !errors.Is(err, api.BadSequencer) {
			w.Errorf("a former active node: %v", err)
		}
		w.cell.Heal("one")
		if _, err := l.Lock(nil); err != nil {
			w.Fatal(err)
		}
		if err := one.Put(w.Context(), &physical.Entry{Key: "small"}); !errors.Is(err, api.BadSequencer) {
			w.Errorf("its next lock is not registered yet: %v", err)
		}
		if err := one.RegisterActiveNodeLock(l); err != nil {
			w.Fatal(err)
		}
		w.put(one, "small", []byte("again"))
	})
}

// The session in which the directory is open ends, but not that of the lock: writes go on.
func TestFenceOutlivesASession(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.backend("one"), w.backend("two")
		l, _ := w.active(one, "one")
		if err := two.RegisterActiveNodeLock(l); err != nil {
			w.Fatal(err)
		}
		w.put(two, "entry", []byte("first"))
		w.cell.Expire(two.fence.session)
		w.sleep(time.Second)
		w.put(two, "entry", []byte("second"))
		w.want(one, "entry", []byte("second"))
	})
}

func TestRegisterWhatIsNoLock(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one := w.backend("one")
		l, err := one.LockWith("core/lock", "one")
		if err != nil {
			w.Fatal(err)
		}
		for _, other := range []physical.Lock{nil, l} {
			if err := one.RegisterActiveNodeLock(other); api.CodeOf(err) != api.InvalidArgument {
				w.Errorf("%T: %v", other, err)
			}
		}
		w.put(one, "entry", nil) // nothing is registered
	})
}

// The lock is lost after the entry's file was opened: it is neither written nor deleted.
func TestFenceInTheMiddle(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		holder := w.backend("holder")
		var l *Lock
		one, arm := w.meanwhile("one", "/Open", func() {
			if err := l.Unlock(); err != nil {
				w.Error(err)
			}
		})
		for name, write := range map[string]func() error{
			"put":    func() error { return one.Put(w.Context(), &physical.Entry{Key: "entry", Value: []byte("late")}) },
			"delete": func() error { return one.Delete(w.Context(), "entry") },
		} {
			l, _ = w.active(holder, "holder")
			if err := one.RegisterActiveNodeLock(l); err != nil {
				w.Fatal(err)
			}
			w.put(one, "entry", []byte("before"))
			arm(1)
			if err := write(); !errors.Is(err, api.BadSequencer) {
				w.Errorf("%s: %v", name, err)
			}
			w.want(holder, "entry", []byte("before"))
		}
	})
}
