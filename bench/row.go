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
	// once measures the row on a running system.
	once func(ctx context.Context, o options, s system) (sample, error)
	// kills says that the row needs a system of its own, whose leaders it kills.
	kills bool
}

func (r row) String() string { return fmt.Sprintf("%s, %d", r.name, r.clients) }

// plan says how long the row is measured.
func (r row) plan(o options, s system) plan {
	if r.limit > 0 {
		return plan{measure: maxAcquisitionTime, limit: r.limit, used: meter(s)}
	}
	return plan{warm: o.warm, measure: o.measure, used: meter(s)}
}

// maxAcquisitionTime bounds a row that has a limit.
const maxAcquisitionTime = 30 * time.Second

// rows is the table, in order.
func rows(o options) []row {
	take := func(l lock) func(worker) operation {
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
	write := func(w worker) operation { return plain(w.Write) }
	read := func(w worker) operation { return plain(w.Read) }
	cached := func(w worker) operation {
		if c, ok := w.(cacher); ok {
			return plain(c.ReadCached)
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
		{name: acquisitions, clients: 1, op: take(shared), limit: o.acquisitions},
		{name: acquisitions, clients: 3, op: take(shared), limit: o.acquisitions},
		{name: acquisitions, clients: 5, op: take(shared), limit: o.acquisitions},
		{name: watchersTold, clients: o.watchers, once: measureWatchers},
		{name: failover, clients: failoverClients, once: measureFailover, kills: true},
	}
	var chosen []row
	for _, r := range all {
		if strings.Contains(r.String(), o.rows) && (r.clients > 0) && !(r.kills && o.kills == 0) && !(r.name == acquisitions && r.limit == 0) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// The rows that the page does not show as it does the others.
const (
	oneLock      = "one lock"
	readCached   = "read, cached"
	acquisitions = "acquisitions"
	watchersTold = "all watchers told"
	failover     = "longest gap at kill -9"
)

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
