package peer

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/session"
)

// Passport is what a replica shows in every hello, and checks in others': that both are of the same cell, that
// each comes from the data directory that the cell knows under its ID, and that each holds what it is known to
// have held. All votes, appended entries and proofs of leadership use connections that begin with this check.
// So a replica that lost its data takes part in nothing, once it meets one that remembers. A replica that
// learns of its own loss stops, and says why. It is safe for concurrent use.
type Passport struct {
	me     func() identity.Replica
	onLoss func(error) // called when this replica must stop; must not block
	clock  session.Clock
	logger *slog.Logger

	holds     atomic.Pointer[func() uint64]        // returns the last index of this replica's log or snapshot
	newcomers atomic.Pointer[func(id string) bool] // whether a replica outside the roster may be a newcomer; nil: none may

	mu         sync.Mutex                 // guards the fields below
	held       map[string]uint64          // by replica ID of the roster: the index up to which it held every entry
	lastLogged map[string]session.Instant // by replica ID of the configuration: its last logged refusal
}

// refusedEvery is the time between two log lines about one refused replica.
const refusedEvery = 10 * time.Second

// NewPassport returns the passport of a replica whose data ends at last.
func NewPassport(who func() identity.Replica, last uint64, lost func(error), clock session.Clock, logger *slog.Logger) *Passport {
	p := &Passport{
		me:         who,
		onLoss:     lost,
		clock:      clock,
		logger:     logger,
		held:       map[string]uint64{},
		lastLogged: map[string]session.Instant{},
	}
	p.HoldsUpTo(func() uint64 { return last })
	return p
}

// HoldsUpTo sets the function that returns the last index of this replica's log or snapshot.
func (p *Passport) HoldsUpTo(last func() uint64) { p.holds.Store(&last) }

// MayBeNewcomer sets the function that reports whether a replica outside the roster may have been let in while
// this one was away or behind. Then the cell's id is enough: a data directory has it only if the cell has let
// it in, and no ID is used twice. Of two newcomers, the later one knows the earlier one, and checks its
// incarnation and what it holds (docs/adr/0047-the-cells-id-lets-a-newcomer-in.md).
func (p *Passport) MayBeNewcomer(may func(id string) bool) { p.newcomers.Store(&may) }

// knows returns the incarnation that a hello's sender must have, "" if it is no member.
func (p *Passport) knows(me identity.Replica, h hello) string {
	known := me.KnownIncarnation(h.from)
	//mutant: if may := p.newcomers.Load(); known == "" && may != nil && me.InCell() && !me.Roster.HasLeft(h.from) && h.cellID != "" && (*may)(h.from) && h.from == "" {
	if may := p.newcomers.Load(); known == "" && may != nil && me.InCell() && !me.Roster.HasLeft(h.from) && h.cellID != "" && (*may)(h.from) {
		return h.incarnation
	}
	return known
}

func (p *Passport) lastIndex() uint64 { return (*p.holds.Load())() }

// NoteHeld remembers that a replica held every entry up to index, all committed: none may ever be missing again.
func (p *Passport) NoteHeld(id string, index uint64) {
	if r := p.me().Roster; r == nil || r.IncarnationOf(id) == "" {
		return // this bounds the map
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[id] = max(p.held[id], index)
}

// HeldBy returns the index up to which a replica is known to have held every entry.
func (p *Passport) HeldBy(id string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[id]
}

// complete adds to a hello this replica's identity, and its memory of the receiver.
func (p *Passport) complete(h hello) hello {
	me := p.me()
	h.cellID, h.incarnation = me.CellID(), me.Incarnation
	h.held = p.HeldBy(h.to)
	h.last = p.lastIndex()
	return h
}

// checkCaller accepts or refuses an inbound hello. It refuses a caller that holds too little: it has lost
// entries, or its acknowledgement has overtaken its hello. The answer tells it which.
func (p *Passport) checkCaller(h hello) (helloVerdict, error) {
	me := p.me()
	switch known := p.knows(me, h); {
	case !me.InCell():
		return helloNoCell, api.Errorf(api.Unavailable, "replica %.64q called, and the cell has not begun here", h.from)
	case h.cellID != "" && h.cellID != me.Roster.CellID:
		return helloOtherCell, otherCell(h, me)
	case me.Roster.HasLeft(h.from):
		//mutant: return helloWrongReplica, hasLeft(h.from, me.Roster.CellID)
		return helloLeft, hasLeft(h.from, me.Roster.CellID)
	case known == "":
		return helloWrongReplica, notKnown(h.from)
	case known != h.incarnation:
		return helloAmnesia, lostData(h.from, me.ID, me.Roster.CellID)
	case h.cellID == "":
		return helloNoCell, api.Errorf(api.Unavailable, "replica %s called, and has not begun", h.from)
	case h.last < p.HeldBy(h.from):
		return helloBehind, lostEntries(h.from, h.last, me.ID, p.HeldBy(h.from))
	}
	return helloAccepted, nil
}

// checkAnswer accepts or refuses an answer to this replica's hello. The other replica wrote it after asked, so
// it cannot hold less than was then known of it.
func (p *Passport) checkAnswer(asked, h hello) error {
	me := p.me()
	known := p.knows(me, h)
	var err error
	switch {
	case !me.InCell():
		return api.Errorf(api.Unavailable, "the cell has not begun here")
	case h.cellID == "" && h.incarnation == known:
		return api.Errorf(api.Unavailable, "replica %s has not begun yet", h.from)
	case h.cellID != "" && h.cellID != me.Roster.CellID:
		err = otherCell(h, me)
	case h.cellID != "" && h.verdict == helloLeft:
		err = hasLeft(me.ID, me.Roster.CellID)
		p.onLoss(err)
	case me.Roster.HasLeft(h.from):
		err = hasLeft(h.from, me.Roster.CellID)
	case known == "":
		err = notKnown(h.from)
	case h.incarnation != known:
		err = lostData(h.from, me.ID, me.Roster.CellID)
	case h.last < asked.held:
		err = lostEntries(h.from, h.last, me.ID, asked.held)
	case h.verdict == helloAmnesia:
		err = lostData(me.ID, h.from, h.cellID)
		p.onLoss(err)
	}
	if err == nil {
		return p.checkOwnLoss(h)
	}
	p.logRefusal(h.from, err)
	return err
}

// checkOwnLoss compares this replica with another's memory of it, and stops this replica if it holds less.
func (p *Passport) checkOwnLoss(h hello) error {
	me := p.me()
	//mutant: if !me.Begun || h.cellID != me.Roster.CellID || p.knows(me, h) != h.incarnation {
	if h.to != me.ID || !me.InCell() || h.cellID != me.Roster.CellID || p.knows(me, h) != h.incarnation {
		return nil // not about this replica, or the sender cannot know
	}
	last := p.lastIndex() // read after the hello arrived: the sender's memory is older
	if h.held <= last {
		return nil
	}
	err := lostEntries(me.ID, last, h.from, h.held)
	p.onLoss(err)
	return err
}

// logRefusal logs that a replica is refused, at most once in refusedEvery.
func (p *Passport) logRefusal(id string, err error) {
	now := p.clock()
	p.mu.Lock()
	told, before := p.lastLogged[id]
	due := !before || now.Sub(told) >= refusedEvery
	if due {
		p.lastLogged[id] = now
	}
	p.mu.Unlock()
	if due {
		p.logger.Error("this replica does not talk to another one", "peer", id, "error", err)
	}
}

func notKnown(id string) error {
	return api.Errorf(api.Unavailable, "replica %.64q is not one of the cell's, as far as this replica knows. If it was added just now, this one will hear of it from the log in a moment. "+
		"If this goes on, compare with chubbyctl cell members: one that is not listed there has to be added (chubbyctl cell add), or stopped", id)
}

func otherCell(h hello, me identity.Replica) error {
	return &api.Error{Code: api.WrongCell, Message: "replica " + printable(h.from) + " is of another cell of the same name: its cell has the id " + printable(h.cellID) +
		", this one's has " + me.Roster.CellID + ". They were bootstrapped separately: check the raft addresses and the data directory there"}
}

// printable makes a stranger's text fit for a log line.
func printable(text string) string {
	if text == "" {
		return "(none)"
	}
	return strconv.QuoteToASCII(text[:min(len(text), 64)])
}

// lostData returns the error of a replica whose data directory is not the one that others know under its ID.
func lostData(id, by, cellID string) error {
	return identity.Refused("replica %s lost its data: replica %s knows another data directory under this ID, in the cell with the id %.12s. "+
		"That directory has voted and acknowledged entries that this one does not have, so this one must not vote. "+
		"If it still exists, start the replica with it. Otherwise %s", id, by, cellID, identity.LossAdvice)
}

func hasLeft(id, cellID string) error {
	return identity.Refused("replica %s was removed from the cell with the id %.12s (chubbyctl cell remove, or cell replace), and its ID is never used again there. "+
		"Its data directory is not needed any more: stop starting it", id, cellID)
}

// lostEntries returns the error of a replica whose data directory holds less than another knows it to have held.
func lostEntries(id string, last uint64, by string, held uint64) error {
	return identity.Refused("replica %s lost entries: replica %s knows that it held all entries up to %d, and its data directory ends at %d. "+
		"It was restored from an old copy, or the disk lost what it had reported as written. It must not vote: %s", id, by, held, last, identity.LossAdvice)
}
