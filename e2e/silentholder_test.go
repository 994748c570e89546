package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
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

// silentHolder is a process that holds a lock and stops communicating, and another client that waits for the lock.
type silentHolder struct {
	*pausedClient
	silence func() // from now on the holder does not communicate
	wake    func() // continues it
	runs    bool   // whether it runs while it does not communicate
	granted chan int64
	pace    *pace
}

// A holder stops communicating, in one way or another, at any moment between two KeepAlives. The next client has the
// lock within lease, lock-delay and two seconds, and not while the holder relies on it by its own clock. When the
// holder is continued, it notices the loss before it does anything (Chubby §2.4, §2.8).
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

// cutOffHolder is a holder whose network drops everything. SIGCONT has it look when the network is back.
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
	failIf(h, took > bound, "the lock passed on %v after its holder fell silent; want %v at most", took, bound)
	must(h.file.SetContents(h.ctx, []byte("new")))(h)
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

// reporter is a client that has a file in its cache and holds a lock, and prints what it sees of both.
// The tests stop it.
type reporter struct {
	file, lock *client.Handle
	held       *client.Lock
	client     *client.Client
	haste      atomic.Bool // whether to look without pauses

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// reportPause is a child's task. It looks at the file and the lock every millisecond, and at once when
// it is continued after a stop. From SIGUSR1 on it looks without pauses, and on one processor: after a
// stop the next look then comes before the client can notice that a timer is late.
func reportPause(k task, over <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runtime.GOMAXPROCS(1)
	r := &reporter{out: json.NewEncoder(os.Stdout)}
	if err := r.open(ctx, k); err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGCONT, syscall.SIGUSR1)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	looking.Go(func() { r.watchLease(ctx) })
	looking.Go(func() { r.watch(ctx, k.Watch) })
	ended := r.held.Context().Done()
	r.print(note{What: "ready"})
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGUSR1 {
				r.haste.Store(true)
				continue
			}
			r.print(r.believe(ctx))
			r.print(r.write(ctx))
			r.print(r.read(ctx))
			r.haste.Store(false)
		case <-ended:
			n := note{What: "lock's end", Began: machineNow()}
			n.blame(context.Cause(r.held.Context()))
			r.print(n)
			ended = nil
		case <-over:
			return nil
		}
	}
}

func (r *reporter) open(ctx context.Context, k task) (err error) {
	cfg := k.config()
	cfg.OnState = func(change client.StateChange) {
		n := note{What: "state", Began: machineNow(), Text: change.State.String()}
		n.blame(change.Err)
		r.print(n)
	}
	if r.client, err = client.New(ctx, cfg); err != nil {
		return err
	}
	if r.file, err = r.client.Open(ctx, k.Files[0], client.OpenOptions{Read: true}); err != nil {
		return err
	}
	if r.lock, err = r.client.Open(ctx, k.Lock, client.OpenOptions{Write: true, Create: client.File, LockDelay: k.LockDelay}); err != nil {
		return err
	}
	r.held, err = r.lock.Acquire(ctx, api.Exclusive)
	return err
}

// print prints a note. If it cannot, the test misses the note, and fails.
func (r *reporter) print(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(n)
}

// read reads the file once. Text is the contents.
func (r *reporter) read(ctx context.Context) note {
	n := note{What: "read", Began: machineNow()}
	got, _, err := r.file.Contents(ctx)
	n.Took, n.Text = time.Duration(machineNow()-n.Began), string(got)
	n.blame(err)
	return n
}

// believe notes whether the client relies on the lock.
func (r *reporter) believe(context.Context) note {
	n := note{What: "lock", Began: machineNow()}
	err := r.held.Err()
	n.Took = time.Duration(machineNow() - n.Began)
	n.blame(err)
	return n
}

// write writes under the lock.
func (r *reporter) write(ctx context.Context) note {
	n := note{What: "write", Began: machineNow()}
	_, err := r.lock.SetContents(ctx, []byte("mine"), client.IfSequencer(r.held.Sequencer()))
	n.Took = time.Duration(machineNow() - n.Began)
	n.blame(err)
	return n
}

// watchLease notes every extension of the lease.
func (r *reporter) watchLease(ctx context.Context) {
	for last := time.Duration(0); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		now, left := machineNow(), r.client.Left()
		if left > last {
			r.print(note{What: "lease", Began: now, Left: left, Sure: r.held.ExclusiveUntil()})
		}
		last = left
	}
}

// watch looks again and again, at the file or at the lock. It notes a look whose result is not that of the look before,
// with the look before; and a look that took long, or came long after the one before, as the first after a stop does.
func (r *reporter) watch(ctx context.Context, what string) {
	const long = 50 * time.Millisecond
	look := map[string]func(context.Context) note{"read": r.read, "lock": r.believe}[what]
	var unsaid []note // printing takes longer than looking, so it waits for a look without news
	for last := look(ctx); ctx.Err() == nil; {
		n := look(ctx)
		if n.Text != last.Text || n.Err != last.Err {
			unsaid = append(unsaid, last, n)
		} else if n.Took > long || time.Duration(n.Began-last.Began) > long {
			unsaid = append(unsaid, n)
		} else if len(unsaid) > 0 {
			for _, one := range unsaid {
				r.print(one)
			}
			unsaid = nil
		}
		last = n
		if !r.haste.Load() {
			time.Sleep(time.Millisecond)
		}
	}
}
