package cell

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// reign makes this replica master whenever Raft elects it, and ends its
// mastership whenever Raft deposes it. Raft tells through a channel that it
// blocks on, so that channel is drained here and nowhere waited with: a flap
// (lost and won again) shows as two messages, and ends one epoch and begins
// another.
func (r *Replica) reign(ctx context.Context, elected <-chan bool) {
	var end func()
	depose := func() {
		if end != nil {
			end()
			end = nil
		}
	}
	defer depose()
	for {
		select {
		case <-ctx.Done():
			return
		case leader := <-elected:
			depose()
			if leader {
				end = r.ascend(ctx)
			}
		}
	}
}

// ascend runs an epoch in the background until the function it returns has
// been called, which waits for everything of that epoch.
func (r *Replica) ascend(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.epoch(ctx)
	}()
	return func() {
		cancel(r.notMaster())
		<-done
	}
}

// epoch is one reign, from the first entry to the last goroutine (Chubby §2.9).
func (r *Replica) epoch(ctx context.Context) {
	began := r.clock()
	m, err := r.takeOver(ctx)
	if err != nil {
		r.log.Warn("elected, but could not take over", "error", err)
		return
	}
	m.start()
	r.master.Store(m)
	r.log.Info("master", "epoch", m.epoch, "sessions", m.state().Sessions.Len(), "took", r.clock().Sub(began))
	<-ctx.Done()
	r.master.Store(nil)
	m.fence.(*fence).close(context.Cause(ctx))
	m.wait()
	r.log.Info("not master any more", "epoch", m.epoch)
}

// takeOver commits the new epoch. When that entry is applied, so is everything
// that earlier masters committed, and whatever they proposed and did not commit
// never will be, or will be refused.
func (r *Replica) takeOver(ctx context.Context) (*master, error) {
	term := r.raft.CurrentTerm()
	id, secret := make([]byte, 16), make([]byte, 32)
	for _, random := range [][]byte{id, secret} {
		if _, err := rand.Read(random); err != nil {
			return nil, fmt.Errorf("draw random bytes: %w", err)
		}
	}
	entry := raftfsm.Entry{Epoch: api.Epoch(term), Wall: r.cfg.Wall(), Commands: []raftfsm.Command{{
		NewEpoch: &raftfsm.NewEpoch{Cell: r.cfg.Cell, CellID: api.CellID(hex.EncodeToString(id)), Secret: secret},
	}}}
	first := &proposer{raft: r.raft}
	results, err := first.apply(entry)
	if err != nil {
		return nil, err
	}
	if err := results[0].Answer.Err(); err != nil {
		return nil, err
	}
	state := r.fsm.State()
	if state.Cell != r.cfg.Cell {
		return nil, api.Errorf(api.WrongCell, "the data is of cell %s, and this replica is configured for cell %s", state.Cell, r.cfg.Cell)
	}
	return r.newMaster(ctx, api.Epoch(term), state), nil
}

// newMaster puts a mastership together; start sets it going.
func (r *Replica) newMaster(ctx context.Context, epoch api.Epoch, state *raftfsm.State) *master {
	m := &master{
		epoch: epoch, cell: r.cfg.Cell, cellID: state.CellID, clock: r.clock, state: r.fsm.State,
		sign: signer{secret: state.Secret}, log: r.log.With("epoch", epoch), metrics: r.metrics, ctx: ctx,
		slowClient: r.cfg.SlowClient, keepAlives: r.cfg.KeepAlives,
		fence: newFence(fenceConfig{
			term: uint64(epoch), self: r.cfg.ID, raft: r.raft, ask: r.prober.ask, clock: r.clock, hint: r.masterAddress,
		}),
	}
	m.proposer = newProposer(r.raft, epoch, r.cfg.Wall, m.observe)
	return m
}

// notMaster is the error of a replica that is not the master: it names the one
// it believes in.
func (r *Replica) notMaster() error {
	address, id := r.raft.LeaderWithID()
	if id == "" || string(id) == r.cfg.ID {
		return api.Errorf(api.Unavailable, "replica %s knows of no master that serves; an election takes about a second: try again", r.cfg.ID)
	}
	master := r.clientAddress(string(id))
	return &api.Error{
		Code: api.NotMaster, Master: master,
		Message: fmt.Sprintf("replica %s is not the master; it believes %s is, at %s (raft %s)", r.cfg.ID, id, master, address),
	}
}

// masterAddress returns where clients reach the master this replica believes in,
// "" if it knows of none.
func (r *Replica) masterAddress() string {
	_, id := r.raft.LeaderWithID()
	return r.clientAddress(string(id))
}

// clientAddress returns where clients reach a replica: as it said itself, or
// else as the configuration has it.
func (r *Replica) clientAddress(id string) string {
	if address := r.port.clientAddress(id); address != "" {
		return address
	}
	for _, m := range r.cfg.Members {
		if m.ID == id {
			return m.Client
		}
	}
	return ""
}
