package chubbyleader_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbyleader "github.com/chubbylock/chubby/contrib/controllerruntime"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// manage runs a manager until ctx ends, or its leadership is lost.
func manage(ctx context.Context, cell client.Config, cluster *rest.Config, o ctrl.Options, me string, work manager.RunnableFunc) error {
	lock, err := chubbylock.New(chubbylock.Config{Client: cell, Path: "/ls/local/leader", Identity: me})
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close(context.WithoutCancel(ctx)) }() // if it fails, the lock ends with the lease
	o.LeaderElectionReleaseOnCancel = true
	mgr, err := chubbyleader.NewManager(cluster, o, lock) // instead of ctrl.NewManager
	if err != nil {
		return err
	}
	if err := mgr.Add(work); err != nil { // and controllers, by ctrl.NewControllerManagedBy(mgr)
		return err
	}
	return mgr.Start(ctx)
}

// A program does its work in one of its instances. "chubbyd dev" starts a cell for it.
func Example() {
	cluster, err := ctrl.GetConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	me, err := os.Hostname()
	if err != nil {
		fmt.Println(err)
		return
	}
	err = manage(ctrl.SetupSignalHandler(), client.Config{}, cluster, ctrl.Options{}, me, func(ctx context.Context) error {
		seq, _ := chubbylock.FromContext(ctx)
		fmt.Println("leading; the servers that check are to be sent", seq)
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// Outside of a guarded runnable there is no leadership.
func ExampleCheckLeadership() {
	fmt.Println(api.CodeOf(chubbyleader.CheckLeadership(context.Background())))
	// Output:
	// NotHeld
}

// TestExample runs the example.
func TestExample(t *testing.T) {
	celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
		leads := make(chan string)
		done := make(chan error, 2)
		stops := map[string]context.CancelFunc{}
		for _, me := range []string{"a", "b"} {
			ctx, stop := context.WithCancel(t.Context())
			stops[me] = stop
			cfg := cell.ConfigOf(me)
			go func() {
				done <- manage(ctx, cfg, nowhere(), options(), me, func(ctx context.Context) error {
					leads <- me
					<-ctx.Done()
					return nil
				})
			}()
		}
		first := <-leads
		time.Sleep(10 * time.Second)
		stops[first]()
		second := <-leads
		if second == first {
			t.Errorf("%s leads again", first)
		}
		stops[second]()
		for range stops {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
