package peer

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

const (
	awayLogEvery = time.Minute      // between two lines with all peers that are away
	awayLogGrace = 10 * time.Second // after the start, while others may be starting
	awayAfter    = 2 * time.Second  // a peer without an answer for so long is away
	maxAwayPeers = 64               // remembered by name
	minFruitless = 5                // fruitless elections before a line; a single one may be a split vote
	maxCause     = 300              // bytes of the reason
)

// awayPeers logs which peers cannot be reached, and why. Raft complains many times a second, even if an answer
// is only late. So a peer is away once it has not answered for awayAfter since Raft's first complaint. The log
// names it then, and all that are away once a minute. It is safe for concurrent use.
type awayPeers struct {
	logger *slog.Logger
	clock  session.Clock

	mu        sync.Mutex // guards the fields below; not held while logging
	began     bool
	since     session.Instant // Raft's first complaint
	last      session.Instant // the last such line
	peers     map[string]*awayPeer
	named     map[string]bool // peers logged then or since
	fruitless int             // elections without a result since then
}

// awayPeer is a peer that has not answered since Raft complained of it.
type awayPeer struct {
	since, last session.Instant // the first and the latest complaint
	entries     bool            // concerns entries: an answer to a heartbeat does not end it
	why         string          // the latest reason
}

func newAwayPeers(logger *slog.Logger, clock session.Clock) *awayPeers {
	return &awayPeers{logger: logger, clock: clock, peers: map[string]*awayPeer{}, named: map[string]bool{}}
}

func (a *awayPeers) note(id string, why error, entries bool) {
	now := a.clock()
	a.mu.Lock()
	p := a.peers[id]
	if p == nil && len(a.peers) < maxAwayPeers {
		p = &awayPeer{since: now}
		a.peers[id] = p
	}
	if p != nil {
		p.last, p.entries = now, p.entries || entries
		if why != nil {
			p.why = explainAway(why, entries)
		}
	}
	a.mu.Unlock()
	a.log(now)
}

// explainAway returns why a peer is away. If only entries time out, the path may drop large packets.
func explainAway(why error, entries bool) string {
	text := why.Error()
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	if entries && (errors.Is(why, os.ErrDeadlineExceeded) || strings.Contains(text, "timeout")) {
		text += " (if this replica and that one reach each other otherwise, their path may drop large packets: look at its MTU)"
	}
	return text
}

func (a *awayPeers) noteFruitless() {
	now := a.clock()
	a.mu.Lock()
	a.fruitless++
	a.mu.Unlock()
	a.log(now)
}

// answered records that a peer has answered, to a message with or without entries.
func (a *awayPeers) answered(id string, entries bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[id]; p != nil && (entries || !p.entries) {
		delete(a.peers, id)
	}
}

func (a *awayPeers) unanswering() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.peers))
}

func (a *awayPeers) log(now session.Instant) {
	if list, why, due := a.due(now); due && len(list) > 0 {
		a.logger.Warn("replicas cannot be reached", "event", "peers_away", "peers", list, "error", why)
	} else if due {
		a.logger.Warn("the replicas that can be reached elect no master", "event", "no_master")
	}
}

func (a *awayPeers) due(now session.Instant) (list []string, why string, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.began {
		a.began, a.since = true, now
		a.last = now.Add(awayLogGrace - awayLogEvery)
	}
	if now.Sub(a.since) < awayLogGrace {
		return nil, "", false
	}
	for _, id := range slices.Sorted(maps.Keys(a.peers)) {
		switch p := a.peers[id]; {
		case now.Sub(p.last) > awayLogEvery: // Raft no longer complains: it is back, or no longer a member
			delete(a.peers, id)
		case now.Sub(p.since) >= awayAfter:
			list = append(list, id)
		}
	}
	switch unnamed := slices.DeleteFunc(slices.Clone(list), func(id string) bool { return a.named[id] }); {
	case now.Sub(a.last) >= awayLogEvery && (len(list) > 0 || a.fruitless >= minFruitless):
		a.last, a.fruitless, a.named = now, 0, map[string]bool{}
	case len(unnamed) > 0:
		list = unnamed
	default:
		return nil, "", false
	}
	for _, id := range list {
		a.named[id] = true
	}
	return list, a.causes(list), true
}

// causes returns why peers are away, once if all have the same reason.
func (a *awayPeers) causes(list []string) string {
	var parts, all []string
	for _, id := range list {
		why := cmp.Or(a.peers[id].why, "it does not answer")
		parts, all = append(parts, id+": "+why), append(all, why)
	}
	if slices.Sort(all); len(slices.Compact(all)) == 1 {
		return all[0]
	}
	return strings.Join(parts, "; ")
}
