package cell

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Done is closed when the replica has stopped, by Stop or by itself.
func (r *Replica) Done() <-chan struct{} { return r.done }

// Log returns the replica's logger. It never waits for Config.Logger: it drops and counts lines that come too
// fast, and writes nothing after the replica has stopped.
func (r *Replica) Log() *slog.Logger { return r.log }

// Err returns why the replica stopped by itself (a disk failure or stall); nil after Stop or while it runs.
func (r *Replica) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Transfer hands the mastership over to the replica with that id; if it is empty, to the first found running
// with a complete log. It returns once this replica is deposed; as a rule the other wins within milliseconds.
// Sessions do not notice. Only one hand-over runs at a time. Errors: NotMaster; InvalidArgument for an unknown
// id; Unavailable if nothing was done (no answer, an incomplete log, another hand-over); Uncertain if the other
// was asked to take over and has not done so.
func (r *Replica) Transfer(ctx context.Context, to string) error { return r.handOvers.begin(ctx, to) }

// ExpireSession ends a session as if its client had been silent for a whole lease. It is for drills and tests:
// the client loses its holdings without notice. It returns when the end is committed. Errors: NotMaster,
// NotFound, and Uncertain if the replica ceased to be the master. A retry is safe, at any master.
func (r *Replica) ExpireSession(ctx context.Context, id api.SessionID) error {
	m := r.master.Load()
	if m == nil {
		return r.notMaster()
	}
	return m.Sessions.Expire(ctx, id)
}

// Stop drains and stops the replica; a master first hands over, until ctx ends at most. It returns when
// everything has ended, or an error some seconds after the end of ctx if something hangs in the disk.
func (r *Replica) Stop(ctx context.Context) error {
	go r.once.Do(func() { // left behind if it hangs: then the process has to end
		r.handOvers.beforeStop(ctx)
		r.shutdown(ctx)
		close(r.done)
	})
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.done:
		return nil
	case <-time.After(r.cfg.DiskStall + stopMargin):
	}
	return fmt.Errorf("stop replica %s: something of it does not end, most likely in the disk of %s; its process has to: %w",
		r.cfg.ID, r.cfg.Data, cmp.Or(r.Err(), context.Cause(ctx)))
}

// stopMargin is what a stop may take, beyond the limit of disk stalls, after the end of Stop's context. By then
// the watchdog has logged the reason.
const stopMargin = 3 * time.Second

// shutdown stops everything, from the clients down to the disk. The replica leaves Raft before it waits for
// clients, since no other is elected while it leads.
func (r *Replica) shutdown(ctx context.Context) {
	r.cancel(api.Errorf(api.Unavailable, "replica %s is stopping; another is elected within about a second", r.cfg.ID))
	stopped := make(chan struct{})
	r.ports.console.Close() // or the clients' server would wait for it
	go func() {
		defer close(stopped)
		r.ports.clients.GracefulStop()
	}()
	r.leave()
	select {
	case <-stopped:
	case <-ctx.Done():
		r.ports.clients.Close()
		<-stopped
	}
	if r.ports.http != nil {
		if err := r.ports.http.Close(); err != nil {
			r.log.Warn("close the http port", "error", err)
		}
	}
	r.release()
	if r.Err() == nil {
		r.noteEnd()
	}
	r.logs.close()
}

// noteEnd logs a requested end. fail logs why the replica ended by itself; Start returns why it could not
// start.
func (r *Replica) noteEnd(attrs ...slog.Attr) {
	r.log.LogAttrs(context.Background(), slog.LevelInfo, "stopped", append(attrs, slog.String("event", "replica_stopped"))...)
}

// leave ends the epoch, Raft, and all connections to other replicas. It does not wait for Raft, and is
// idempotent.
func (r *Replica) leave() {
	if r.cancel != nil {
		r.cancel(errStopped)
		r.awaitEpochsEnd()
	}
	if r.raft != nil && r.left == nil {
		r.left = r.raft.Shutdown()
	}
	if r.transport != nil {
		if err := r.transport.Close(); err != nil {
			r.log.Warn("close raft's transport", "error", err)
		}
	}
}

func (r *Replica) release() {
	r.leave()
	if r.prober != nil {
		r.prober.Close()
	}
	r.handOvers.handing <- struct{}{} // waits for the last hand-over, and prevents others
	if r.left != nil {
		if err := r.left.Error(); err != nil {
			r.log.Warn("stop raft", "error", err)
		}
	}
	r.work.Wait()
	r.audit.Close()
	if r.stores != nil {
		if err := r.stores.Close(); err != nil {
			r.log.Warn("close the stores", "error", err)
		}
	}
	for _, l := range []net.Listener{r.cfg.ClientListener, r.cfg.RaftListener, r.cfg.HTTPListener} {
		if l != nil {
			_ = l.Close() // its server has closed it, unless the replica never served
		}
	}
}

// awaitEpochsEnd waits for the end of the epoch before Raft shuts down. A stopping Raft may not answer
// proposals, for which the proposer waits. A running Raft answers, at the latest when it has stepped down and its disk
// has written what it was sent.
func (r *Replica) awaitEpochsEnd() {
	late := time.NewTimer(epochsEndLimit)
	defer late.Stop()
	select {
	case <-r.epochs.ended:
	case <-late.C: // Raft hangs, most likely in the disk
	}
}

// epochsEndLimit is longer than Raft takes to step down, and shorter than failLimit.
const epochsEndLimit = time.Second

// errStopped is why an epoch ends when its replica stops.
var errStopped = api.Errorf(api.Unavailable, "the replica is stopping")

// fail ends a replica that cannot go on. The replica falls silent at once, so that the others elect a master,
// and then stops.
func (r *Replica) fail(err error) {
	r.mu.Lock()
	first := r.err == nil
	if first {
		r.err = err
	}
	r.mu.Unlock()
	if !first {
		return
	}
	r.log.Error("the replica cannot go on", "event", "replica_failed", "error", err)
	r.silence()
	go r.once.Do(func() {
		defer close(r.done)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			gone, cancel := context.WithCancel(context.Background())
			cancel() // drain nothing
			<-r.started
			if r.ports.clients != nil { // else Start has failed, and released everything
				r.shutdown(gone)
			}
		}()
		select {
		case <-stopped:
		case <-time.After(failLimit): // something hangs in the disk
		}
	})
}

// failLimit is how long a failed replica may take to stop. After that its process has to end, as a goroutine
// may hang in the disk forever.
const failLimit = 2 * time.Second

// silence stops all messages and answers to the other replicas.
func (r *Replica) silence() {
	r.mu.Lock()
	quiet := r.quiet
	r.mu.Unlock()
	if quiet != nil {
		quiet()
	}
}
