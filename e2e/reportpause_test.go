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

// watch looks again and again, at the file or at the lock. It notes a look whose result is not that of
// the look before, with the look before; and a look that took long, or came long after the one
// before, as the first after a stop does.
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
