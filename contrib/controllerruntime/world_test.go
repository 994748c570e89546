package chubbyleader_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	chubbyleader "github.com/chubbylock/chubby/contrib/controllerruntime"
	"github.com/chubbylock/chubby/contrib/internal/leaders"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const path = leaders.Path

// world is a cell, its managers, and what leaders' runnables have done.
type world struct{ *leaders.World }

func inWorld(t *testing.T, test func(w *world)) {
	leaders.Run(t, func(w *leaders.World) { test(&world{w}) })
}

func (w *world) lock(name string) *chubbylock.Lock {
	w.Helper()
	return w.Lock(name, 5*time.Second)
}

// nowhere is the configuration of an API server that is not there: the managers of these tests do not
// need one.
func nowhere() *rest.Config { return &rest.Config{Host: "127.0.0.1:1"} }

// options are those of a manager that serves nothing.
func options() manager.Options {
	anything := true
	return manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElectionReleaseOnCancel: true,
		Controller:     config.Controller{SkipNameValidation: &anything},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	}
}

// candidate is a manager that was started.
type candidate struct {
	ctrl.Manager
	name string
	lock *chubbylock.Lock
	stop context.CancelFunc
	done chan error // what Start has returned
}

// start starts a manager with a lock and some runnables.
func (w *world) start(lock *chubbylock.Lock, o manager.Options, runnables ...manager.Runnable) *candidate {
	w.Helper()
	m, err := chubbyleader.NewManager(nowhere(), o, lock)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range runnables {
		if err := m.Add(r); err != nil {
			w.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(w.Context())
	c := &candidate{Manager: m, name: lock.Identity(), lock: lock, stop: stop, done: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.done <- m.Start(ctx)
	}()
	w.Cleanup(func() { stop(); <-ended })
	return c
}

// run starts a manager with two runnables that work.
func (w *world) run(name string, edits ...func(*manager.Options)) *candidate {
	w.Helper()
	o := options()
	for _, edit := range edits {
		edit(&o)
	}
	return w.start(w.lock(name), o, w.work(name), w.work(name))
}

// pair runs two managers. It returns the leader first, when the other waits.
func (w *world) pair(edits ...func(*manager.Options)) (leader, next *candidate) {
	w.Helper()
	leader = w.run("one", edits...)
	w.Leader("", 10*time.Second)
	next = w.run("two", edits...)
	w.Sleep(10 * time.Second) // it has been told of the leader, and waits in the queue
	return leader, next
}

func (w *world) work(name string) manager.RunnableFunc {
	return func(ctx context.Context) error { w.Work(ctx, name); return nil }
}

// ended waits until Start of a manager has returned.
func (w *world) ended(c *candidate, limit time.Duration) error {
	w.Helper()
	select {
	case err := <-c.done:
		return err
	case <-time.After(limit):
		w.Fatalf("%s has not ended within %v", c.name, limit)
		return nil
	}
}
