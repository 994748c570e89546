package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// Of the silent holders. With a lease of 8 s the promised bound is 2.7 s before the moment at which the
// lock would pass on if the master extended the lease for the parked KeepAlive of a silent client. What a
// busy machine adds to it is measured beside.
const (
	silentLease = 8 * time.Second
	silentDelay = time.Second
	silentBound = silentLease + silentDelay + 2*time.Second // design.md, decision 6
)

// silentHolder is a process that holds a lock and stops communicating, and another client that waits
// for the lock.
type silentHolder struct {
	*pausedClient
	silence func() // from now on the holder does not communicate
	wake    func() // continues it
	runs    bool   // whether it runs while it does not communicate
	granted chan int64
	pace    *pace
}

// A holder stops communicating, in one way or another, at any moment between two KeepAlives. The next
// client has the lock within lease, lock-delay and two seconds, and not while the holder relies on it
// by its own clock. When the holder is continued, it notices the loss before it does anything (Chubby
// §2.4, §2.8).
func TestSilentHolder(t *testing.T) {
	if asRoot(t) {
		return
	}
	besideOthers(t)
	times := 1
	if *full {
		times = *rounds
	}
	// A new master would begin every lease anew, and the bound with it.
	w := newWorld(t)
	w.env = []string{longestElectionTimeout}
	w.run()
	pace := w.measurePace(t)
	const phases = 4
	for round := range times {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			var drills sync.WaitGroup // t.Parallel would not run all of them at a time
			defer drills.Wait()
			for n := range phases {
				phase := session.Due(silentLease) * time.Duration(n*times+round) / time.Duration(phases*times)
				for name, made := range map[string]func(*testing.T, *world, string) *silentHolder{"stopped": stoppedHolder, "cut off": cutOffHolder} {
					drills.Go(func() {
						t.Run(fmt.Sprintf("%s %v after a KeepAlive", name, phase.Round(time.Millisecond)), func(t *testing.T) {
							h := made(t, w, fmt.Sprintf("/ls/local/%d-%d-%.3s", round, n, name))
							h.pace = pace
							h.drill(phase)
						})
					})
				}
			}
		})
	}
}

// stoppedHolder is a holder that is stopped.
func stoppedHolder(t *testing.T, w *world, path string) *silentHolder {
	t.Helper()
	h := newSilentHolder(t, w, path, (*exec.Cmd).Start)
	h.silence = func() { processes.Halt(t, h.cmd.Process.Pid) }
	h.wake = func() { h.signal(syscall.SIGCONT) }
	return h
}

// cutOffHolder is a holder whose network drops everything. SIGCONT has it look when the network is
// back.
func cutOffHolder(t *testing.T, w *world, path string) *silentHolder {
	t.Helper()
	i := newIsland(t, w)
	h := newSilentHolder(t, w, path, i.start)
	h.runs = true
	h.silence = i.cut
	h.wake = func() {
		i.heal()
		h.signal(syscall.SIGCONT)
	}
	return h
}

func newSilentHolder(t *testing.T, w *world, path string, start func(*exec.Cmd) error) *silentHolder {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
	t.Cleanup(cancel)
	k := task{Do: "reportPause", Lease: silentLease, LockDelay: silentDelay, Files: []string{path}, Lock: path + ".lock", Watch: "lock"}
	other := w.clientFor(t, client.Config{NoCache: true})
	h := &silentHolder{pausedClient: &pausedClient{T: t, w: w, ctx: ctx}, granted: make(chan int64, 1)}
	h.file, h.lock = w.handle(ctx, other, path), w.handle(ctx, other, k.Lock)
	h.child = w.childBy(t, k, start)
	h.waitNote("ready", 0, 30*time.Second)
	return h
}

// contend has the other client wait for the lock.
func (h *silentHolder) contend() {
	h.Helper()
	queued := make(chan struct{})
	once := sync.OnceFunc(func() { close(queued) })
	var waits sync.WaitGroup
	h.Cleanup(waits.Wait)
	waits.Go(func() {
		defer close(h.granted)
		_, err := h.lock.Acquire(h.ctx, api.Exclusive, client.OnQueued(func(client.Queued) { once() }))
		if err != nil {
			h.Error(err)
			return
		}
		h.granted <- machineNow()
	})
	select {
	case <-queued:
	case at := <-h.granted:
		h.Fatalf("the lock was granted at %d, while the holder had it", at)
	}
}

// drill silences the holder that long after its lease was extended.
func (h *silentHolder) drill(phase time.Duration) {
	h.Helper()
	h.contend()
	extended := h.waitNote("lease", len(h.notes()), 2*silentLease)
	time.Sleep(time.Duration(extended.Began-machineNow()) + phase)
	silent, epoch := machineNow(), h.pace.epoch()
	h.silence()
	granted, ok := <-h.granted
	if !ok {
		return
	}
	took := time.Duration(granted - silent)
	bound := silentBound + 2*h.pace.slowest(silent) // the end of the session, and the grant
	if h.pace.epoch() != epoch {
		bound += silentLease // the next master begins it anew
	}
	if took > bound {
		h.Errorf("the lock passed on %v after its holder fell silent; want %v at most", took, bound)
	}
	if _, err := h.file.SetContents(h.ctx, []byte("new")); err != nil {
		h.Fatal(err)
	}
	h.before = len(h.notes())
	h.resumed = machineNow()
	h.wake()
	if h.runs {
		for _, what := range []string{"lock", "write", "read"} {
			h.waitNote(what, h.before, 20*time.Second)
		}
		h.nothingWorks(client.LeaseNearEnd)
		if end := h.waitNote("lock's end", 0, 20*time.Second); end.Cause != client.LeaseNearEnd || end.Began > granted {
			h.Errorf("the end of the lock's context: %+v, want it by %v, before %d", end, client.LeaseNearEnd, granted)
		}
	} else {
		h.settle()
		h.nothingUsed(client.LeaseNearEnd)
	}
	spare := h.believedUntil(granted)
	h.Logf("the lock passed on %v after its holder fell silent, %v after it could be sure of it", took.Round(time.Millisecond), spare.Round(time.Millisecond))
}

// believedUntil checks that the holder did not rely on its lock after the other client got it, and
// returns how long before that it relied on it last.
func (h *silentHolder) believedUntil(granted int64) time.Duration {
	h.Helper()
	sure := int64(0)
	for _, n := range h.notes() {
		switch {
		case n.What == "lease":
			sure = max(sure, n.Began+int64(n.Sure))
		case n.What == "lock" && n.Err == "" && n.Began > granted:
			h.Errorf("%v after another had the lock, its holder found that it has it", time.Duration(n.Began-granted))
		}
	}
	if sure == 0 || sure > granted {
		h.Errorf("the lock was granted %v before the holder had ceased to be sure of it", time.Duration(sure-granted))
	}
	return time.Duration(granted - sure)
}
