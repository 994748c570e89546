package chubbylock_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/contrib/internal/leaders"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

// lead is a candidate of TestProcesses, once.
func lead(ctx context.Context, lock *chubbylock.Lock) error {
	return chubbylock.Run(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leaders.Report(ctx, lock.Identity()) }, OnStoppedLeading: func() {},
		},
	})
}

// TestProcesses: candidates are processes, in a cell of processes. The leader is killed, stopped
// for longer than its lease, and asked to end. There are never two leaders.
func TestProcesses(t *testing.T) {
	t.Parallel() // with other tests that take real time
	c := leaders.NewCrowd(t, processes.Start(t, 3).Servers())
	c.Start("0")
	c.Start("1")
	now := c.Leader("")
	for round := range 2 {
		killed := now.Who
		c.All[killed].Signal(syscall.SIGKILL)
		now = c.Leader(killed)
		c.Start(fmt.Sprint("again", round))

		stopped := now.Who
		c.All[stopped].Signal(syscall.SIGSTOP)
		now = c.Leader(stopped)
		<-time.After(time.Second)
		c.All[stopped].Signal(syscall.SIGCONT)
		<-time.After(time.Second) // for it to notice, and to join the queue

		now = c.HandOver(now.Who, fmt.Sprint("next", round))
	}
	c.End(7)
}
