package recipe

import (
	"bytes"
	"context"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Reign is one primary, or a time without one, of an election on a file.
type Reign struct {
	Vacant bool   // nobody has the lock
	Token  uint64 // of the lock (Primary.Lock), which rises from one primary to the next; when Vacant, of the last one, 0 if that is not known
	// Value is the contents of the file since its primary wrote it. It is nil when Vacant, and as long as
	// the primary has the lock and has not written: what the file says then is of the primary before.
	Value []byte
	// Sure says that Value was seen to be written in this reign. It is false where that began unseen, as
	// at the start, and the file was not written since: Value may be of the primary before, if this one
	// has not written yet.
	Sure   bool
	Holder api.Holder // who has the lock, if it still had it when that was asked for
}

// Observe ranges over the primaries of an election, and the vacancies between them: what there is at
// first, and then every change, also of the value of one primary. It needs nothing of Campaign: whoever
// has the lock of the file is the primary, and what is written to the file meanwhile is its value. A
// primary that writes after it has the lock, as Campaign does, comes as one Reign, or, if that takes it
// more than a moment, as two, the first without a Value; one that never writes stays without. A file
// that is not there is vacant, and is waited for.
//
// After a fail-over, whenever events may have been lost, and once in a lease, it looks again, and tells what has changed;
// reigns that were over by then are left out, and of a short one the value may be. Tokens never fall,
// and no Value is told under the token of another reign, but for those that are not Sure.
//
// What comes last is the error that ended it: of ctx, of the session, or an answer such as
// PermissionDenied. InvalidArgument says that the file is ephemeral: an observer, who has it open, would
// keep it for ever. Who observes is told late of what has happened: by the time it has a value, there
// may be another primary. A server that must not take requests from two checks their sequencers.
//
// It costs a call for each reign, one for each value, and three for each look.
func Observe(ctx context.Context, c *client.Client, path string) iter.Seq2[Reign, error] {
	return func(yield func(Reign, error) bool) {
		o := &observer{c: c, path: path, yield: yield}
		kinds := []api.EventKind{api.EventContentsModified, api.EventLockAcquired, api.EventLockVacant}
		for s, err := range follow(ctx, c, path, client.OpenOptions{Read: true, Kind: api.File, Events: kinds}) {
			if err == nil {
				err = o.see(ctx, s)
			}
			switch {
			case o.left:
				return
			case err != nil && !gone(err): // the next sight knows what has become of the file
				yield(Reign{}, ended(ctx, err, "observe", path))
				return
			}
		}
	}
}

// observer knows the lock and the contents of a file from the events, in their order, which tells whose
// contents they are; and from looking, which does not.
type observer struct {
	c     *client.Client
	path  string
	yield func(Reign, error) bool
	left  bool // the loop has ended

	token   uint64         // the newest
	held    bool           // it is held
	seen    bool           // its grant was seen as an event, so that all writes since are of this reign
	content api.Generation // the newest known, of
	of      api.Generation // this instance of the file
	own     api.Generation // of the contents, written in this reign; 0 if there are none
	value   []byte         // of the primary, as far as it is known
	sure    bool           // value is that of own
	holder  api.Holder

	told bool // something was
	last Reign
}

// see takes what a sight of the file tells.
func (o *observer) see(ctx context.Context, s sight) error {
	if s.Handle == nil {
		o.vacate(o.token)
		o.of = 0
		o.tell()
		return nil
	}
	if len(s.events) == 0 || s.restarted() {
		if err := o.look(ctx, s.Handle); err != nil {
			return err
		}
		o.tell()
		return nil
	}
	for _, e := range s.events {
		if o.ends(e) {
			if err := o.settle(ctx, s.Handle); err != nil || o.left {
				return err
			}
		}
		o.hear(e)
	}
	return o.settle(ctx, s.Handle)
}

// ends reports whether an event ends what is to be told first.
func (o *observer) ends(e api.Event) bool {
	switch e.Kind {
	case api.EventLockAcquired:
		return uint64(e.Generation) > o.token
	case api.EventLockVacant:
		return o.held && uint64(e.Generation) >= o.token
	}
	return false
}

// hear takes an event. It may be older than the look that the state is of.
func (o *observer) hear(e api.Event) {
	switch g := uint64(e.Generation); e.Kind {
	case api.EventLockAcquired:
		if g > o.token {
			o.vacate(g)
			o.held = true
		}
		o.seen = o.seen || o.held && g == o.token
	case api.EventLockVacant:
		if g >= o.token {
			o.vacate(g)
		}
	case api.EventContentsModified:
		if o.held && (o.seen || e.Generation > o.content) {
			o.own = max(o.own, e.Generation)
		}
		o.content = max(o.content, e.Generation)
	}
}

// vacate ends the reign that is known, and takes the token of the next, or of the vacancy.
func (o *observer) vacate(token uint64) {
	o.token, o.held, o.seen, o.own, o.value, o.sure, o.holder = token, false, false, 0, nil, false, api.Holder{}
}

// look finds out everything, without the help of events.
func (o *observer) look(ctx context.Context, h *client.Handle) error {
	for {
		before, err := o.c.Cell().Explain(ctx, o.path)
		if err != nil {
			return err
		}
		text, stat, err := h.Contents(ctx)
		if err != nil {
			return err
		}
		if stat.Ephemeral {
			return keepsAlive("observe", o.path)
		}
		after, err := o.c.Cell().Explain(ctx, o.path)
		if err != nil {
			return err
		}
		if before.Lock.Generation == after.Lock.Generation && (len(before.Lock.Holders) > 0) == (len(after.Lock.Holders) > 0) {
			o.found(after.Lock, text, stat)
			return nil
		}
	}
}

// found takes what a look has shown: contents that were there while the lock was as it says.
func (o *observer) found(lock client.LockInfo, text []byte, stat api.Stat) {
	token, held := uint64(lock.Generation), len(lock.Holders) > 0
	known := o.of == stat.Instance // what is known is of this file
	same := known && o.held && held && token == o.token
	written := !known || stat.Content > o.content
	switch {
	case !held:
		o.vacate(max(token, o.token)) // a file that was made again knows of no lock before
	case same && (written || o.own == stat.Content): // or it was about to be read
		o.wrote(stat.Content, text)
	case same:
	default:
		o.vacate(token)
		o.held, o.holder = true, lock.Holders[0]
		if written { // by this primary, or by one before that was missed
			o.value = append([]byte{}, text...)
		}
	}
	o.content, o.of = stat.Content, stat.Instance
}

// wrote takes contents that were written in this reign. They are not nil, though they be empty.
func (o *observer) wrote(generation api.Generation, text []byte) {
	o.own, o.value, o.sure = generation, append([]byte{}, text...), true
}

// settle reads what the events were about, and tells it.
func (o *observer) settle(ctx context.Context, h *client.Handle) error {
	if o.held && o.own != 0 {
		text, stat, err := h.Contents(ctx)
		if err != nil {
			return err
		}
		// Contents that are newer are perhaps of the next reign. Their event is on its way.
		if stat.Content == o.own {
			o.wrote(o.own, text)
		}
	}
	if o.held && o.holder.Session == 0 {
		x, err := o.c.Cell().Explain(ctx, o.path)
		if err != nil {
			return err
		}
		if uint64(x.Lock.Generation) == o.token && len(x.Lock.Holders) > 0 {
			o.holder = x.Lock.Holders[0]
		}
	}
	o.tell()
	return nil
}

// tell tells what is not known to the loop.
func (o *observer) tell() {
	r := Reign{Vacant: !o.held, Token: o.token, Value: bytes.Clone(o.value), Sure: o.sure, Holder: o.holder}
	if o.told && r.same(o.last) {
		return
	}
	o.told, o.last = true, r
	o.left = !o.yield(r, nil)
}

// same reports whether two reigns are the same to whom they are told.
func (r Reign) same(o Reign) bool {
	if r.Vacant || o.Vacant {
		return r.Vacant == o.Vacant
	}
	return r.Token == o.Token && r.Sure == o.Sure && (r.Value == nil) == (o.Value == nil) && bytes.Equal(r.Value, o.Value)
}
