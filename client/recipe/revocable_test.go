//go:build linux

package recipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const revocable = "/ls/local/revocable"

// revocableOf acquires the lock in the background, and returns what becomes of it.
func (w *world) revocableOf(c *client.Client, o RevocableOptions) (got chan *Revocable) {
	got = make(chan *Revocable, 1)
	go func() {
		r, err := AcquireRevocable(w.Ctx, c, revocable, o)
		if err != nil {
			w.T.Error(err)
		}
		got <- r
	}()
	return got
}

// Whoever asks for a lock says for what, and the holder's work goes on for as long as its notice, and no longer.
func TestHolderLetsGoWhenItIsAsked(t *testing.T) {
	t.Parallel()
	const notice = 20 * time.Second
	inSmallWorld(t, func(w *world) {
		one, two, three := w.Client("one"), w.Client("two"), w.Client("three")
		first := <-w.revocableOf(one, RevocableOptions{LockDelay: NoLockDelay, Notice: notice})
		pass(10 * time.Minute)
		if err := context.Cause(first.Context()); err != nil || first.AskedFor() != "" {
			t.Errorf("nobody has asked, and it ended with %v, asked for %q", err, first.AskedFor())
		}
		select {
		case <-first.Asked():
			t.Error("it was asked by nobody")
		default:
		}
		second := w.revocableOf(two, RevocableOptions{LockDelay: NoLockDelay, Notice: notice, Reason: "month's end", Insist: true})
		pass(time.Second)
		third := w.revocableOf(three, RevocableOptions{LockDelay: NoLockDelay, Reason: "backup", Insist: true})
		for i, one := range []struct {
			held   *Revocable
			wanted string
		}{{first, "month's end"}, {nil, "backup"}} {
			r := one.held
			if r == nil {
				r = <-second
			}
			select {
			case <-r.Asked():
			case <-time.After(time.Second):
				t.Fatalf("holder %d was not asked", i)
			}
			began := time.Now()
			<-r.Done()
			if took := time.Since(began); took < notice-2*time.Second || took > notice {
				t.Errorf("holder %d: its work ended %v after it was asked; want %v", i, took, notice)
			}
			cause := context.Cause(r.Context())
			if r.AskedFor() != one.wanted || api.CodeOf(cause) != api.Cancelled || r.Err() != nil {
				t.Errorf("holder %d was asked for %q, %v; the lock: %v", i, r.AskedFor(), cause, r.Err())
			}
			select {
			case <-third:
				t.Fatal("the lock was taken away before it was released")
			case <-time.After(time.Second):
			}
			w.OK(r.Release(w.Ctx))
		}
		last := <-third
		if last.AskedFor() != "" || last.Context().Err() != nil {
			t.Errorf("nobody waits, and it was asked for %q: %v", last.AskedFor(), context.Cause(last.Context()))
		}
		w.OK(last.Release(w.Ctx))
		if cause := context.Cause(last.Context()); !errors.Is(cause, client.LockReleased) {
			t.Errorf("after its release it ended with %v", cause)
		}
	})
}

// A request that came to a new master before the holder was heard there is told, with its reason.
func TestRequestDuringFailOverIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one := w.Client("holder", func(cfg *client.Config) { cfg.Lease = 30 * time.Second })
		two := w.Client("two")
		r := <-w.revocableOf(one, RevocableOptions{LockDelay: NoLockDelay, Notice: time.Second})
		w.Cut("holder")
		w.FailOver()
		next := w.revocableOf(two, RevocableOptions{LockDelay: NoLockDelay, Reason: "an upgrade", Insist: true})
		pass(5 * time.Second)
		w.Heal("holder")
		select {
		case <-r.Done():
			if r.AskedFor() != "an upgrade" || r.Err() != nil {
				t.Errorf("asked for %q; the lock: %v", r.AskedFor(), r.Err())
			}
		case <-time.After(time.Minute):
			t.Error("the request was not told")
		}
		w.OK(r.Release(w.Ctx))
		w.OK((<-next).Release(w.Ctx))
	})
}

// Work that can be put off does not end work of its like, and both end for work that cannot.
func TestRevocablesDoNotAskEachOther(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		first := <-w.revocableOf(w.Client("one"), RevocableOptions{LockDelay: NoLockDelay})
		second := w.revocableOf(w.Client("two"), RevocableOptions{LockDelay: NoLockDelay, Reason: "of its like"})
		pass(10 * time.Minute)
		if cause := context.Cause(first.Context()); cause != nil {
			t.Fatalf("one that waits for the lock has ended the work: %v", cause)
		}
		c := w.Client("three")
		restored := make(chan error, 1)
		go func() {
			restored <- c.Do(w.Ctx, revocable, func(context.Context, *client.Lock) error { return nil }, client.Reason("a restore"))
		}()
		for i, r := range []*Revocable{first, nil} {
			if r == nil {
				r = <-second // it came before
			}
			select {
			case <-r.Done():
			case <-time.After(time.Minute):
				t.Fatalf("holder %d was not asked", i)
			}
			if r.AskedFor() != "a restore" {
				t.Errorf("holder %d was asked for %q", i, r.AskedFor())
			}
			w.OK(r.Release(w.Ctx))
		}
		w.OK(<-restored)
	})
}

// A lock that is lost ends the work at once, whatever the notice.
func TestRevocableLockThatIsLost(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		r := <-w.revocableOf(w.Client("one"), RevocableOptions{LockDelay: NoLockDelay, Notice: time.Hour})
		next := w.revocableOf(w.Client("two"), RevocableOptions{LockDelay: NoLockDelay, Insist: true})
		<-r.Asked()
		w.Cut("one")
		began := time.Now()
		<-r.Done()
		if took := time.Since(began); took > 30*time.Second || r.Err() == nil {
			t.Errorf("the work ended after %v, with the lock %v", took, r.Err())
		}
		_ = r.Release(w.Ctx) // it says that the lock was lost
		w.OK((<-next).Release(w.Ctx))
		if _, err := AcquireRevocable(w.Ctx, w.Client("three"), revocable, RevocableOptions{LockDelay: NoLockDelay, Notice: -1}); api.CodeOf(err) != api.InvalidArgument {
			t.Error(err)
		}
	})
}
