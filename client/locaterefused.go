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

// refusals counts, in one search, for how long every server has refused the
// connection.
type refusals struct {
	counting bool
	since    session.Instant // of the first of the rounds in a row
}

// count takes a round that found no master, and returns an error once all servers
// have refused for Config.RefusedFor. A cell that answered before is only in
// trouble: a fail-over or a restart refuses connections too, for a moment.
func (r *refusals) count(f *finder) error {
	limit := f.cfg.RefusedFor
	f.mu.Lock()
	said, reached := f.said, f.former != nil || f.name != ""
	f.mu.Unlock()
	answered := func(a answer) bool { return !errors.Is(a.err, syscall.ECONNREFUSED) }
	if limit == 0 || reached || len(said) == 0 || slices.ContainsFunc(said, answered) {
		r.counting = false
		return nil
	}
	now := f.cfg.Clock()
	if !r.counting {
		r.counting, r.since = true, now
	}
	if now.Sub(r.since) < limit {
		return nil
	}
	var addresses []string
	for _, a := range said {
		addresses = append(addresses, a.address)
	}
	return refusedByAll(f.cfg.Cell, addresses, limit)
}

func refusedByAll(cell string, addresses []string, limit time.Duration) *api.Error {
	message := "no server of cell " + cell + " is running: connections are refused at " + strings.Join(addresses, ", ")
	if limit > 0 {
		message += ", for " + limit.String()
	}
	return &api.Error{Code: api.Unavailable, Message: message, Err: NothingListens}
}
