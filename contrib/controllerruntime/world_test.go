package chubbyleader_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbyleader "github.com/chubbylock/chubby/contrib/controllerruntime"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const path = "/ls/local/leader"

// act is something that a leader's runnable did.
type act struct {
	who   string
	token uint64
}

// world is a cell, its managers, and what leaders' runnables have done.
type world struct {
	*testing.T
	cell *celltest.Cell

	mu    sync.Mutex // guards what follows
	acts  []act
	wakes map[string]chan struct{} // of stopped managers; closed to continue them
	idle  map[string]int           // how often runnables that need no election have acted
}

func inWorld(t *testing.T, test func(w *world)) {
	celltest.Run(t, 3, func(t *testing.T, c *celltest.Cell) {
		test(&world{T: t, cell: c, wakes: map[string]chan struct{}{}, idle: map[string]int{}})
	})
}

func (w *world) lock(name string) *chubbylock.Lock {
	w.Helper()
	l, err := chubbylock.New(chubbylock.Config{
		Client: w.cell.ConfigOf(name), Path: path, Identity: name, LockDelay: 5 * time.Second,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx) // its host may be cut off, or its session gone
	})
	return l
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

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
	w.leader("", 10*time.Second)
	next = w.run("two", edits...)
	time.Sleep(10 * time.Second) // it has been told of the leader, and waits in the queue
	return leader, next
}

// work returns a runnable that acts every 10 ms until its context ends, and not while its manager is
// stopped.
func (w *world) work(name string) manager.RunnableFunc {
	return func(ctx context.Context) error {
		for {
			w.halt(name)
			if ctx.Err() != nil {
				return nil
			}
			w.act(ctx, name)
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// halt waits while a manager is stopped.
func (w *world) halt(name string) {
	w.mu.Lock()
	asleep := w.wakes[name]
	w.mu.Unlock()
	if asleep != nil {
		<-asleep
	}
}

// act checks that no later leader has acted before.
func (w *world) act(ctx context.Context, name string) {
	seq, ok := chubbylock.FromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.acts); !ok || seq.Token() == 0 {
		w.Errorf("%s leads without a sequencer", name)
	} else if n > 0 && (seq.Token() < w.acts[n-1].token || seq.Token() == w.acts[n-1].token && name != w.acts[n-1].who) {
		w.Errorf("two leaders: %s acts with token %d after %s with %d", name, seq.Token(), w.acts[n-1].who, w.acts[n-1].token)
	}
	w.acts = append(w.acts, act{name, seq.Token()})
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acts)
}

// leader waits until a leader other than not acts after now, at most for limit.
func (w *world) leader(not string, limit time.Duration) act {
	w.Helper()
	seen := w.count()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		for _, a := range w.acts[seen:] {
			if a.who != not {
				w.mu.Unlock()
				return a
			}
		}
		seen = len(w.acts)
		w.mu.Unlock()
	}
	w.Fatalf("nobody but %q leads within %v", not, limit)
	return act{}
}

func (w *world) pause(name string) {
	w.mu.Lock()
	w.wakes[name] = make(chan struct{})
	w.mu.Unlock()
	w.cell.Pause(name)
}

func (w *world) resume(name string) {
	w.cell.Resume(name)
	w.mu.Lock()
	close(w.wakes[name])
	delete(w.wakes, name)
	w.mu.Unlock()
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

// operate does an operator's action on the holder of the lock.
func (w *world) operate(do func(ctx context.Context, c *client.Client, holder api.Holder) error) {
	w.Helper()
	c, err := client.New(w.Context(), w.cell.ConfigOf("operator"))
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close(w.Context())
	locks, err := c.Cell().Locks(w.Context(), path)
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
		w.Fatalf("%+v, %v", locks, err)
	}
	if err := do(w.Context(), c, locks[0].Holders[0]); err != nil {
		w.Fatal(err)
	}
}
