package chubbycron_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	chubbycron "github.com/chubbylock/chubby/contrib/gocron"
	"github.com/go-co-op/gocron/v2"
)

// trial is a cell of processes, and schedulers.
type trial struct {
	*testing.T
	cell *processes.Cell
}

// keeper returns a Keeper of a session of its own.
func (p *trial) keeper(ctx context.Context) *client.Keeper {
	p.Helper()
	k, err := client.Keep(ctx, client.Config{Servers: p.cell.Servers()})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = k.Close(ctx) // its session ends with its lease otherwise
	})
	return k
}

// exclusive counts pieces of work that may not overlap.
type exclusive struct {
	*testing.T
	what string

	mu    sync.Mutex // guards what follows
	now   string     // who works; empty if nobody does
	count map[string]int
}

func (x *exclusive) work(ctx context.Context, who string, length time.Duration) {
	x.mu.Lock()
	if x.now != "" {
		x.Errorf("%s: %s begins while %s works", x.what, who, x.now)
	}
	x.now = who
	x.count[who]++
	x.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	x.mu.Lock()
	x.now = ""
	x.mu.Unlock()
}

// workers is how many have worked.
func (x *exclusive) workers() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.count)
}

// Schedulers run their jobs one at a time while the master is killed again and again, in a cell of processes, and the
// scheduler that leads is shut down again and again.
func TestKills(t *testing.T) {
	p := &trial{T: t, cell: processes.Start(t, 3)}
	limit, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	busy, stop := context.WithCancel(limit)
	defer stop()
	var all sync.WaitGroup
	led := &exclusive{T: t, what: "the leader's job", count: map[string]int{}}
	locked := &exclusive{T: t, what: "the job with a lock", count: map[string]int{}}
	for i := range 3 {
		all.Go(func() { lead(busy, limit, p, led, i) })
		all.Go(func() { p.lock(busy, limit, locked, fmt.Sprint(i)) })
	}
	const leastKills, leastLeaders = 2, 2
	kills := p.cell.KillMastersFor(limit, time.Second, 8*time.Second, leastKills)
	for limit.Err() == nil && (led.workers() < leastLeaders || locked.workers() == 0) { // a slow machine needs longer
		<-time.After(50 * time.Millisecond)
	}
	stop()
	all.Wait()
	t.Logf("%d masters were killed; runs of leaders: %v; with locks: %v", kills, led.count, locked.count)
	if kills < leastKills || led.workers() < leastLeaders || locked.workers() == 0 {
		t.Error("that is too little")
	}
}

// lead runs one scheduler after the other; each that has led for a while is shut down while it works.
func lead(busy, ctx context.Context, p *trial, led *exclusive, number int) {
	k := p.keeper(ctx)
	for life := 0; busy.Err() == nil; life++ {
		who := fmt.Sprintf("%d.%d", number, life)
		e, err := chubbycron.NewElector(k, chubbycron.ElectorConfig{Path: leaderPath})
		if err != nil {
			p.Error(err)
			return
		}
		s, err := gocron.NewScheduler(e.Options()...)
		if err != nil {
			p.Error(err)
			return
		}
		var runs atomic.Int64
		enough := make(chan struct{})
		if _, err := s.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() {
			if runs.Add(1) == 3 {
				close(enough) // so that the elector is closed in the middle of the work
			}
			led.work(context.Background(), who, 150*time.Millisecond)
		}), gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
			p.Error(err)
			return
		}
		s.Start()
		select {
		case <-enough:
		case <-busy.Done():
		}
		closed := make(chan error, 1)
		go func() { closed <- e.Close(ctx) }() // before the scheduler is shut down: it awaits the work all the same
		wants(p, "Shutdown", s.Shutdown(), api.OK)
		wants(p, "Close", <-closed, api.OK)
	}
}

func (p *trial) lock(busy, ctx context.Context, locked *exclusive, who string) {
	k, err := chubbycron.NewLocker(p.keeper(ctx), chubbycron.LockerConfig{Path: locksPath, AtLeast: 400 * time.Millisecond})
	if err != nil {
		p.Error(err)
		return
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(k))
	if err != nil {
		p.Error(err)
		return
	}
	if _, err := s.NewJob(gocron.DurationJob(200*time.Millisecond), gocron.NewTask(k.Task(func(ctx context.Context) error {
		locked.work(ctx, who, 300*time.Millisecond)
		return nil
	})), gocron.WithName("job")); err != nil {
		p.Error(err)
		return
	}
	s.Start()
	<-busy.Done()
	wants(p, "Shutdown", s.Shutdown(), api.OK)
	wants(p, "Close", k.Close(ctx), api.OK)
}
