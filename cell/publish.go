package cell

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// Limits of publishing.
const (
	lookEvery      = time.Second      // at the replicas, for a change
	republishEvery = 5 * time.Minute  // also without a change: two masters may have published one after the other, or a person changed something
	maxPublish     = 30 * time.Second // one attempt
	minRepublish   = 5 * time.Second  // after the first failure; doubled up to republishEvery
)

// publisher publishes a cell's replicas for the master. One goroutine uses it.
type publisher struct {
	last     Publication     // published last
	next     session.Instant // time of the next publication
	failures int             // in succession
}

// publishReplicas publishes the cell's replicas under its name (Chubby §2.2: the DNS tables are updated).
// Safety does not depend on it: former replicas redirect clients, or clients ask another.
func (r *Replica) publishReplicas(ctx context.Context) {
	if r.cfg.Publish == nil {
		return
	}
	var p publisher
	for range ticks(ctx, lookEvery) {
		if r.master.Load() == nil {
			//mutant: /* nothing */ //by TestPublish of ./cell
			p = publisher{}
			r.publishing.Store(0)
			continue
		}
		r.publishOnce(ctx, &p)
	}
}

func (r *Replica) publishOnce(ctx context.Context, p *publisher) {
	what, now := r.publication(), r.clock()
	changed := !p.last.equal(what)
	if len(what.Replicas) == 0 || now < p.next && (p.failures > 0 || !changed) {
		return
	}
	bound, cancel := context.WithTimeout(ctx, maxPublish)
	defer cancel()
	if err := r.cfg.Publish(bound, what); err != nil {
		if ctx.Err() != nil {
			return
		}
		pause := min(minRepublish<<min(p.failures, 10), republishEvery)
		p.failures++
		//mutant: p.next = r.clock().Add(republishEvery + 0*pause) //by TestPublish of ./cell
		p.next = r.clock().Add(pause)
		r.publishing.Store(int64(p.failures))
		r.log.Warn("clients that look for this cell by its name may not find its replicas", "event", "publish_fails", "error", err, "retry_in", pause)
		return
	}
	if changed || p.failures > 0 {
		r.log.Info("clients find the replicas by the cell's name", "members", len(what.Replicas))
	}
	p.last, p.failures, p.next = what, 0, r.clock().Add(republishEvery)
	r.publishing.Store(0)
}

func (r *Replica) publication() Publication {
	p := Publication{Cell: r.cfg.Cell}
	for _, s := range r.servers() {
		one := Member{ID: string(s.ID), Client: r.clientAddress(string(s.ID)), Raft: string(s.Address)}
		if s.Suffrage == raft.Voter && one.Client != "" {
			p.Replicas = append(p.Replicas, one)
		}
	}
	slices.SortFunc(p.Replicas, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range r.fsm.State().Roster.Members {
		if m.Phase == raftfsm.Left {
			p.Left = append(p.Left, m.ID)
		}
	}
	return p
}
