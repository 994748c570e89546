package chubbyleader_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	chubbyleader "github.com/chubbylock/chubby/contrib/controllerruntime"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	fakeelection "sigs.k8s.io/controller-runtime/pkg/leaderelection/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// addController adds a controller to a manager, which reconciles one request again and again.
func addController(t *testing.T, m manager.Manager, r reconcile.Func) {
	t.Helper()
	c, err := controller.New("test", m, controller.Options{Reconciler: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})); err != nil {
		t.Fatal(err)
	}
}

// A controller's Reconcile has the sequencer, runs in the leader only, and not any more when another
// leads. CheckLeadership reads the clock there.
func TestController(t *testing.T) {
	inWorld(t, func(w *world) {
		begin := func(name string) *candidate {
			lock := w.lock(name)
			m, err := chubbyleader.NewManager(nowhere(), options(), lock)
			if err != nil {
				t.Fatal(err)
			}
			addController(t, m, func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				w.Halt(name)
				if err := chubbyleader.CheckLeadership(ctx); err != nil {
					return reconcile.Result{}, err
				}
				w.Act(ctx, name)
				return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil
			})
			ctx, stop := context.WithCancel(w.Context())
			c := &candidate{Manager: m, name: name, lock: lock, stop: stop, done: make(chan error, 1)}
			go func() { c.done <- m.Start(ctx) }()
			return c
		}
		one := begin("one")
		w.Leader("", 10*time.Second)
		two := begin("two")
		w.Sleep(10 * time.Second)
		w.Pause("one")
		w.Leader("one", time.Minute)
		w.Resume("one")
		if err := w.ended(one, 10*time.Second); !errors.Is(err, api.LockLost) {
			t.Errorf("Start returned %v", err)
		}
		two.stop()
		if err := w.ended(two, 10*time.Second); err != nil {
			t.Error(err)
		}
	})
}

// CheckLeadership reads the clock: a process that was stopped knows at once, when no timer has told it yet.
func TestCheckLeadership(t *testing.T) {
	inWorld(t, func(w *world) {
		given := make(chan context.Context, 1)
		one := w.start(w.lock("one"), options(), manager.RunnableFunc(func(ctx context.Context) error {
			derived, cancel := context.WithCancel(ctx) // as that of Reconcile is
			defer cancel()
			given <- derived
			<-ctx.Done()
			return nil
		}))
		ctx := <-given
		if err := chubbyleader.CheckLeadership(ctx); err != nil {
			t.Error(err)
		}
		w.Cell.Jump("one", time.Minute)
		if err := chubbyleader.CheckLeadership(ctx); err == nil {
			t.Error("the lease has run out, and the leadership is said to last")
		}
		if err := w.ended(one, 10*time.Second); !errors.Is(err, api.LockLost) {
			t.Errorf("Start returned %v", err)
		}
	})
}

// What needs no election runs in each manager, without a leadership; what fails ends its manager, with
// its error; and a runnable may end before its manager.
func TestRunnables(t *testing.T) {
	inWorld(t, func(w *world) {
		fault := errors.New("the runnable has failed")
		var idle, once atomic.Int32
		runnables := func() []manager.Runnable {
			return []manager.Runnable{
				others{func(ctx context.Context) error {
					idle.Add(1)
					if _, ok := chubbylock.FromContext(ctx); ok || chubbyleader.CheckLeadership(ctx) == nil {
						t.Error("a runnable that needs no election has a leadership")
					}
					<-ctx.Done()
					return nil
				}},
				manager.RunnableFunc(func(ctx context.Context) error { once.Add(1); return chubbyleader.CheckLeadership(ctx) }),
			}
		}
		one := w.start(w.lock("one"), options(), append(runnables(), manager.RunnableFunc(func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(20 * time.Second):
				return fault
			}
		}))...)
		<-one.Elected()
		w.start(w.lock("two"), options(), runnables()...)
		w.Sleep(15 * time.Second)
		if idle.Load() != 2 || once.Load() != 1 {
			t.Errorf("%d run without an election, %d with one", idle.Load(), once.Load())
		}
		if err := w.ended(one, 10*time.Second); !errors.Is(err, fault) || errors.Is(err, api.LockLost) {
			t.Errorf("Start returned %v", err)
		}
		w.Sleep(time.Second)
		if once.Load() != 2 {
			t.Error("the other does not lead")
		}
	})
}

// others is a runnable that needs no election.
type others struct{ manager.RunnableFunc }

func (others) NeedLeaderElection() bool { return false }

// warm is a runnable that prepares itself.
type warm struct {
	manager.RunnableFunc
	warmed *atomic.Bool
}

func (r warm) Warmup(context.Context) error { r.warmed.Store(true); return nil }

// cached is a runnable that has a cache.
type cached struct{ manager.RunnableFunc }

func (cached) GetCache() cache.Cache { return nil }

// What a manager starts before the election is left as it is, and what prepares itself still does.
func TestGuarded(t *testing.T) {
	lock, err := chubbylock.New(chubbylock.Config{Path: path, Identity: "one"})
	if err != nil {
		t.Fatal(err)
	}
	run := manager.RunnableFunc(func(context.Context) error { return nil })
	for _, r := range []manager.Runnable{
		&others{run}, &cached{run}, webhook.NewServer(webhook.Options{}), &manager.Server{Name: "pages", Server: &http.Server{}},
	} {
		if chubbyleader.Guard(lock, r) != r {
			t.Errorf("%T is guarded", r)
		}
	}
	var warmed atomic.Bool
	for _, r := range []manager.Runnable{&run, &warm{run, &warmed}, &manager.Server{Name: "pages", Server: &http.Server{}, OnlyServeWhenLeader: true}} {
		g := chubbyleader.Guard(lock, r)
		if g == r {
			t.Errorf("%T is not guarded", r)
		}
		if chubbyleader.Guard(lock, g) != g {
			t.Errorf("%T is guarded twice", r)
		}
		if w, ok := g.(interface{ Warmup(context.Context) error }); ok && w.Warmup(t.Context()) != nil {
			t.Errorf("%T is not prepared", r)
		}
	}
	if !warmed.Load() {
		t.Error("nothing was prepared")
	}
}

// A candidate that does not lead starts nothing.
func TestNotStarted(t *testing.T) {
	lock, err := chubbylock.New(chubbylock.Config{Path: path, Identity: "one"})
	if err != nil {
		t.Fatal(err)
	}
	g := chubbyleader.Guard(lock, manager.RunnableFunc(func(context.Context) error { t.Error("it was started"); return nil }))
	if err := g.Start(t.Context()); !errors.Is(err, api.LockLost) {
		t.Error(err)
	}
}

// Options that contradict the lock are refused, with the name of the field.
func TestOptions(t *testing.T) {
	lock, err := chubbylock.New(chubbylock.Config{Path: path, Identity: "one"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := fakeelection.NewResourceLock(nil, nil, leaderelection.Options{})
	if err != nil {
		t.Fatal(err)
	}
	long, none := 20*time.Second, time.Duration(0)
	for _, c := range []struct {
		field string
		lock  *chubbylock.Lock
		edit  func(o *manager.Options)
	}{
		{"", lock, func(o *manager.Options) {}},
		{"", lock, func(o *manager.Options) { o.LeaderElectionResourceLockInterface = lock }},
		{"lock", nil, func(o *manager.Options) {}},
		{"Options.LeaderElectionResourceLockInterface", lock, func(o *manager.Options) { o.LeaderElectionResourceLockInterface = other }},
		{"Options.LeaseDuration", lock, func(o *manager.Options) { o.RenewDeadline = &long }},
		{"Options.RenewDeadline", lock, func(o *manager.Options) { o.RetryPeriod = &long }},
		{"Options.RetryPeriod", lock, func(o *manager.Options) { o.RetryPeriod = &none }},
	} {
		o := options()
		c.edit(&o)
		_, err := chubbyleader.NewManager(nowhere(), o, c.lock)
		if c.field == "" && err != nil || c.field != "" && (api.CodeOf(err) != api.InvalidArgument || !strings.Contains(err.Error(), c.field)) {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}
