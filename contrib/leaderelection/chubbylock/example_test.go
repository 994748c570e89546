package chubbylock_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

// elect is a candidate until ctx ends, also after the leadership was lost.
func elect(ctx context.Context, cfg client.Config, me string, work func(ctx context.Context)) error {
	lock, err := chubbylock.New(chubbylock.Config{Client: cfg, Path: "/ls/local/leader", Identity: me})
	if err != nil {
		return err
	}
	defer lock.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		err := chubbylock.Run(ctx, leaderelection.LeaderElectionConfig{
			Lock:          lock,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: work, // ctx has the sequencer, and ends before another leads
				OnStoppedLeading: func() { fmt.Println(me, "is not the leader") },
				OnNewLeader:      func(leader string) {},
			},
		})
		if api.CodeOf(err) == api.InvalidArgument {
			return err
		}
	}
	return nil
}

// A program is a candidate until it is interrupted. "chubbyd dev" starts a cell for it.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	me, err := os.Hostname()
	if err != nil {
		fmt.Println(err)
		return
	}
	err = elect(ctx, client.Config{}, fmt.Sprintf("%s/%d", me, os.Getpid()), func(ctx context.Context) {
		seq, _ := chubbylock.FromContext(ctx)
		fmt.Println("leading; the servers that check are to be sent", seq)
		<-ctx.Done()
		fmt.Println("stopped:", context.Cause(ctx))
	})
	if err != nil {
		fmt.Println(err)
	}
}

// TestExample runs the example.
func TestExample(t *testing.T) {
	celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
		leads := make(chan uint64)
		var stops []context.CancelFunc
		done := make(chan error, 2)
		for _, me := range []string{"a", "b"} {
			ctx, stop := context.WithCancel(t.Context())
			stops = append(stops, stop)
			cfg := cell.ConfigOf(me)
			go func() {
				done <- elect(ctx, cfg, me, func(ctx context.Context) {
					seq, _ := chubbylock.FromContext(ctx)
					leads <- seq.Token()
					<-ctx.Done()
				})
			}()
			if me == "a" {
				<-leads
			}
		}
		time.Sleep(10 * time.Second)
		stops[0]()
		<-leads
		stops[1]()
		for range stops {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
