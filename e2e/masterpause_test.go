package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
)

// A master is stopped for a while under load, and continued long after another was elected. It does
// no harm: no client reads an old value, with a cache or without; it grants no lock; no session is
// lost (decisions 5 and 12).
func TestMasterPaused(t *testing.T) {
	besideOthers(t)
	times, pause := 1, 3*time.Second
	if *full {
		times, pause = 20, 20*time.Second // longer than the leases that the master had granted
	}
	if *pauses > 0 {
		times = *pauses
	}
	w := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(times)*(pause+patience(time.Minute)))
	defer cancel()
	s := w.newShelf(ctx, "/ls/local/shelf", 8, client.Config{})
	all := []*client.Client{s.author}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for i := range 8 {
		c := w.client(client.Config{NoCache: i%2 == 1})
		all = append(all, c)
		busy.Go(func() { s.newReader(c, i).run(ctx, 10*time.Millisecond, stop) })
	}
	busy.Go(func() { s.write(ctx, 20*time.Millisecond, stop) })
	var door witness
	for range 4 {
		c := w.client(client.Config{})
		all = append(all, c)
		h := w.handle(ctx, c, "/ls/local/contended")
		busy.Go(func() { door.contend(ctx, t, h, stop) })
	}
	other := w.handle(ctx, w.client(client.Config{NoCache: true}), "/ls/local/file")
	for range times {
		w.pauseMaster(ctx, other, s, &door, pause)
	}
	close(stop)
	busy.Wait()
	t.Logf("%d pauses of %v: %s; %d locks granted, the last with token %d",
		times, pause, s.verdict(t), door.grants.Load(), door.last.Load())
	if s.judged.Load() == 0 || door.grants.Load() == 0 {
		t.Error("that is too little to have shown anything")
	}
	if n := door.overlaps.Load(); n > 0 {
		t.Errorf("%d times two held the lock, or a token did not grow", n)
	}
	intact(t, all...)
}

// pauseMaster stops the master for at least that long, and until the next one has acknowledged a write
// and granted both locks, so that the first one could do something wrong. Some calls wait in its
// sockets when it is continued.
func (w *world) pauseMaster(ctx context.Context, other *client.Handle, s *shelf, door *witness, pause time.Duration) {
	t := w.t
	t.Helper()
	old := w.replicas()[w.status().Master]
	z := newZombie(t, ctx, old.Client)
	processes.Halt(t, old.PID)
	going := sync.OnceFunc(func() { _ = syscall.Kill(old.PID, syscall.SIGCONT) })
	defer going()
	stopped := time.Now()
	held, err := other.Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	locked := time.Since(stopped)
	if !comesTo(ctx, &s.writes, 2) || !comesTo(ctx, &door.grants, 8) { // one of each may have been on its way
		t.Fatalf("no other master took over, or what was under way has ended: %s; %d locks granted", s.verdict(t), door.grants.Load())
	}
	usable := time.Since(stopped)
	granted := make(chan *pb.Granted, 1)
	go func() {
		reply, _ := z.chubby.TryAcquire(ctx, &pb.TryAcquireRequest{
			Caller: z.caller, Mutation: &pb.Mutation{Number: 2, HighestIssued: 2, Outstanding: []uint64{2}}, Handle: z.handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE,
		})
		granted <- reply.GetGranted()
	}()
	time.Sleep(max(pause-usable, 300*time.Millisecond)) // the least is for the call to reach its socket
	going()
	if g := <-granted; g != nil {
		t.Errorf("a deposed master granted a lock that another holds with token %d: %v", held.Token(), g)
	}
	if err := held.Err(); err != nil {
		t.Errorf("the lock was lost: %v", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	w.waitHealthy(5)
	t.Logf("stopped for %v; a lock was granted after %v, and writes of what others cache went on after %v",
		time.Since(stopped).Round(time.Millisecond), locked.Round(time.Millisecond), usable.Round(time.Millisecond))
}

// comesTo waits until a counter has grown by that much.
func comesTo(ctx context.Context, count *atomic.Int64, more int64) bool {
	for end := count.Load() + more; count.Load() < end; time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// witness gets a report from the holders of one lock when they enter and leave, with their tokens.
type witness struct {
	inside, last, grants, overlaps atomic.Int64
}

// contend takes the lock again and again until stop is closed.
func (d *witness) contend(ctx context.Context, t *testing.T, h *client.Handle, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		l, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Error(err)
			return
		}
		if d.inside.Add(1) != 1 {
			d.overlaps.Add(1)
		}
		if token := int64(l.Token()); token <= d.last.Swap(token) {
			d.overlaps.Add(1)
		}
		d.grants.Add(1)
		time.Sleep(time.Millisecond) // so that another holder would be seen
		d.inside.Add(-1)
		if err := l.Release(ctx); err != nil {
			t.Error(fmt.Errorf("token %d: %w", l.Token(), err))
			return
		}
	}
}
