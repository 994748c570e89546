package cell_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// prompt is how long news may take to a client whose KeepAlive is parked: far
// less than the seconds until that KeepAlive is due. Apart from the 1 ms delay
// of the listener's host, nothing takes any virtual time.
const prompt = 100 * time.Millisecond

// The master answers a parked KeepAlive as soon as there is news, not only when
// the lease is due to be extended (Chubby §2.5, §2.7, §2.8): events,
// invalidations, the loss of a lock and the end of a session reach a client
// within a round trip.
func TestNewsIsPrompt(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		c.Slow("listener", time.Millisecond)
		listener := dial(t, ctx, c, "listener", client.Config{As: "p"})
		author := dial(t, ctx, c, "author", client.Config{As: "p"})
		h := watchFile(t, ctx, listener, path)
		file := open(t, ctx, author, path, 0)
		for i := range 10 {
			<-time.After(time.Duration(i) * 777 * time.Millisecond) // at any moment between two KeepAlives
			if _, _, err := h.Contents(ctx); err != nil {           // so that the change has to invalidate the cache
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := file.SetContents(ctx, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > prompt {
				t.Errorf("a change waited %v for a cache whose client is well", d)
			}
			if e, err := h.Next(ctx); err != nil || e.Kind != api.EventContentsModified || time.Since(began) > prompt {
				t.Errorf("after %v: %v, %v", time.Since(began), e, err)
			}
		}
		lock := acquire(t, ctx, open(t, ctx, listener, path, 0))
		<-time.After(3 * time.Second)
		began := time.Now()
		if err := author.BreakLock(ctx, path, "a test", false); err != nil {
			t.Fatal(err)
		}
		if <-lock.Context().Done(); time.Since(began) > prompt {
			t.Errorf("its holder heard of the loss after %v", time.Since(began))
		}
		_ = lock.Release(ctx) // it is lost
		<-time.After(3 * time.Second)
		began = time.Now()
		if err := author.EndSession(ctx, listener.Session(), "a test"); err != nil {
			t.Fatal(err)
		}
		if <-listener.Done(); time.Since(began) > prompt {
			t.Errorf("the client heard of its end after %v", time.Since(began))
		}
	})
}

// The holder of a lock that was taken away acknowledges that when its work has
// stopped, but drops its cache at once: the next holder writes its name into
// the lock's file without waiting for it (decision 10).
func TestSuccessorWritesAtOnce(t *testing.T) {
	const path = "/ls/local/primary"
	for name, take := range map[string]func(ctx context.Context, operator, holder *client.Client) error{
		"break --now": func(ctx context.Context, operator, _ *client.Client) error {
			return operator.BreakLock(ctx, path, "a test", true)
		},
		"end of the session": func(ctx context.Context, operator, holder *client.Client) error {
			return operator.EndSession(ctx, holder.Session(), "a test")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				holder := dial(t, ctx, c, "holder", client.Config{As: "p"})
				operator := dial(t, ctx, c, "operator", client.Config{As: "p"})
				next := dial(t, ctx, c, "next", client.Config{As: "p"})
				file := open(t, ctx, holder, path, 0)
				lock := acquire(t, ctx, file)
				if _, err := file.SetContents(ctx, []byte("holder")); err != nil {
					t.Fatal(err)
				}
				if _, _, err := file.Contents(ctx); err != nil {
					t.Fatal(err)
				}
				its := open(t, ctx, next, path, 0)
				began := time.Now()
				if err := take(ctx, operator, holder); err != nil {
					t.Fatal(err)
				}
				<-lock.Context().Done()
				for i := range 3 { // the holder works on, and releases nothing
					if _, err := its.SetContents(ctx, []byte("next")); err != nil {
						t.Fatal(err)
					}
					if d := time.Since(began); d > prompt {
						t.Errorf("write %d was done %v after the lock was taken away", i, d)
					}
				}
				if name == "break --now" && lock.Err() == nil {
					t.Error("the holder did not notice")
				}
				if next, err := its.TryAcquire(ctx, api.Exclusive); (err == nil) != (name == "break --now") {
					t.Errorf("the lock, while its holder works on: %v, %v", next, err)
				}
			})
		})
	}
}
