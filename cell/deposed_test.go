package cell_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A deposed master that does not know it yet answers no read, grants no lease
// and calls no sequencer valid (decision 5). It is like a paused process that
// has not read its clock since: its election timeout, which is also its leader
// lease in Raft, is made so long that it still considers itself the leader.
func TestDeposedMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
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
		if _, err := h.SetContents(ctx, []byte("old")); err != nil {
			t.Fatal(err)
		}
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
		if _, err := h.SetContents(ctx, []byte("new")); err != nil {
			t.Fatal(err)
		}
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if c.Replica(old).Health().Role != "master" {
			t.Fatalf("the old master knows after %v: the test proves nothing", time.Since(isolated))
		}
		// Now the old contents are wrong, and the sequencer is invalid.
		if got, err := raw.read(ctx); err == nil {
			t.Errorf("the deposed master answered a read with %q", got)
		}
		if reply, err := raw.chubby.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: raw.caller.Session}}); err == nil {
			t.Errorf("the deposed master granted a lease: %v", reply)
		}
		if reply, err := raw.chubby.CheckSequencer(ctx, &pb.CheckSequencerRequest{Sequencer: sequencer}); err == nil && reply.GetValid() {
			t.Error("the deposed master calls an invalid sequencer valid")
		}
		if reply, err := raw.chubby.History(ctx, &pb.HistoryRequest{Path: "/ls/local/file"}); err == nil {
			t.Errorf("the deposed master says who holds a lock: %v", reply)
		}
	})
}

// raw is a session with one replica, without the client library, which would
// look for the new master.
type raw struct {
	chubby pb.ChubbyClient
	caller *pb.Caller
	grant  uint64 // number of the first
	handle []byte
}

func rawSession(t *testing.T, ctx context.Context, c *celltest.Cell, id string) *raw {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+id+":7421", grpc.WithContextDialer(c.DialFrom("raw")),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &raw{chubby: pb.NewChubbyClient(conn)}
	s, err := r.chubby.CreateSession(ctx, &pb.CreateSessionRequest{Nonce: make([]byte, 16), LeaseNs: int64(api.MaxLease)})
	if err != nil {
		t.Fatal(err)
	}
	r.grant = s.GetGrant().GetNumber()
	r.caller = &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	o, err := r.chubby.Open(ctx, &pb.OpenRequest{
		Caller: r.caller, Mutation: &pb.Mutation{Number: 1, HighestIssued: 1, Outstanding: []uint64{1}}, Path: "/ls/local/file", Read: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.handle = o.GetHandle()
	return r
}

func (r *raw) read(ctx context.Context) (string, error) {
	reply, err := r.chubby.GetContentsAndStat(ctx, &pb.GetContentsAndStatRequest{Caller: r.caller, Handle: r.handle})
	return string(reply.GetContents()), err
}
