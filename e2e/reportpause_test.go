package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// reporter is a client that keeps a file in its cache and holds a lock, and
// prints what it sees of both: it is there to be stopped.
type reporter struct {
	file, lock *client.Handle
	held       *client.Lock
	client     *client.Client
	haste      atomic.Bool // look without a pause

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// reportPause is a child's task. It looks every millisecond, and as the first
// thing when it goes on after a stop. From SIGUSR1 until then it looks without a
// pause, and on one processor: a stop in the midst of that is followed by the
// next look, before the client can have noticed that a timer is late.
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

// print prints a note; what cannot be printed is missed by the test.
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

// believe says whether the lock may be relied on.
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

// watchLease tells of every time the lease was extended.
func (r *reporter) watchLease(ctx context.Context) {
	for last := time.Duration(0); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		now, left := machineNow(), r.client.Left()
		if left > last {
			r.print(note{What: "lease", Began: now, Left: left, Sure: r.held.ExclusiveUntil()})
		}
		last = left
	}
}

// watch looks again and again, at the file or at the lock. It reports a look that
// brings something else than the look before, and that one as well; and a look that
// took long, or came long after the one before, as the first after a stop does.
func (r *reporter) watch(ctx context.Context, what string) {
	const long = 50 * time.Millisecond
	look := map[string]func(context.Context) note{"read": r.read, "lock": r.believe}[what]
	var unsaid []note // printing takes longer than looking: it has to wait for a look that brings nothing
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
