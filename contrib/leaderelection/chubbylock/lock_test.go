package chubbylock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func named(who string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: who, LeaseDurationSeconds: 15}
}

// soon returns a context for calls that must not wait.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	w.Cleanup(cancel)
	return ctx
}

// TestInterface makes the calls one by one, as the contract of resourcelock
// specifies them.
func TestInterface(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.lock("one", 0), w.lock("two", 0)
		if one.Identity() != "one" || one.Describe() != path {
			w.Errorf("%q, %q", one.Identity(), one.Describe())
		}
		if _, _, err := one.Get(w.soon()); !apierrors.IsNotFound(err) {
			w.Fatalf("before anybody has led: %v", err)
		}
		if err := one.Create(w.soon(), named("two")); !errors.Is(err, api.InvalidArgument) {
			w.Errorf("a record of another: %v", err)
		}
		if err := one.Create(w.soon(), named("one")); err != nil {
			w.Fatal(err)
		}
		own, raw, err := one.Get(w.soon())
		if err != nil || own.HolderIdentity != "one" {
			w.Errorf("its own: %+v, %v", own, err)
		}
		if _, again, err := one.Get(w.soon()); err != nil || string(again) == string(raw) {
			w.Errorf("the bytes of a record that is alive are the same: %s, %v", again, err)
		}
		if rec, _, err := two.Get(w.soon()); err != nil || rec.HolderIdentity != "one" {
			w.Errorf("another's: %+v, %v", rec, err)
		}
		if err := two.Update(w.soon(), named("two")); !errors.Is(err, api.LockHeld) {
			w.Errorf("a claim to what another has: %v", err)
		}
		began := time.Now()
		if rec, _, err := two.Get(w.soon()); err != nil || rec.HolderIdentity != "one" || time.Since(began) < time.Second {
			w.Errorf("no news: %+v, %v, after %v", rec, err, time.Since(began))
		}
		if err := one.Update(w.soon(), named("")); err != nil {
			w.Errorf("release: %v", err)
		}
		if err := one.Update(w.soon(), named("")); err != nil {
			w.Errorf("release of nothing: %v", err)
		}
		if rec, _, err := two.Get(w.soon()); err != nil || rec.HolderIdentity != "" || rec.LeaseDurationSeconds != 15 {
			w.Errorf("nobody's: %+v, %v", rec, err)
		}
		if err := two.Update(w.soon(), named("two")); err != nil {
			w.Errorf("the claim: %v", err)
		}
	})
}

// TestPlaceInTheQueue: a candidate that waits keeps its place when the leader that it knows writes another record.
func TestPlaceInTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.lock("one", 0), w.lock("two", 0)
		if err := one.Update(w.soon(), named("one")); err != nil {
			w.Fatal(err)
		}
		if rec, _, err := two.Get(w.soon()); err != nil || rec.HolderIdentity != "one" {
			w.Fatalf("%+v, %v", rec, err)
		}
		waited := make(chan error)
		go func() {
			_, _, err := two.Get(w.Context())
			waited <- err
		}()
		w.Sleep(10 * time.Second)
		longer := named("one")
		longer.LeaseDurationSeconds++
		if err := one.Update(w.soon(), longer); err != nil {
			w.Error(err)
		}
		w.Sleep(time.Second)
		c, err := client.New(w.Context(), w.Cell.ConfigOf("operator"))
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close(w.Context())
		locks, err := c.Cell().Locks(w.Context(), path)
		if err != nil || len(locks) != 1 || len(locks[0].Waiters) != 1 || locks[0].Waiters[0].Waiting < 10*time.Second {
			w.Errorf("%+v, %v", locks, err)
		}
		w.Close(two)
		<-waited
	})
}

// TestClaimWithoutGet: an elector that considers itself the leader calls Update
// before Get.
func TestClaimWithoutGet(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.lock("one", 0)
		if err := one.Update(w.soon(), named("one")); err != nil {
			w.Error(err)
		}
		if _, ok := one.Sequencer(); !ok {
			w.Error("it does not lead")
		}
	})
}

// TestGetWithoutClaim: if an elector does not claim the lock that Get took, the
// next call releases the lock, with an explanation.
func TestGetWithoutClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.lock("one", 0), w.lock("two", 0)
		if _, _, err := one.Get(w.soon()); !apierrors.IsNotFound(err) {
			w.Error(err)
		}
		if _, ok := one.Sequencer(); ok {
			w.Error("it leads by having looked")
		}
		if _, _, err := one.Get(w.soon()); !errors.Is(err, api.InvalidArgument) {
			w.Error(err)
		}
		if err := two.Update(w.soon(), named("two")); err != nil {
			w.Error(err)
		}
	})
}

// TestForeignFile: a file with other contents than a record is not overwritten.
func TestForeignFile(t *testing.T) {
	inWorld(t, func(w *world) {
		c, err := client.New(w.Context(), w.Cell.ConfigOf("other"))
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close(w.Context())
		for _, text := range []string{"listen: 80", "{}", `{"holderIdentity":7}`} {
			h, err := c.Open(w.Context(), path, client.OpenOptions{Read: true, Write: true, Create: client.File})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := h.SetContents(w.Context(), []byte(text)); err != nil {
				w.Fatal(err)
			}
			l := w.lock("one", 0)
			if _, _, err := l.Get(w.soon()); !errors.Is(err, api.InvalidArgument) {
				w.Errorf("%s: Get: %v", text, err)
			}
			if err := l.Update(w.soon(), named("one")); !errors.Is(err, api.InvalidArgument) {
				w.Errorf("%s: Update: %v", text, err)
			}
			if got, _, err := h.Contents(w.Context()); err != nil || string(got) != text {
				w.Errorf("%s became %s, %v", text, got, err)
			}
		}
	})
}

// TestNode: a deleted file is created again; a missing directory is an error
// that says so.
func TestNode(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.run("one", 0), w.run("two", 0)
		first := w.Leader("", 5*time.Second)
		w.Sleep(10 * time.Second)
		w.Operate(func(ctx context.Context, c *client.Client, _ api.Holder) error {
			if err := c.BreakLock(ctx, path, "it is to go", true); err != nil {
				return err
			}
			h, err := c.Open(ctx, path, client.OpenOptions{Write: true})
			if err == nil {
				err = h.Delete(ctx)
			}
			if errors.Is(err, api.LockHeld) {
				return nil // the other candidate was quicker
			}
			return err
		})
		if next := w.Leader("", 20*time.Second); next.Token <= first.Token {
			w.Errorf("%+v, and then %+v", first, next)
		}
		one.stop()
		two.stop()
		l, err := chubbylock.New(chubbylock.Config{Client: w.Cell.ConfigOf("x"), Path: "/ls/local/absent/leader", Identity: "x"})
		if err != nil {
			w.Fatal(err)
		}
		if _, _, err := l.Get(w.soon()); !errors.Is(err, api.NotFound) || apierrors.IsNotFound(err) {
			w.Errorf("in a directory that is absent: %v", err)
		}
		w.Close(l)
	})
}

// TestClose: Close releases the leadership, also during a Get that waits; later calls fail.
func TestClose(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.lock("one", time.Minute), w.lock("two", time.Minute)
		if err := one.Update(w.soon(), named("one")); err != nil {
			w.Fatal(err)
		}
		if _, _, err := two.Get(w.soon()); err != nil {
			w.Fatal(err)
		}
		waited := make(chan error)
		go func() {
			_, _, err := two.Get(w.Context())
			waited <- err
		}()
		if err := one.Close(w.soon()); err != nil {
			w.Error(err)
		}
		if err := <-waited; err != nil {
			w.Errorf("who waited: %v", err)
		}
		if err := two.Close(w.soon()); err != nil {
			w.Error(err)
		}
		if _, _, err := two.Get(w.soon()); !errors.Is(err, api.HandleClosed) {
			w.Errorf("after Close: %v", err)
		}
		if err := two.Close(w.soon()); err != nil {
			w.Errorf("Close again: %v", err)
		}
	})
}

// TestCloseUnderWork: Close waits for guarded work. If that takes too long, the
// lock expires with the lease.
func TestCloseUnderWork(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.lock("one", 0), w.lock("two", 0)
		if err := one.Update(w.soon(), named("one")); err != nil {
			w.Fatal(err)
		}
		ctx, done := one.Guard(w.Context())
		began := time.Now()
		if err := one.Close(w.soon()); !errors.Is(err, api.DeadlineExceeded) || ctx.Err() == nil {
			w.Errorf("Close: %v, and the work's context: %v", err, ctx.Err())
		}
		done()
		if rec, _, err := two.Get(w.Context()); err != nil || rec.HolderIdentity != "one" {
			w.Errorf("%+v, %v", rec, err)
		}
		if rec, _, err := two.Get(w.Context()); err != nil || rec.HolderIdentity != "" || time.Since(began) < 5*time.Second {
			w.Errorf("the lock was to be had after %v: %+v, %v", time.Since(began), rec, err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []chubbylock.Config{
		{}, {Path: path}, {Path: "leader", Identity: "one"}, {Path: path, Identity: "one", LockDelay: time.Hour},
	} {
		if _, err := chubbylock.New(cfg); !errors.Is(err, api.InvalidArgument) && !errors.Is(err, api.InvalidPath) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
