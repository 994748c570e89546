package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	name    string
	clients int
	// op returns the operation that clients repeat, nil if the worker does not have it. It is nil
	// for a row that is measured in another way.
	op func(w worker) operation
	// limit ends the row after so many operations; it is not warmed up.
	limit int64
	// rate, a second, at which operations of all clients begin, whether others have ended or not; 0 is
	// a closed loop.
	rate float64
	// once measures the row on a running system.
	once func(ctx context.Context, o options, s system) (sample, error)
	// possible is set for a row that needs a system that is started for it alone, because it changes the
	// leader or needs idle servers: whether a system has what the row measures.
	possible func(s system) bool
}

func (r row) String() string { return fmt.Sprintf("%s, %d", r.name, r.clients) }

// plan says how long the row is measured.
func (r row) plan(o options, s system) plan {
	if r.limit > 0 {
		return plan{measure: maxAcquisitionTime, limit: r.limit, used: meter(s)}
	}
	return plan{warm: o.warm, measure: o.measure, rate: r.rate, used: meter(s)}
}

// maxAcquisitionTime bounds a row that has a limit.
const maxAcquisitionTime = 30 * time.Second

// rows is the table, in order.
func rows(o options) []row {
	write := func(w worker) operation { return plain(w.Write) }
	read := func(w worker) operation { return plain(w.Read) }
	cached := func(w worker) operation {
		if c, ok := w.(cacher); ok {
			return plain(c.ReadCached)
		}
		return nil
	}
	lockCached := func(w worker) operation {
		if c, ok := w.(cacher); ok {
			return c.LockCached
		}
		return nil
	}
	writes := fmt.Sprintf("write %d B", contents)
	all := []row{
		{name: "lock+unlock", clients: 1, op: take(own)},
		{name: "lock+unlock", clients: 64, op: take(own)},
		{name: oneLock, clients: 5, op: take(shared)},
		{name: oneLock, clients: 16, op: take(shared)},
		{name: oneLock, clients: 64, op: take(shared)},
		{name: writes, clients: 1, op: write},
		{name: writes, clients: 64, op: write},
		{name: "read", clients: 1, op: read},
		{name: "read", clients: 64, op: read},
		{name: readCached, clients: 1, op: cached},
		{name: lockedCached, clients: 1, op: lockCached},
		{name: lockedCached, clients: 64, op: lockCached},
		{name: fmt.Sprintf(openLoop, 100), clients: 64, op: take(own), rate: 100},
		{name: fmt.Sprintf(openLoop, 400), clients: 64, op: take(own), rate: 400},
		{name: fmt.Sprintf(openLoop, 1600), clients: 64, op: take(own), rate: 1600},
		{name: acquisitions, clients: 1, op: take(shared), limit: o.acquisitions},
		{name: acquisitions, clients: 3, op: take(shared), limit: o.acquisitions},
		{name: acquisitions, clients: 5, op: take(shared), limit: o.acquisitions},
		{name: watchersTold, clients: o.watchers, once: measureWatchers},
		{name: idleSessions, clients: o.sessions, once: measureSessions, possible: func(s system) bool { _, ok := s.(sessionKeeper); return ok }},
		{name: handOver, clients: failoverClients, once: measureHandOver, possible: func(s system) bool { _, ok := s.(handOverer); return ok }},
		{name: failover, clients: failoverClients, once: measureFailover, possible: func(s system) bool { _, ok := s.(mortal); return ok }},
	}
	if o.processorAtMost > 0 {
		all = append(all,
			row{name: fmt.Sprintf(oneLock+setRate, 300), clients: 64, op: take(shared), rate: 300},
			row{name: fmt.Sprintf(writes+setRate, 1600), clients: 64, op: write, rate: 1600},
			row{name: fmt.Sprintf("read"+setRate, 4000), clients: 64, op: read, rate: 4000},
		)
	}
	var chosen []row
	for _, r := range all {
		left := r.clients == 0 || (r.name == failover || r.name == handOver) && o.kills == 0 || r.name == acquisitions && r.limit == 0
		left = left || o.disks && !isSurveyed(r)
		if strings.Contains(r.String(), o.rows) && !left {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// The rows that the page does not show as it does the others.
const (
	oneLock      = "one lock"
	readCached   = "read, cached"
	lockedCached = "lock+unlock, cached"
	setRate      = ", %d /s asked for"
	openLoop     = "lock+unlock" + setRate
	idleSessions = "idle sessions"
	handOver     = "longest gap at a planned hand-over"
	acquisitions = "acquisitions"
	watchersTold = "all watchers told"
	failover     = "longest gap at kill -9"
)

// take is an operation that takes a lock and releases it.
func take(l lock) func(worker) operation {
	return func(w worker) operation {
		return func(ctx context.Context, held func()) error {
			if err := w.Lock(ctx, l); err != nil {
				return err
			}
			held()
			return w.Unlock(ctx, l)
		}
	}
}

// plain is an operation that takes no lock.
func plain(do func(context.Context) error) operation {
	return func(ctx context.Context, _ func()) error { return do(ctx) }
}

// maxClients is the number of workers that the closed loops of a list of rows need.
func maxClients(list []row) int {
	most := 0
	for _, r := range list {
		if r.op != nil {
			most = max(most, r.clients)
		}
	}
	return most
}
