package chubbylock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

// TestHandOverTime measures, in real time, how long it takes from the end of a leader's
// context until the next leader works: a release waits for no RetryPeriod.
func TestHandOverTime(t *testing.T) {
	t.Parallel() // with other tests that take real time
	const rounds, retry = 6, 500 * time.Millisecond
	cell := celltest.Start(t, 3)
	work, told := make(chan string, rounds+1), make(chan string, rounds+1)
	type candidate struct {
		stop context.CancelFunc
		done chan struct{}
	}
	run := func(name string) candidate {
		lock, err := chubbylock.New(chubbylock.Config{
			Client: cell.ConfigOf(name), Path: path, Identity: name,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		c := candidate{stop, make(chan struct{})}
		go func() {
			defer close(c.done)
			err := chubbylock.Run(ctx, leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: retry, ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) { work <- name; <-ctx.Done() },
					OnStoppedLeading: func() {},
					OnNewLeader: func(leader string) {
						if leader != name {
							told <- name
						}
					},
				},
			})
			if err := lock.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
			if err != nil {
				t.Error(err)
			}
		}()
		t.Cleanup(func() { stop(); <-c.done })
		return c
	}
	now := run("0")
	<-work
	next := run("1")
	<-told
	var took []time.Duration
	for i := range rounds {
		// A candidate that has learnt of the leader pauses before it waits in the queue, for
		// 2.2 of its RetryPeriods at most.
		<-time.After(retry * 12 / 5)
		began := time.Now()
		now.stop()
		<-work
		took = append(took, time.Since(began))
		<-now.done
		now, next = next, run(fmt.Sprint(i+2))
		<-told
	}
	slices.Sort(took)
	t.Logf("median %v of %v", took[rounds/2], took)
	if took[rounds/2] > retry/3 {
		t.Errorf("half of the hand-overs took %v and more", took[rounds/2])
	}
	next.stop()
}
