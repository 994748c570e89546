package recipe

import (
	"bytes"
	"context"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// Reign is one primary of an election on a file, or a vacancy.
type Reign struct {
	Vacant bool   // no session holds the lock
	Token  uint64 // of the lock (Primary.Lock), rising from primary to primary; when Vacant, the last, 0 if unknown
	// Value is the contents of the file since its primary wrote it. It is nil when Vacant, and until the
	// primary has written: earlier contents are its predecessor's.
	Value []byte
	// Sure says that the write of Value was seen in this reign. Otherwise the reign began unseen, as at the
	// start, without a write since: Value may be the predecessor's.
	Sure   bool
	Holder api.Holder // the holder, if it still had the lock when asked
}

// Observe ranges over the primaries of an election, and the vacancies between them: the present one, then
// every change, also of a primary's value. It needs no Campaign: the holder of the file's lock is the
// primary, and contents written meanwhile are its value. A primary that takes the lock and then writes, as
// Campaign does, is one Reign, or, after more than a moment, two, the first without a Value. An absent file
// is vacant, and is waited for.
//
// After a fail-over, when events may have been lost, and once in a lease, it looks again and reports changes.
// It then omits past reigns, and perhaps a short reign's value. Tokens never fall. Only a Value that is not
// Sure can belong to another reign than its token.
//
// The last item is the final error: of ctx, of the session, or an answer such as PermissionDenied.
// InvalidArgument says that the file is ephemeral: an observer would keep it permanently. Observers learn
// late: there may be another primary by then. A server that must not take requests from two checks their
// sequencers.
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
			case err != nil && !hold.Gone(err): // the next sight knows the state of the file
				yield(Reign{}, hold.Ended(ctx, err, "observe", path))
				return
			}
		}
	}
}

// Leader returns the primary of an election, or a vacancy: the first item of Observe, for a single look.
// Holder and Value are those of one moment of the call. Value is nil until the holder has written the file
// under its lock; a Value is always Sure. Leader needs no Campaign: the holder of the lock is the primary. An
// absent file is vacant.
//
// The answer may be outdated: a server that must not obey two primaries checks their sequencers. The errors
// are of ctx, of the session, or an answer such as PermissionDenied. It costs one call if the file is in the
// session's cache, otherwise four; for repeated looks, range over Observe.
func Leader(ctx context.Context, c *client.Client, path string) (Reign, error) {
	text, stat, err := c.Get(ctx, path)
	switch {
	case hold.Gone(err):
		return Reign{Vacant: true}, nil
	case err != nil:
		return Reign{}, hold.Ended(ctx, err, "find the primary of", path)
	}
	// Contents first: a lock that is held after the read, and is older than the contents, was held when they
	// were written, as one counter gives all generations. Older contents precede the holder's first write.
	x, err := c.Cell().Explain(ctx, path)
	switch {
	case hold.Gone(err): // deleted meanwhile
		return Reign{Vacant: true}, nil
	case err != nil:
		return Reign{}, hold.Ended(ctx, err, "find the primary of", path)
	}
	r := Reign{Vacant: len(x.Lock.Holders) == 0, Token: uint64(x.Lock.Generation)}
	if r.Vacant {
		return r, nil
	}
	r.Holder = x.Lock.Holders[0]
	if stat.Content > x.Lock.Generation {
		r.Value, r.Sure = text, true
	}
	return r, nil
}

// observer knows the lock and the contents of a file from events, whose order assigns contents to reigns, and
// from looks, which do not.
type observer struct {
	c     *client.Client
	path  string
	yield func(Reign, error) bool
	left  bool // the loop has ended

	token   uint64 // the newest
	held    bool
	seen    bool           // its grant came as an event, so all later writes are of this reign
	content api.Generation // the newest known, of
	of      api.Generation // this instance of the file
	own     api.Generation // of the contents of this reign; 0 without any
	value   []byte         // of the primary, if known
	sure    bool           // value is that of own
	holder  api.Holder

	last *Reign // that was reported
}

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

// ends reports whether an event requires an earlier report first.
func (o *observer) ends(e api.Event) bool {
	switch e.Kind {
	case api.EventLockAcquired:
		return uint64(e.Generation) > o.token
	case api.EventLockVacant:
		return o.held && uint64(e.Generation) >= o.token
	}
	return false
}

// hear applies an event. It may be older than the last look.
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

// vacate ends the known reign, and takes the token of the next, or of the vacancy.
func (o *observer) vacate(token uint64) {
	o.token, o.held, o.seen, o.own, o.value, o.sure, o.holder = token, false, false, 0, nil, false, api.Holder{}
}

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

// found applies the result of a look: contents that existed while the lock was as stated.
func (o *observer) found(lock client.LockInfo, text []byte, stat api.Stat) {
	token, held := uint64(lock.Generation), len(lock.Holders) > 0
	known := o.of == stat.Instance // the state is of this file
	same := known && o.held && held && token == o.token
	written := !known || stat.Content > o.content
	switch {
	case !held:
		o.vacate(max(token, o.token)) // a recreated file knows no earlier lock
	case same && (written || o.own == stat.Content): // or it was about to be read
		o.wrote(stat.Content, text)
	case same:
	default:
		o.vacate(token)
		o.held, o.holder = true, lock.Holders[0]
		if written { // by this primary, or by a missed one before
			o.value = append([]byte{}, text...)
		}
	}
	o.content, o.of = stat.Content, stat.Instance
}

// wrote takes contents written in this reign: not nil, but perhaps empty.
func (o *observer) wrote(generation api.Generation, text []byte) {
	o.own, o.value, o.sure = generation, append([]byte{}, text...), true
}

// settle reads what the events were about, and reports it.
func (o *observer) settle(ctx context.Context, h *client.Handle) error {
	if o.held && o.own != 0 {
		text, stat, err := h.Contents(ctx)
		if err != nil {
			return err
		}
		// Newer contents are perhaps of the next reign; their event is on its way.
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

func (o *observer) tell() {
	r := Reign{Vacant: !o.held, Token: o.token, Value: bytes.Clone(o.value), Sure: o.sure, Holder: o.holder}
	if o.last != nil && r.same(*o.last) {
		return
	}
	o.last = &r
	o.left = !o.yield(r, nil)
}

func (r Reign) same(o Reign) bool {
	if r.Vacant || o.Vacant {
		return r.Vacant == o.Vacant
	}
	return r.Token == o.Token && r.Sure == o.Sure && (r.Value == nil) == (o.Value == nil) && bytes.Equal(r.Value, o.Value)
}
