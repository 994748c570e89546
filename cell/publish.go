package cell

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
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

// publisher publishes the cell's replicas under its name, as the master (Chubby §2.2: the DNS tables are updated).
// Safety does not depend on it: former replicas redirect clients, or clients ask another. One goroutine uses it.
type publisher struct {
	*mastership
	last     Publication     // published last
	next     session.Instant // time of the next publication
	failures atomic.Int64    // in succession; also for the metric
}

func (p *publisher) run(ctx context.Context) {
	if p.cfg.Publish == nil {
		return
	}
	for range ticks(ctx, lookEvery) {
		if p.master.Load() == nil {
			//mutant: /* nothing */ //by TestPublish of ./cell
			p.last, p.next = Publication{}, 0
			p.failures.Store(0)
			continue
		}
		p.publish(ctx)
	}
}

func (p *publisher) publish(ctx context.Context) {
	what, now, failures := p.publication(), p.clock(), p.failures.Load()
	changed := !p.last.equal(what)
	if len(what.Replicas) == 0 || now < p.next && (failures > 0 || !changed) {
		return
	}
	bound, cancel := context.WithTimeout(ctx, maxPublish)
	defer cancel()
	if err := p.cfg.Publish(bound, what); err != nil {
		if ctx.Err() != nil {
			return
		}
		pause := min(minRepublish<<min(failures, 10), republishEvery)
		//mutant: p.next = p.clock().Add(republishEvery + 0*pause) //by TestPublish of ./cell
		p.next = p.clock().Add(pause)
		p.failures.Store(failures + 1)
		p.log.Warn("clients that look for this cell by its name may not find its replicas", "event", "publish_fails", "error", err, "retry_in", pause)
		return
	}
	if changed || failures > 0 {
		p.log.Info("clients find the replicas by the cell's name", "members", len(what.Replicas))
	}
	p.last, p.next = what, p.clock().Add(republishEvery)
	p.failures.Store(0)
}

func (p *publisher) publication() Publication {
	what := Publication{Cell: p.cfg.Cell}
	for _, s := range p.servers() {
		one := Member{ID: string(s.ID), Client: p.clientAddress(string(s.ID)), Raft: string(s.Address)}
		if s.Suffrage == raft.Voter && one.Client != "" {
			what.Replicas = append(what.Replicas, one)
		}
	}
	slices.SortFunc(what.Replicas, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range p.fsm.State().Roster.Members {
		if m.Phase == raftfsm.Left {
			what.Left = append(what.Left, m.ID)
		}
	}
	return what
}
