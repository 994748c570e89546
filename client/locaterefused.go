package client

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// refusedRounds measures, in one search, for how long all servers have refused the
// connection.
type refusedRounds struct {
	counting bool
	since    session.Instant // when the first of these rounds in a row ended
}

// noteFailedRound is called after each round that has found no master. It returns an
// error once all servers have refused for Config.RefusedFor. It does not count for a
// cell that has answered before: in a fail-over or a restart connections are refused
// too, for a moment.
func (r *refusedRounds) noteFailedRound(l *locator) error {
	limit := l.cfg.RefusedFor
	l.mu.Lock()
	answers, reached := l.lastAnswers, l.lastMaster != nil || l.cellName != ""
	l.mu.Unlock()
	notRefused := func(a locateAnswer) bool { return !errors.Is(a.err, syscall.ECONNREFUSED) }
	if limit == 0 || reached || len(answers) == 0 || slices.ContainsFunc(answers, notRefused) {
		r.counting = false
		return nil
	}
	now := l.cfg.Clock()
	if !r.counting {
		r.counting, r.since = true, now
	}
	if now.Sub(r.since) < limit {
		return nil
	}
	var addresses []string
	for _, a := range answers {
		addresses = append(addresses, a.address)
	}
	return refusedByAll(l.cfg.Cell, addresses, limit)
}

func refusedByAll(cell string, addresses []string, limit time.Duration) *api.Error {
	message := "no server of cell " + cell + " is running: connections are refused at " + strings.Join(addresses, ", ")
	if limit > 0 {
		message += ", for " + limit.String()
	}
	return &api.Error{Code: api.Unavailable, Message: message, Err: NothingListens}
}
