package chubbyleader_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	chubbyleader "github.com/chubbylock/chubby/contrib/controllerruntime"
	"github.com/chubbylock/chubby/contrib/internal/leaders"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// startManager is a candidate of TestProcesses, once.
func startManager(ctx context.Context, lock *chubbylock.Lock) error {
	o := options()
	lease, renew, retry := 3*time.Second, 2*time.Second, 200*time.Millisecond
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	m, err := chubbyleader.NewManager(nowhere(), o, lock)
	if err != nil {
		return err
	}
	for range 2 {
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { leaders.Report(ctx, lock.Identity()); return nil })); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// TestProcesses: managers are processes, in a cell of processes. Masters are killed, and the leader is
// killed, stopped for longer than its lease, and asked to end. There are never two leaders.
func TestProcesses(t *testing.T) {
	cell := processes.Start(t, 3)
	c := leaders.NewCrowd(t, cell.Servers())
	c.Start("0")
	c.Start("1")
	now := c.Leader("")
	cell.KillMaster()

	killed := now.Who
	c.All[killed].Signal(syscall.SIGKILL)
	now = c.Leader(killed)
	c.Start("2")

	stopped := now.Who
	c.All[stopped].Signal(syscall.SIGSTOP)
	now = c.Leader(stopped)
	<-time.After(time.Second)
	c.All[stopped].Signal(syscall.SIGCONT)
	cell.KillMaster()

	for round := range 2 {
		<-time.After(time.Second)                            // for the others to be told of the leader, and to wait in the queue
		now = c.HandOver(now.Who, fmt.Sprint("next", round)) // TestHandOver says how long it may take
	}
	c.End(5)
}
