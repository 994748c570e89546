package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
)

// room is what calls of a kind share: at most so many of all sessions of a Cell are under
// way. A replica takes 2,000 calls over one connection, and gRPC has the others wait for
// those. To its callers that wait looks like a master that does not answer: so calls wait
// here, before their time begins, and what gives back does not wait for what takes.
type room uint8

const (
	// anyRoom is for the others: waits for locks, which have places, and what each session
	// does one at a time.
	anyRoom    room = 0
	readRoom   room = 1
	changeRoom room = 2
	// giveRoom is for what gives back, and so waits for nothing else. It goes over the
	// connection of the sessions, which is always there.
	giveRoom room = 3
	// auditRoom is for the questions of audits, which go over the connection of the
	// sessions: while an audit lasts the lease may not be extended.
	auditRoom room = 4
)

// How many calls of a kind are under way.
const (
	mostReads   = 200                // if all are of the largest files, a replica has room for the replies
	mostChanges = api.MaxOutstanding // more than one session may have
	mostGives   = 128                // few beside the KeepAlives
	mostAsked   = 64                 // in audits: few beside the KeepAlives
)

// Of changes above largeRequest bytes at most maxLarge are under way. A replica closes a
// connection over which very much is sent at once, and so would have to again when all of
// it is sent again.
const (
	largeRequest = 16 << 10
	maxLarge     = 128
)

// rooms holds one element for each call of a kind that is under way.
type rooms struct{ reads, changes, large, gives, audits chan struct{} }

func newRooms() rooms {
	return rooms{
		reads: make(chan struct{}, mostReads), changes: make(chan struct{}, mostChanges), large: make(chan struct{}, maxLarge),
		gives: make(chan struct{}, mostGives), audits: make(chan struct{}, mostAsked),
	}
}

// of returns what a call has to find room in, in this order. A large one waits for
// others of its kind first, so that it takes no room from small ones meanwhile.
func (r rooms) of(k call) []chan struct{} {
	switch {
	case k.room == readRoom:
		return []chan struct{}{r.reads}
	case k.room == giveRoom:
		return []chan struct{}{r.gives}
	case k.room == auditRoom:
		return []chan struct{}{r.audits}
	case k.room == changeRoom && k.size > largeRequest:
		return []chan struct{}{r.large, r.changes}
	case k.room == changeRoom:
		return []chan struct{}{r.changes}
	}
	return nil
}

// enter takes room in each, and reports whether it had to wait. leave gives it back.
func enter(ctx context.Context, all []chan struct{}) (leave func(), waited bool, err error) {
	taken := 0
	leave = func() {
		for _, room := range all[:taken] {
			<-room
		}
	}
	for _, room := range all {
		select {
		case room <- struct{}{}:
		default:
			waited = true
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return leave, waited, contextError(ctx)
			}
		}
		taken++
	}
	return leave, waited, nil
}
