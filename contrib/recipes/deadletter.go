package recipes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// QueuedItem is an item of a Queue, or a dead letter, for who looks.
type QueuedItem struct {
	ID       string
	Path     string // of its file
	Priority int
	Size     int           // bytes of its data
	Attempts int           // how often it was begun; 0 of an item of v0.1.0, whatever was
	Delay    time.Duration // that nobody takes it after ModifiedUnix, when it was put or given back
	Reason   string        // why the last try that failed did; of a try that did not say how it ended it is not known yet
	Dead     bool          // it is a dead letter
	Holders  []api.Holder  // who works on it; none if nobody does, or their names may not be read
	Err      error         // why it could not be read; what is in it is not known then. nil for the others

	// ModifiedUnix is when it was put, begun or given back last, by the wall clock of the master at that time, in
	// seconds since 1970; 0 if that is not known.
	ModifiedUnix int64
}

// readers is how many items List reads at a time.
const readers = 16

// List returns the items of the queue in the order in which they are taken, those that are worked on or delayed too,
// and without dead letters. What is put or taken meanwhile may be there or not. It costs three calls, and three for
// each item. A queue that there is not has none.
func (q *Queue) List(ctx context.Context) ([]QueuedItem, error) {
	list, err := q.listing(ctx)
	if err != nil {
		return nil, hold.Ended(ctx, err, "list the items", q.dir)
	}
	all, err := q.readAll(ctx, list.live)
	if err != nil {
		return nil, hold.Ended(ctx, err, "list the items", q.dir)
	}
	all = slices.DeleteFunc(all, func(one QueuedItem) bool { return one.Dead })
	if len(all) == 0 {
		return nil, nil
	}
	locks, err := q.c.Cell().Locks(ctx, q.dir)
	if err != nil {
		return nil, hold.Ended(ctx, err, "list the items", q.dir)
	}
	holders := map[string][]api.Holder{}
	for _, l := range locks {
		holders[l.Path] = l.Holders
	}
	for i, one := range all {
		all[i].Holders = holders[one.Path]
	}
	return all, nil
}

// DeadLetters returns the items that were begun QueueOptions.Attempts times and not done, the oldest first. It costs
// three calls, and three for each dead letter and each item that was begun before. A queue that there is not has none.
func (q *Queue) DeadLetters(ctx context.Context) ([]QueuedItem, error) {
	list, err := q.listing(ctx)
	if err != nil {
		return nil, hold.Ended(ctx, err, "list the dead letters", q.dir)
	}
	// One that is not marked, because its worker died in the moment, has been written since it was put.
	begun := slices.DeleteFunc(list.live, func(s api.Stat) bool { return !isTask(s) || s.Content == s.Instance })
	candidates := append(list.dead, begun...)
	slices.SortFunc(candidates, func(a, b api.Stat) int { return cmp.Compare(a.Instance, b.Instance) })
	all, err := q.readAll(ctx, candidates)
	if err != nil {
		return nil, hold.Ended(ctx, err, "list the dead letters", q.dir)
	}
	for i, one := range all { // what may not be read is known by its mark
		isMarked := slices.ContainsFunc(list.dead, func(s api.Stat) bool { return itemID(s) == one.ID })
		all[i].Dead = one.Dead || one.Err != nil && isMarked
	}
	return slices.DeleteFunc(all, func(one QueuedItem) bool { return !one.Dead }), nil
}

// readAll reads items, some at a time. Those that are gone are left out.
func (q *Queue) readAll(ctx context.Context, list []api.Stat) ([]QueuedItem, error) {
	all := make([]QueuedItem, len(list))
	places := make(chan struct{}, readers)
	var reading sync.WaitGroup
	for i, s := range list {
		places <- struct{}{}
		reading.Go(func() {
			all[i] = q.readOne(ctx, s)
			<-places
		})
	}
	reading.Wait()
	for _, one := range all {
		if one.Err != nil && !hold.Unusable(one.Err) && api.CodeOf(one.Err) != api.InvalidArgument {
			return nil, one.Err
		}
	}
	return slices.DeleteFunc(all, func(one QueuedItem) bool { return hold.Gone(one.Err) || errors.Is(one.Err, api.Exists) }), nil
}

// readOne reads an item, or says why it cannot.
func (q *Queue) readOne(ctx context.Context, s api.Stat) QueuedItem {
	one := QueuedItem{ID: itemID(s), Path: s.Path.String(), Priority: priorityOf(itemID(s)), Size: s.Size, ModifiedUnix: s.ModifiedUnix}
	if !isTask(s) {
		return one
	}
	h, err := q.c.Open(ctx, one.Path, client.OpenOptions{Read: true, Kind: api.File})
	if err != nil {
		one.Err = err
		return one
	}
	defer hold.Leave(ctx, h)
	r, data, stat, err := readItemFile(ctx, h)
	if err != nil {
		one.Err = err
		return one
	}
	one.Size, one.Attempts, one.Delay, one.Dead, one.ModifiedUnix = len(data), r.Attempts, time.Duration(r.Delay)*time.Second, r.Dead, stat.ModifiedUnix
	if !r.Begun {
		one.Reason = r.Reason
	}
	return one
}

// readItemFile reads an item that has a record.
func readItemFile(ctx context.Context, h *client.Handle) (itemRecord, []byte, api.Stat, error) {
	contents, stat, err := h.Contents(ctx)
	if err != nil {
		return itemRecord{}, nil, stat, err
	}
	r, data, err := parseItem(h.Path(), contents)
	return r, data, stat, err
}

// Retry makes a dead letter an item again, in its old place, of which nothing is counted. NotFound says that there is
// no dead letter of that id. With the error Uncertain it may be an item again.
func (q *Queue) Retry(ctx context.Context, id string) error {
	err := q.onDeadLetter(ctx, "retry", id, func(h *client.Handle, l *client.Lock, data []byte, was api.Stat) error {
		_, err := itemRecord{}.write(ctx, h, l, data, was.Content)
		return err
	})
	return hold.Ended(ctx, err, "retry", q.dir)
}

// Discard deletes a dead letter. NotFound says that there is none of that id. With the error Uncertain it may be
// deleted.
func (q *Queue) Discard(ctx context.Context, id string) error {
	err := q.onDeadLetter(ctx, "discard", id, func(h *client.Handle, l *client.Lock, _ []byte, _ api.Stat) error {
		return h.Delete(ctx, client.IfSequencer(l.Sequencer()))
	})
	return hold.Ended(ctx, err, "discard", q.dir)
}

// onDeadLetter does something with a dead letter, whose lock is held meanwhile, so that nobody else does.
func (q *Queue) onDeadLetter(ctx context.Context, op, id string, act func(h *client.Handle, l *client.Lock, data []byte, was api.Stat) error) error {
	if id == "" || strings.Contains(id, "/") || !strings.HasPrefix(id, "p") { // as those of v0.1.0, which never die
		return q.fault(op, api.NotFound, "there is no dead letter %q", id)
	}
	path := q.dir + "/" + taskPrefix + id
	h, err := q.c.Open(ctx, path, client.OpenOptions{Read: true, Write: true, Kind: api.File})
	if errors.Is(err, api.NotFound) {
		return q.fault(op, api.NotFound, "there is no dead letter %q", id)
	}
	if err != nil {
		return err
	}
	defer hold.Leave(ctx, h)
	isDead := func() ([]byte, api.Stat, error) {
		r, data, stat, err := readItemFile(ctx, h)
		if err == nil && !r.Dead {
			err = q.fault(op, api.NotFound, "item %s is no dead letter: it is in the queue, and was begun %d times", id, r.Attempts)
		}
		return data, stat, err
	}
	if _, _, err := isDead(); err != nil {
		return err // without a wait for who works on it
	}
	l, err := h.Acquire(ctx, api.Exclusive, client.Reason(op))
	if err != nil {
		return err
	}
	defer hold.GiveUp(ctx, l)
	data, was, err := isDead()
	if err != nil {
		return err
	}
	if err := act(h, l, data, was); err != nil {
		return err
	}
	removeMarks(ctx, q.c, q.dir+"/"+deadPrefix+markName(id, was.Content))
	return nil
}
