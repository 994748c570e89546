package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
)

// pausedClient is a client in a process of its own, and another client that changes the file and
// takes the lock while the first one is stopped.
type pausedClient struct {
	*testing.T
	child
	w        *world
	ctx      context.Context //nolint:containedctx // of the test
	file     *client.Handle  // of the other client, as is lock
	lock     *client.Handle
	leaseEnd int64 // when the lease runs out that the child knows of
	before   int   // how many notes it had printed when it was stopped
	resumed  int64
}

// A client that was stopped for longer than its lease notices that before it uses anything: no call that begins after
// the stop is answered from its cache, and it does not rely on its lock (Chubby §2.4, §2.7, §2.8).
func TestClientPaused(t *testing.T) {
	w := start(t)
	// These measure how long a change takes, so no master dies meanwhile.
	t.Run("same-master", func(t *testing.T) {
		w.pauseClients(t, map[string]clientPause{
			"past-cache-lease": {lease: api.MaxLease, watch: "read", stop: (*pausedClient).stopSoon, trial: (*pausedClient).pastCacheLease},
			"killed":           {lease: api.MaxLease, watch: "read", stop: (*pausedClient).stopSoon, trial: (*pausedClient).killed},
		})
	})
	w.pauseClients(t, map[string]clientPause{
		"within-the-lease-of-a-new-master": {lease: 8 * time.Second, delay: api.DefaultLockDelay, watch: "read", stop: (*pausedClient).stopWell, trial: (*pausedClient).savedInTime},
		"past-lease":                       {lease: 2 * time.Second, delay: time.Second, watch: "read", stop: (*pausedClient).stopWell, trial: (*pausedClient).pastLease},
		"past-grace":                       {lease: 2 * time.Second, grace: time.Second, watch: "lock", stop: (*pausedClient).stopWell, trial: (*pausedClient).pastGrace},
	})
}

// clientPause is one trial with a client that is stopped.
type clientPause struct {
	lease, grace, delay time.Duration
	watch               string
	stop                func(*pausedClient)
	trial               func(*pausedClient, time.Duration)
}

// pauseClients makes trials at the same time.
func (w *world) pauseClients(t *testing.T, trials map[string]clientPause) {
	times := 1
	if *full {
		times = *rounds
	}
	for name, c := range trials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range times {
				ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
				p := &pausedClient{T: t, w: w, ctx: ctx}
				path := fmt.Sprintf("/ls/local/%s-%d", name, round)
				k := task{Do: "reportPause", Lease: c.lease, Grace: c.grace, LockDelay: c.delay, Files: []string{path}, Lock: path + ".lock", Watch: c.watch}
				other := w.clientFor(t, client.Config{NoCache: true})
				p.file, p.lock = w.handle(ctx, other, path), w.handle(ctx, other, k.Lock)
				must(p.file.SetContents(ctx, []byte("old")))(t)
				p.child = w.child(t, k)
				c.stop(p)
				c.trial(p, c.grace)
				cancel()
			}
		})
	}
}

// stopWell stops the child right after its lease was extended: the master has
// the next KeepAlive, and the child will not see the answer.
func (p *pausedClient) stopWell() {
	p.Helper()
	p.waitNote("ready", 0, 30*time.Second)
	lease := p.waitNote("lease", len(p.notes()), 20*time.Second)
	p.signal(syscall.SIGUSR1)
	time.Sleep(20 * time.Millisecond) // by now it looks without pauses
	processes.Halt(p.T, p.cmd.Process.Pid)
	time.Sleep(50 * time.Millisecond) // for what it has printed to arrive
	notes := p.notes()
	p.before, p.leaseEnd = len(notes), lease.Began+int64(lease.Left)
	for _, n := range notes[slices.Index(notes, lease):] {
		if n.What == "lease" {
			p.leaseEnd = n.Began + int64(n.Left)
		}
	}
}

// stopSoon stops the child while it looks, and so has used its cache lately.
func (p *pausedClient) stopSoon() {
	p.Helper()
	p.waitNote("ready", 0, 30*time.Second)
	p.signal(syscall.SIGUSR1)
	time.Sleep(20 * time.Millisecond) // by now it looks without pauses
	processes.Halt(p.T, p.cmd.Process.Pid)
	time.Sleep(50 * time.Millisecond) // for what it has printed to arrive
	p.before = len(p.notes())
}

// resume continues the child, at that instant at the earliest.
func (p *pausedClient) resume(at int64) {
	p.Helper()
	time.Sleep(time.Duration(at - machineNow()))
	p.resumed = machineNow()
	p.signal(syscall.SIGCONT)
}

// overtake changes the file and takes the lock. Both succeed when the cell has ended the child's session.
func (p *pausedClient) overtake() {
	p.Helper()
	must(p.file.SetContents(p.ctx, []byte("new")))(p)
	must(p.lock.Acquire(p.ctx, api.Exclusive))(p)
	if machineNow() < p.leaseEnd {
		p.Error("the file was changed while the child's lease ran and it had the file in its cache")
	}
}

// after returns the notes of that kind about what began after the child went on.
func (p *pausedClient) after(what string) []note {
	return slices.DeleteFunc(p.notes(), func(n note) bool { return n.What != what || n.Began < p.resumed })
}

// settle waits long enough for the child to do something wrong: until it has made its looks, and a little longer.
func (p *pausedClient) settle() {
	p.Helper()
	for _, what := range []string{"lock", "write", "read"} {
		p.waitNote(what, p.before, 20*time.Second)
	}
	time.Sleep(300 * time.Millisecond)
	if locks, reads := len(p.after("lock")), len(p.after("read")); locks == 0 || reads == 0 || locks+reads < 3 {
		p.Errorf("the child did not look when it went on: %s", &p.stdout)
	}
}

// pastLease stops the child until the cell has ended the session.
func (p *pausedClient) pastLease(time.Duration) {
	p.overtake()
	p.resume(0)
	p.settle()
	p.nothingUsed(client.LeaseNearEnd)
	states := p.after("state")
	if len(states) == 0 || states[len(states)-1].Text != "gone" || states[len(states)-1].Cause != client.EndedByCell {
		p.Errorf("states: %+v, want gone at last, ended by the cell", states)
	}
}

// change changes the file, which waits no longer than a cache lease, whatever lease the session of the
// child has (decision 23).
func (p *pausedClient) change() {
	p.Helper()
	began := time.Now()
	must(p.file.SetContents(p.ctx, []byte("new")))(p)
	took := time.Since(began)
	p.Logf("the change took %v", took)
	if took > patience(api.CacheLease+500*time.Millisecond) {
		p.Errorf("the change took %v, want a cache lease of %v at most", took, api.CacheLease)
	}
}

// pastCacheLease stops the child until a change has not waited for it any more. Its session goes on.
func (p *pausedClient) pastCacheLease(time.Duration) {
	p.change()
	p.resume(0)
	p.settle()
	for _, n := range p.after("read") {
		if n.Err != "" || n.Text != "new" {
			p.Errorf("a read that began %v after the child went on: %+v", time.Duration(n.Began-p.resumed), n)
		}
	}
}

// killed kills the child.
func (p *pausedClient) killed(time.Duration) {
	p.signal(syscall.SIGKILL)
	p.change()
}

// pastGrace stops the child until its own grace period has ended.
func (p *pausedClient) pastGrace(grace time.Duration) {
	p.overtake()
	p.resume(p.leaseEnd + int64(grace+100*time.Millisecond))
	p.settle()
	p.nothingUsed(client.GraceOver)
	for _, n := range p.after("read") {
		failIf(p, n.Cause != client.GraceOver, "a read: %+v, want that the session is gone", n)
	}
}

// nothingUsed checks that nothing worked after the child was continued, and that its lock's
// context ended soon, for that cause.
func (p *pausedClient) nothingUsed(cause client.Cause) {
	p.Helper()
	p.nothingWorks(cause)
	ends := p.after("lock's end")
	if len(ends) != 1 || ends[0].Cause != cause || time.Duration(ends[0].Began-p.resumed) > patience(time.Second) {
		p.Errorf("the end of the lock's context: %+v, want one by %v within a second of %d", ends, cause, p.resumed)
	}
}

// nothingWorks checks what the child saw after it was continued: its cache showed nothing old,
// and it neither relied on its lock nor wrote under it.
func (p *pausedClient) nothingWorks(cause client.Cause) {
	p.Helper()
	for _, n := range p.after("read") {
		if n.Err == "" && n.Text != "new" {
			p.Errorf("a read that began %v after the child went on shows %q", time.Duration(n.Began-p.resumed), n.Text)
		}
	}
	for _, n := range p.after("lock") {
		failIf(p, n.Cause != cause, "the lock: %+v, want its end by %v", n, cause)
	}
	for _, n := range p.after("write") {
		failIf(p, n.Err == "", "a write under the lock succeeded: %+v", n)
	}
}

// savedInTime stops the child past the lease that it knows of, but not past the one that began when another master took
// over meanwhile. The child is in jeopardy, then safe, and still has its lock, because of the lock-delay.
func (p *pausedClient) savedInTime(time.Duration) {
	time.Sleep(4 * time.Second) // so much longer lasts the lease that the next master grants
	p.w.kill9(p.w.replicas()[p.w.master()].PID)
	acknowledged := make(chan int64, 1)
	at := p.leaseEnd + int64(200*time.Millisecond)
	time.Sleep(time.Duration(at-machineNow()) - 100*time.Millisecond)
	go func() {
		report(p, errOf(p.file.SetContents(p.ctx, []byte("new"))))
		acknowledged <- machineNow()
	}()
	p.resume(at)
	changed := <-acknowledged
	p.settle()
	for _, n := range p.after("read") {
		if n.Err != "" || n.Began > changed && n.Text != "new" {
			p.Errorf("a read that began %v after the change was acknowledged: %+v", time.Duration(n.Began-changed), n)
		}
	}
	var states []string
	for _, n := range p.after("state") {
		states = append(states, n.Text)
	}
	failIf(p, !slices.Equal(states, []string{"jeopardy", "safe"}), "states: %v, want jeopardy, then safe", states)
	for _, n := range append(p.after("lock"), p.after("write")...) {
		failIf(p, n.Err != "", "the lock was to outlast this: %+v", n)
	}
	if ends := p.after("lock's end"); len(ends) > 0 {
		p.Errorf("the lock's context ended: %+v", ends)
	}
}
