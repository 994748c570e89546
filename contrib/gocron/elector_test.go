package chubbycron_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	chubbycron "github.com/chubbylock/chubby/contrib/gocron"
	"github.com/go-co-op/gocron/v2"
)

func TestConfigs(t *testing.T) {
	for path, code := range map[string]api.Code{"": api.InvalidPath, "/ls/local": api.InvalidArgument, "/ls/local/a/": api.InvalidPath} {
		_, err := chubbycron.NewElector(nil, chubbycron.ElectorConfig{Path: path})
		wants(t, path, err, code)
	}
	_, err := chubbycron.NewElector(nil, chubbycron.ElectorConfig{Path: leaderPath, LockDelay: api.MaxLockDelay + 1})
	wants(t, "a long lock-delay", err, api.InvalidArgument)
	_, err = chubbycron.NewElector(nil, chubbycron.ElectorConfig{Path: leaderPath, Reason: string(make([]byte, api.MaxReason+1))})
	wants(t, "a long reason", err, api.InvalidArgument)
	_, err = chubbycron.NewLocker(nil, chubbycron.LockerConfig{Path: locksPath, AtLeast: -1})
	wants(t, "a negative time", err, api.InvalidArgument)
	_, err = chubbycron.NewLocker(nil, chubbycron.LockerConfig{Path: "x"})
	wants(t, "no path", err, api.InvalidPath)
}

// The work of a scheduler ends before its elector gives the lock up, also that of jobs that are no tasks of the elector; and
// only then another leads.
func TestCloseAwaitsWork(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.elector("one")
		w.awaitLeader(time.Minute, one)
		s := w.scheduler(one.Options()...)
		began := make(chan struct{})
		w.job(s, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func() {
			close(began)
			w.work(context.Background(), "one", 20*time.Second)
		})
		<-began
		two := w.elector("two")
		at := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		wants(t, "Close while work runs", one.Close(ctx), api.DeadlineExceeded)
		wants(t, "IsLeader after Close", one.IsLeader(w.ctx), api.NotHeld)
		w.awaitLeader(time.Minute, two)
		if took := time.Since(at); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("another leads after %v; the work took 20 s", took)
		}
		wants(t, "Close again", one.Close(w.ctx), api.OK)
	})
}

// A lock that an operator takes away is another's when the work has stopped.
func TestTakenLeadership(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.elector("one")
		w.awaitLeader(time.Minute, one)
		s := w.scheduler(one.Options()...)
		began := make(chan struct{})
		causes := make(chan error, 1)
		w.job(s, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), one.Task(func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			w.work(context.Background(), "one", 10*time.Second) // it is slow to stop
			return nil
		}))
		<-began
		two := w.elector("two")
		operator := w.operator()
		at := time.Now()
		wants(t, "BreakLock", operator.BreakLock(w.ctx, leaderPath, "test", false), api.OK)
		w.sleep(100 * time.Millisecond)
		wants(t, "IsLeader", one.IsLeader(w.ctx), api.LockLost)
		// The lease is not extended before the lock is released (decision 10); then others have it in any case.
		w.awaitLeader(time.Minute, two)
		if took := time.Since(at); took < 4*time.Second {
			t.Errorf("another leads after %v", took)
		}
		if cause := <-causes; !errors.Is(cause, client.LockTaken) {
			t.Errorf("the work was stopped because: %v", cause)
		}
	})
}

// Hosts are cut off and paused at random, and electors closed. Work of two schedulers never overlaps.
func TestElectorStorm(t *testing.T) {
	inWorld(t, func(w *world) {
		r := rand.New(rand.NewPCG(1, 2))
		hosts := []string{"one", "two", "three"}
		for _, host := range hosts {
			e := w.elector(host)
			s := w.scheduler(e.Options()...)
			w.job(s, gocron.DurationJob(300*time.Millisecond), e.Task(func(ctx context.Context) error {
				w.work(ctx, host, 700*time.Millisecond)
				return nil
			}))
			w.job(s, gocron.DurationJob(500*time.Millisecond), func() { w.work(context.Background(), host, 50*time.Millisecond) })
		}
		for range 30 {
			w.sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
			host := hosts[r.IntN(len(hosts))]
			w.cell.Cut(host)
			w.sleep(time.Duration(r.IntN(9000)) * time.Millisecond)
			w.cell.Heal(host)
		}
		w.sleep(10 * time.Second)
		leaders, tokens := map[string]int{}, map[uint64]bool{}
		for _, one := range w.done() {
			leaders[one.host]++
			if one.token != 0 {
				tokens[one.token] = true
			}
		}
		if t.Logf("runs: %v, under %d tokens", leaders, len(tokens)); len(leaders) < 3 || len(tokens) < len(leaders) {
			t.Errorf("only %v have led, and there were %d tokens", leaders, len(tokens))
		}
	})
}

// A leader that is cut off says no before another leads, and its task is stopped; the next leads after lease and lock-delay.
func TestLostLeadership(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.elector("one"), w.elector("two")
		electors, hosts := []*chubbycron.Elector{one, two}, []string{"one", "two"}
		first := w.awaitLeader(time.Minute, electors...)
		stopped := make(chan time.Time, 1)
		go func() {
			_ = electors[first].Task(func(ctx context.Context) error {
				<-ctx.Done()
				stopped <- time.Now()
				return nil
			})(w.ctx)
		}()
		w.sleep(time.Second)
		w.cell.Cut(hosts[first])
		at := time.Now()
		for !leads(electors[1-first]) {
			if time.Since(at) > time.Minute {
				t.Fatal("nobody leads")
			}
			w.sleep(time.Millisecond)
		}
		took := time.Since(at)
		if err := electors[first].IsLeader(w.ctx); err == nil {
			t.Error("the first leads, too")
		}
		if took < 3*time.Second || took > 8*time.Second {
			t.Errorf("the next leads after %v; want what is left of the lease, and the lock-delay, about 4 s", took)
		}
		select {
		case end := <-stopped:
			if margin := took - end.Sub(at); margin <= 0 {
				t.Errorf("the work was stopped %v before the next leads", margin)
			}
		default:
			t.Error("the work was not stopped")
		}
		w.cell.Heal(hosts[first])
		wants(t, "Close", electors[1-first].Close(w.ctx), api.OK)
		w.awaitLeader(time.Minute, electors[first])
	})
}

// What keeps an elector from the lock is what IsLeader says, and when that has ended, it leads.
func TestElectorTriesAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		operator := w.operator()
		wants(t, "MkdirAll", operator.MkdirAll(w.ctx, leaderPath), api.OK) // a directory, which has no such lock
		e := w.elector("one")
		w.sleep(5 * time.Second)
		if err := e.IsLeader(w.ctx); !errors.Is(err, api.NotHeld) || !errors.Is(err, api.IsDirectory) {
			t.Errorf("IsLeader: %v", err)
		}
		wants(t, "Delete", operator.Delete(w.ctx, leaderPath), api.OK)
		w.awaitLeader(time.Minute, e)
	})
}
