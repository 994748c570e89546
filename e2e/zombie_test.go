package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A master that was stopped while another was elected answers no call when it is continued, not even
// those that waited in its sockets: neither with old contents nor with a lease (decision 5). The test
// makes the calls without the client library, which would have gone to the new master long before.
func TestZombieMaster(t *testing.T) {
	besideOthers(t)
	w := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience(60*time.Second))
	defer cancel()
	other := w.handle(ctx, w.client(client.Config{Lease: time.Minute, NoCache: true}), "/ls/local/file")
	var reached, answered, stale, grants atomic.Int64
	for round := range *rounds {
		if _, err := other.SetContents(ctx, fmt.Append(nil, "old", round)); err != nil {
			t.Fatal(err)
		}
		master := w.status().Master
		all := w.replicas()
		z := newZombie(t, ctx, all[master].Client)
		pid := all[master].PID
		processes.Halt(t, pid)
		_, err := other.SetContents(ctx, fmt.Append(nil, "new", round))
		if err != nil {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			t.Fatal(err)
		}
		// From here on the old contents are wrong. These calls wait in the zombie's
		// sockets when it goes on.
		var calls sync.WaitGroup
		sent := make(chan struct{})
		for range 20 {
			calls.Go(func() {
				reply, err := z.chubby.GetContentsAndStat(ctx, &pb.GetContentsAndStatRequest{Caller: z.caller, Handle: z.handle})
				<-sent
				var refused *api.Error
				if err == nil || errors.As(pb.Error(err), &refused) && refused.Replica == master {
					reached.Add(1)
				}
				if err == nil {
					answered.Add(1)
					if string(reply.GetContents()) == fmt.Sprint("old", round) {
						stale.Add(1)
					}
				}
			})
			calls.Go(func() {
				// It does not know the event queue, so it is answered at once.
				reply, err := z.chubby.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: z.caller.Session, Epoch: z.caller.Epoch - 1}})
				if err == nil && reply.GetGrant() != nil && reply.GetEpoch() == z.caller.Epoch {
					grants.Add(1)
				}
			})
		}
		time.Sleep(300 * time.Millisecond) // for the calls to reach the sockets
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		close(sent)
		calls.Wait()
		w.waitHealthy(5)
	}
	if reached.Load() == 0 {
		t.Error("no call reached the master that was stopped: this shows nothing")
	}
	t.Logf("%d rounds: %d reads reached it, %d were answered, %d of them stale; %d leases granted", *rounds, reached.Load(), answered.Load(), stale.Load(), grants.Load())
	if stale.Load() > 0 || grants.Load() > 0 {
		t.Errorf("a deposed master answered %d reads with old contents and granted %d leases", stale.Load(), grants.Load())
	}
}

// zombie is a session with one replica, made without the client library.
type zombie struct {
	chubby pb.ChubbyClient
	caller *pb.Caller
	handle []byte
}

func newZombie(t *testing.T, ctx context.Context, address string) *zombie {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	z := &zombie{chubby: pb.NewChubbyClient(conn)}
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		t.Fatal(err)
	}
	s, err := z.chubby.CreateSession(ctx, &pb.CreateSessionRequest{Nonce: nonce, LeaseNs: int64(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	z.caller = &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	o, err := z.chubby.Open(ctx, &pb.OpenRequest{
		Caller: z.caller, Mutation: &pb.Mutation{Number: 1, HighestIssued: 1, Outstanding: []uint64{1}}, Path: "/ls/local/file", Read: true, Write: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	z.handle = o.GetHandle()
	return z
}
