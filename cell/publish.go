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

// Bounds of publishing.
const (
	lookEvery      = time.Second      // at the replicas, for a change
	republishEvery = 5 * time.Minute  // also without: two masters may have published one after the other, or a person has changed something
	maxPublish     = 30 * time.Second // one attempt
	minRepublish   = 5 * time.Second  // after the first failure; doubled up to republishEvery
)

// publisher publishes the replicas of a cell while this replica is the master. One goroutine uses it.
type publisher struct {
	publish  func(context.Context, Publication) error
	last     Publication     // that was published
	next     session.Instant // when it is published again
	failures int             // in succession
}

// publishReplicas has clients find by name the replicas that the cell has now (Chubby §2.2: the DNS tables are updated). No
// safety rests on it: clients that find replicas of before are told where the master is, or ask another.
func (r *Replica) publishReplicas(ctx context.Context) {
	if r.cfg.Publish == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	fresh := publisher{publish: r.cfg.Publish}
	p := fresh
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.master.Load() == nil {
			//mutant: _ = fresh //by TestPublish of ./cell
			p = fresh
			r.publishing.Store(0)
			continue
		}
		r.publishOnce(ctx, &p)
	}
}

// publishOnce publishes, if it is time.
func (r *Replica) publishOnce(ctx context.Context, p *publisher) {
	what, now := r.publication(), r.clock()
	changed := !p.last.equal(what)
	if len(what.Replicas) == 0 || now < p.next && (p.failures > 0 || !changed) {
		return
	}
	bound, cancel := context.WithTimeout(ctx, maxPublish)
	defer cancel()
	if err := p.publish(bound, what); err != nil {
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

// publication is what is to be published now.
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
