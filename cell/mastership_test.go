package cell_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A deposed master that does not know it yet answers no read, grants no lease and calls no sequencer valid (decision
// 5). It is like a paused process that has not read its clock since: its election timeout, which is also its leader
// lease in Raft, is made so long that it still considers itself the leader.
func TestDeposedMaster(t *testing.T) {
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		var believing atomic.Bool
		believing.Store(true)
		c := celltest.Start(t, 5, func(cfg *cell.Config) {
			cfg.Believe(9 * time.Second) // longer than between two of its heartbeats
			if believing.Load() {
				cfg.Believe(40 * time.Second)
			}
		})
		old := c.Master()
		believing.Store(false)
		for _, id := range []string{"r1", "r2", "r3", "r4", "r5"} {
			if id != old {
				c.Kill(id)
				c.Restart(id)
				time.Sleep(5 * time.Second)
			}
		}
		var apart atomic.Bool
		cl := dial(t, ctx, c, "client", client.Config{
			Lease: time.Minute, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				if apart.Load() && address == old+":7421" {
					return nil, errors.New("the client is on the others' side")
				}
				return c.DialFrom("client")(ctx, address)
			},
		})
		h := open(t, ctx, cl, "/ls/local/file", 0)
		must(h.SetContents(ctx, []byte("old")))(t)
		held := acquire(t, ctx, h)
		raw := rawSession(t, ctx, c, old)
		if got, err := raw.read(ctx); err != nil || got != "old" {
			t.Fatalf("before: %q, %v", got, err)
		}
		sequencer := held.Sequencer().String()

		c.Isolate(old)
		apart.Store(true)
		c.Cut("client")
		c.Heal("client")
		isolated := time.Now()
		must(h.SetContents(ctx, []byte("new")))(t)
		noErr(t, held.Release(ctx))
		stopIf(t, c.Replica(old).Health().Role != "master", "the old master knows after %v: the test proves nothing", time.Since(isolated))
		// Now the old contents are wrong, and the sequencer is invalid.
		if got, err := raw.read(ctx); err == nil {
			t.Errorf("the deposed master answered a read with %q", got)
		}
		if reply, err := raw.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: raw.caller.Session}}); err == nil {
			t.Errorf("the deposed master granted a lease: %v", reply)
		}
		if reply, err := raw.CheckSequencer(ctx, &pb.CheckSequencerRequest{Sequencer: sequencer}); err == nil && reply.GetValid() {
			t.Error("the deposed master calls an invalid sequencer valid")
		}
		if reply, err := raw.History(ctx, &pb.HistoryRequest{Path: "/ls/local/file"}); err == nil {
			t.Errorf("the deposed master says who holds a lock: %v", reply)
		}
	})
}

// raw is a session of a program with one replica.
type raw struct {
	*program
	caller *pb.Caller
	grant  uint64 // number of the first
	handle []byte
}

func rawSession(t *testing.T, ctx context.Context, c *celltest.Cell, id string) *raw {
	t.Helper()
	r := &raw{program: connect(t, c.DialFrom("raw"), id, nil)}
	s := must(r.CreateSession(ctx, &pb.CreateSessionRequest{Nonce: make([]byte, 16), LeaseNs: int64(api.MaxLease)}))(t)
	r.grant, r.caller = s.GetGrant().GetNumber(), &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	r.handle = r.open(r.caller, &pb.OpenRequest{Path: "/ls/local/file", Read: true})
	return r
}

func (r *raw) read(ctx context.Context) (string, error) {
	reply, err := r.GetContentsAndStat(ctx, &pb.GetContentsAndStatRequest{Caller: r.caller, Handle: r.handle})
	return string(reply.GetContents()), err
}

// A hand-over to a replica that is down, or has stopped, is refused before anything is done, however often it is tried.
// It refuses or delays no change, and a master that is deposed in between can become master again.
func TestTransferToADeadReplica(t *testing.T) {
	for _, trouble := range []struct {
		name string
		make func(c *celltest.Cell, id string)
	}{
		{"killed", (*celltest.Cell).Kill},
		{"paused", func(c *celltest.Cell, id string) { c.Pause(id) }},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				cl := dial(t, ctx, c, "client", client.Config{})
				h := open(t, ctx, cl, "/ls/local/f", 0)
				from := c.Master()
				dead := others(5, from)[3]
				trouble.make(c, dead)
				must(h.SetContents(ctx, []byte("so that it is behind")))(t)
				time.Sleep(2 * time.Minute) // Raft contacts it less and less often
				for range 3 {
					began := time.Now()
					if err := c.Replica(from).Transfer(ctx, dead); !errors.Is(err, api.Unavailable) {
						t.Errorf("handed over to a replica that was %s: %v", trouble.name, err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("that took %v", took)
					}
					began = time.Now()
					must(h.SetContents(ctx, []byte("x")))(t)
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("after a hand-over to a replica that was %s, a write took %v", trouble.name, took)
					}
				}
				c.Isolate(from)
				time.Sleep(5 * time.Second)
				next := c.Master()
				c.Rejoin(from)
				time.Sleep(5 * time.Second)
				noErr(t, c.Replica(next).Transfer(ctx, from))
				began := time.Now()
				if _, err := h.SetContents(ctx, []byte("y")); err != nil || c.Master() != from {
					t.Errorf("handed back: %v, the master is %s", err, c.Master())
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the first write after handing back took %v", took)
				}
			}, calm)
		})
	}
}

// While writes go on, each of several hand-overs succeeds, and no write is refused finally.
func TestTransfersUnderLoad(t *testing.T) {
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		c := celltest.Start(t, 5)
		stop, failed := make(chan struct{}), make(chan error, 4)
		for range 4 {
			h := open(t, ctx, dial(t, ctx, c, "writer", client.Config{}), "/ls/local/f", 0)
			go func() {
				for {
					select {
					case <-stop:
						failed <- nil
						return
					case <-time.After(time.Millisecond):
					}
					if _, err := h.SetContents(ctx, []byte("x")); err != nil {
						failed <- err
						return
					}
				}
			}()
		}
		for range 20 {
			from := c.Master()
			if err := c.Replica(from).Transfer(ctx, ""); err != nil {
				t.Errorf("hand-over from %s: %v", from, err)
			}
			for c.Master() == from {
				time.Sleep(time.Millisecond)
			}
		}
		close(stop)
		for range 4 {
			report(t, <-failed)
		}
	})
}

// prompt is how long news may take to a client whose KeepAlive is parked: far less than the seconds until that
// KeepAlive is due. Apart from the 1 ms delay of the listener's host, nothing takes any virtual time.
const prompt = 100 * time.Millisecond

// The master answers a parked KeepAlive as soon as there is news, not only when the lease is due to be extended (Chubby
// §2.5, §2.7, §2.8): events, invalidations, the loss of a lock and the end of a session reach a client within a round
// trip.
func TestNewsIsPrompt(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		c.Slow("listener", time.Millisecond)
		listener := dial(t, ctx, c, "listener", client.Config{As: "p"})
		author := dial(t, ctx, c, "author", client.Config{As: "p"})
		h := watchFile(t, ctx, listener, path)
		file := open(t, ctx, author, path, 0)
		for i := range 10 {
			<-time.After(time.Duration(i) * 777 * time.Millisecond) // at any moment between two KeepAlives
			reads(t, ctx, h, 1)
			began := time.Now()
			must(file.SetContents(ctx, []byte("x")))(t)
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
		noErr(t, author.BreakLock(ctx, path, "a test", false))
		if <-lock.Context().Done(); time.Since(began) > prompt {
			t.Errorf("its holder heard of the loss after %v", time.Since(began))
		}
		_ = lock.Release(ctx) // it is lost
		<-time.After(3 * time.Second)
		began = time.Now()
		noErr(t, author.EndSession(ctx, listener.Session(), "a test"))
		if <-listener.Done(); time.Since(began) > prompt {
			t.Errorf("the client heard of its end after %v", time.Since(began))
		}
	})
}

// The holder of a lock that was taken away acknowledges that when its work has stopped, but drops its cache at once:
// the next holder writes its name into the lock's file without waiting for it (decision 10).
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
			inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				holder := dial(t, ctx, c, "holder", client.Config{As: "p"})
				operator := dial(t, ctx, c, "operator", client.Config{As: "p"})
				next := dial(t, ctx, c, "next", client.Config{As: "p"})
				file := open(t, ctx, holder, path, 0)
				lock := acquire(t, ctx, file)
				must(file.SetContents(ctx, []byte("holder")))(t)
				reads(t, ctx, file, 1)
				its := open(t, ctx, next, path, 0)
				began := time.Now()
				noErr(t, take(ctx, operator, holder))
				<-lock.Context().Done()
				for i := range 3 { // the holder works on, and releases nothing
					must(its.SetContents(ctx, []byte("next")))(t)
					if d := time.Since(began); d > prompt {
						t.Errorf("write %d was done %v after the lock was taken away", i, d)
					}
				}
				failIf(t, name == "break --now" && lock.Err() == nil, "the holder did not notice")
				if next, err := its.TryAcquire(ctx, api.Exclusive); (err == nil) != (name == "break --now") {
					t.Errorf("the lock, while its holder works on: %v, %v", next, err)
				}
			})
		})
	}
}
