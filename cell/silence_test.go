package cell_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// silences are the ways in which a client can fall silent. Only the last is
// visible to the master at once.
func silences(c *celltest.Cell) map[string]func(host string) {
	return map[string]func(host string){
		"cut off":            func(host string) { c.Cut(host) },
		"stopped":            func(host string) { c.Pause(host) },
		"gone without Close": func(host string) { c.Reset(host) },
	}
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Whenever and however a holder falls silent between two KeepAlives, its lock is free after lease,
// lock-delay and at most two seconds, and not while the holder could still rely on it (Chubby §2.4,
// §2.8).
func TestSilentHolder(t *testing.T) {
	for _, delay := range []time.Duration{0, api.DefaultLockDelay} {
		t.Run(fmt.Sprint("lock-delay ", delay), func(t *testing.T) {
			inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				next := dial(t, ctx, c, "next", client.Config{NoCache: true})
				kinds := silences(c)
				phases := []int{0, 100, 1000, 1900, 2900, 4100, 5300, 6100, 6700, 6800, 6900, 7000, 7100}
				var drills sync.WaitGroup
				for kind, silence := range kinds {
					for _, phase := range phases {
						host := fmt.Sprintf("%s %v", kind, milliseconds(phase))
						// Its clock is the test's even while it is stopped, so that the test can
						// compute its bound.
						holder := dial(t, ctx, c, host, client.Config{})
						path := "/ls/local/" + strings.ReplaceAll(host, " ", "-")
						held := acquire(t, ctx, open(t, ctx, holder, path, delay))
						wanted := open(t, ctx, next, path, 0)
						drills.Go(func() {
							<-time.After(30*time.Second + milliseconds(phase)) // a KeepAlive is due every 7 s
							silence(host)
							began, sure := time.Now(), held.ExclusiveUntil()
							l, err := wanted.Acquire(ctx, api.Exclusive)
							took := time.Since(began)
							if most := api.DefaultLease + delay + 2*time.Second; err != nil || took < sure || took > most {
								t.Errorf("%s: the lock passed on after %v: %v; want %v to %v", host, took, err, sure, most)
							}
							if l != nil && held.Err() == nil {
								t.Errorf("%s: two clients hold the lock", host)
							}
						})
					}
				}
				drills.Wait()
				for kind := range kinds {
					for _, phase := range phases {
						host := fmt.Sprintf("%s %v", kind, milliseconds(phase))
						c.Resume(host)
						c.Heal(host)
					}
				}
			})
		})
	}
}

// Requests for a sign of life do not affect a client: it keeps its session, and
// is never in jeopardy, even if one of the replies to the two KeepAlives in
// each lease is lost. It sends two KeepAlives in 7 s. Sessions that share a
// connection send few more than one each.
func TestSignsOfLife(t *testing.T) {
	for name, lost := range map[string]int32{"no reply is lost": -1, "every second reply is lost": 0, "the other replies are lost": 1} {
		t.Run(name, func(t *testing.T) {
			inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				var replies atomic.Int32
				loses := c.Lossy("holder", func(method string) bool {
					if !strings.HasSuffix(method, "KeepAlive") || lost < 0 || replies.Add(1)%3 != lost {
						return false
					}
					<-time.After(20 * time.Second) // and the client sees no error
					return true
				})
				var states atomic.Int32
				cl := dial(t, ctx, c, "holder", client.Config{Dialer: loses, OnState: func(client.StateChange) { states.Add(1) }})
				held := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 0))
				<-time.After(5 * time.Minute)
				if states.Load() != 0 || held.Err() != nil {
					t.Errorf("%d changes of state, and the lock: %v", states.Load(), held.Err())
				}
				if n := cl.Stats().KeepAlives; lost < 0 && n > 2*5*60/7+8 {
					t.Errorf("%d KeepAlives in five minutes", n)
				}
				_ = cl.Close(ctx)              // the test has ended
				<-time.After(21 * time.Second) // what is still being lost is
			})
		})
	}
	t.Run("many sessions on a connection", func(t *testing.T) {
		inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
			const sessions, minutes = 50, 5
			shared, err := client.Dial(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("many"), Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			var all []*client.Client
			for range sessions {
				cl, err := shared.NewSession(ctx, client.SessionConfig{Clock: celltest.Clock})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, cl)
			}
			<-time.After(minutes * time.Minute)
			var sent uint64
			for _, cl := range all {
				sent += cl.Stats().KeepAlives
				_ = cl.Close(ctx) // the test has ended
			}
			once := float64(sessions) * minutes * 60 / session.Due(api.DefaultLease).Seconds()
			if float64(sent) > once*1.15 {
				t.Errorf("%d KeepAlives, where %.0f extend every lease in time", sent, once)
			}
			_ = shared.Close()
		})
	})
}
