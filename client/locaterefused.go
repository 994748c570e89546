package client

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
)

// refusedRounds measures how long, in one search, no address had a replica (see isNoReplica).
type refusedRounds struct {
	counting bool
	since    session.Instant // when the first consecutive round ended
}

// noteFailedRound is called after each round without a master. It returns an error after Config.RefusedFor,
// except for a cell that has answered before: a fail-over or a restart also refuses connections for a moment.
func (r *refusedRounds) noteFailedRound(l *locator) error {
	limit := l.cfg.RefusedFor
	l.mu.Lock()
	answers, reached := l.lastAnswers, l.lastMaster != nil || l.cellName != ""
	l.mu.Unlock()
	mayAnswer := func(a locateAnswer) bool { return !isNoReplica(a.err) }
	if limit == 0 || reached || len(answers) == 0 || slices.ContainsFunc(answers, mayAnswer) {
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
	var addresses, said []string
	refused := true
	for _, a := range answers {
		refused = refused && errors.Is(a.err, syscall.ECONNREFUSED)
		addresses, said = append(addresses, a.address), append(said, a.String())
	}
	if !refused {
		return &api.Error{Code: api.Unavailable, Err: NothingListens,
			Message: "no server of cell " + l.cfg.Cell + " is where it is looked for: " + strings.Join(said, "; ")}
	}
	return refusedByAll(l.cfg.Cell, addresses, limit)
}

// isNoReplica reports whether a failed call has shown that no replica is there now: nothing listens, the name
// service knows no such host, or an HTTP server listens.
func isNoReplica(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) && dns.IsNotFound || errors.Is(err, frames.ErrHTTP)
}

func refusedByAll(cell string, addresses []string, limit time.Duration) *api.Error {
	message := "no server of cell " + cell + " is running: connections are refused at " + strings.Join(addresses, ", ")
	if limit > 0 {
		message += ", for " + limit.String()
	}
	return &api.Error{Code: api.Unavailable, Message: message, Err: NothingListens}
}
