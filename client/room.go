package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// room is what calls of a kind share: at most so many of all sessions of a Cell are under
// way. A replica takes 2,000 calls over one connection, and gRPC has the others wait for
// those, KeepAlives among them, in no order that favours anybody: so whatever a program
// asks for at a time, there is room for KeepAlives, and for what gives back, beside it.
type room uint8

const (
	// anyRoom is for the others: waits for locks, which have places, and what gives back.
	anyRoom    room = 0
	readRoom   room = 1
	changeRoom room = 2
)

// How many calls of a kind are under way.
const (
	mostReads   = 200                // if all are of the largest files, a replica has room for the replies
	mostChanges = api.MaxOutstanding // as many as one session may have
)

// Of changes above largeRequest bytes at most maxLarge are under way. A replica closes a
// connection over which very much is sent at once, and so would have to again when all of
// it is sent again.
const (
	largeRequest = 16 << 10
	maxLarge     = 128
)

// rooms holds one element for each call of a kind that is under way.
type rooms struct{ reads, changes, large chan struct{} }

func newRooms() rooms {
	return rooms{reads: make(chan struct{}, mostReads), changes: make(chan struct{}, mostChanges), large: make(chan struct{}, maxLarge)}
}

// of returns what a call has to find room in, in this order. A large one waits for
// others of its kind first, so that it takes no room from small ones meanwhile.
func (r rooms) of(k call) []chan struct{} {
	switch {
	case k.room == readRoom:
		return []chan struct{}{r.reads}
	case k.room == changeRoom && k.size > largeRequest:
		return []chan struct{}{r.large, r.changes}
	case k.room == changeRoom:
		return []chan struct{}{r.changes}
	}
	return nil
}

// turn is prepare, and waits until there is room for an attempt. Only then does its time
// begin, so that nobody takes the wait for silence of the master, or for an attempt that
// may have done something. leave is to be called after it, also after an error.
func (f *finder) turn(ctx context.Context, k call) (t *target, caller *chubbypb.Caller, leave func(), err error) {
	all := f.rooms.of(k)
	taken, waited := 0, false
	leave = func() {
		for _, room := range all[:taken] {
			<-room
		}
	}
	if t, caller, err = f.prepare(ctx, k); err != nil {
		return t, caller, leave, err
	}
	for _, room := range all {
		select {
		case room <- struct{}{}:
		default:
			waited = true
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return t, caller, leave, contextError(ctx)
			}
		}
		taken++
	}
	if waited { // another may be the master by now, or the session not be safe
		t, caller, err = f.prepare(ctx, k)
	}
	return t, caller, leave, err
}
