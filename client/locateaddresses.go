package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

type serverList struct {
	found []string // from the last look-up
	told  []string // from a replica, since the cell's replicas were changed

	cellID  string // of the cell that named them
	version uint64 // of told; 0 if some may be missing

	following bool // a question to the master is pending
}

func (s serverList) all() []string { return slices.Concat(s.found, s.told) }

// askingOrder returns the order in which to ask the servers: the last master first, as it usually still is
// the master; then the others at random, to spread the load. It includes replicas named by the cell, as all
// configured ones may be replaced.
func (s serverList) askingOrder(servers []string, last *target) []string {
	//mutant: order := slices.Sorted(slices.Values(slices.Concat(servers, s.told)))
	order := slices.Compact(slices.Sorted(slices.Values(slices.Concat(servers, s.told))))
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if last != nil {
		order = slices.DeleteFunc(order, func(s string) bool { return s == last.address })
		order = slices.Insert(order, 0, last.address)
	}
	return order
}

// maxTold limits the replicas that a cell may name beside the configured ones.
const maxTold = 15

// noteTold records the replicas of the cell. It ignores the older list of a removed or late replica. Without
// a version a list only adds.
func (s *serverList) noteTold(reply *chubbypb.LocateReply) {
	told, version := reply.GetServers(), reply.GetServersVersion()
	known := s.told
	if reply.GetCellId() != s.cellID {
		known, s.cellID, s.version = nil, reply.GetCellId(), 0
	}
	switch {
	case len(told) == 0 || version > 0 && version < s.version:
		return
	case version > 0:
		s.version = version
	default:
		told = slices.Concat(told, slices.DeleteFunc(slices.Clone(known), func(a string) bool { return slices.Contains(told, a) }))
	}
	s.told = told[:min(len(told), maxTold)]
}

// followServers asks the master for the replicas of the cell if their version differs from the known one.
// Calls may go to one master for months: by then, all replicas known to a client could be gone.
func (l *locator) followServers(ctx context.Context, t *target, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	//mutant: if l.closed || l.servers.following || version >= 0 { //by TestClientsHearOfNewReplicas of ./cell
	if l.closed || l.servers.following || version == l.servers.version {
		return
	}
	l.servers.following = true
	l.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
		defer cancel()
		l.askReplica(ctx, t.address)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.servers.following = false
	})
}

// lookup is one reading of the sources of the servers' addresses (see Servers). A locator has one at a time.
type lookup struct {
	done    chan struct{} // closed when all below is set
	servers []string
	err     error
}

// addresses returns the addresses of the replicas to ask. It reads the sources again in every round, as the
// cell may have moved. If a source fails, or a name service takes longer than hedgeDelay, the previous result
// serves, as a lease leaves little time; the late result serves the next round.
func (l *locator) addresses(ctx context.Context) ([]string, error) {
	look, known := l.startLookup()
	if look == nil {
		return nil, closedError()
	}
	var late <-chan time.Time
	if len(known) > 0 {
		late = time.After(hedgeDelay)
	}
	select {
	case <-look.done:
	case <-late:
		return known, nil
	case <-ctx.Done():
		return nil, &api.Error{Code: api.Unavailable, Message: "the servers of the cell have not been looked up yet", Err: contextError(ctx)}
	}
	if look.err != nil && len(known) > 0 {
		l.cfg.Logger.InfoContext(ctx, "the servers of the cell could not be looked up again", "cell", l.cfg.Cell, "error", look.err)
		return known, nil
	}
	return look.servers, look.err
}

// startLookup starts a look-up, unless one is running, and returns it with the last result; nil after close.
func (l *locator) startLookup() (*lookup, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := slices.Clone(l.servers.found)
	if l.closed || l.lookup != nil {
		return l.lookup, known
	}
	look := &lookup{done: make(chan struct{})}
	l.lookup = look
	l.running.Go(func() {
		ctx, cancel := context.WithTimeout(l.pool.life, l.cfg.DialTimeout)
		defer cancel()
		look.servers, look.err = l.resolve(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.lookup = nil; look.err == nil {
			l.servers.found = look.servers
		}
		close(look.done)
	})
	return look, known
}
