package recipes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// Limits of a Queue.
const (
	MaxItemSize    = api.MaxContents - maxItemHeader // bytes of an item's data; the rest of the file is for its record
	MaxPriority    = 9                               // priorities are from -MaxPriority to MaxPriority
	MaxDelay       = 30 * 24 * time.Hour             // of an item that is put, or given back
	MaxAttempts    = 1000                            // that QueueOptions.Attempts may allow
	MaxDeadLetters = 1000                            // of one queue: with so many, workers that would add more take nothing
)

// Queue hands out items of work, each to one worker at a time, until it is done. It is a directory: an
// item is a file, with its data, whose lock a worker holds while it works; to be done is to delete the
// file, if that lock is still held. Items of a higher priority (Priority) come first, and among those of
// one the order is that of creation: the instance numbers of files, of which the cell never uses one twice.
//
// An item whose worker dies is taken by another when lease and lock-delay are over; the first one's
// Done is refused from then on, and servers that check the item's sequencer refuse its other acts. So
// no item is lost, and none is done by two at a time, but one may be begun several times: work is to be
// such that it can be. How often it was begun is written in its file before the work begins, on the condition
// that its lock is held: so a try counts also if its worker is killed, and not if the worker says that it has not begun (Return). With
// QueueOptions.Attempts an item that was begun so often and is not done becomes a dead letter: it stays, and nobody takes it, until Retry
// or Discard.
//
// One worker at a time looks for an item, in the order in which they came; the others wait for it in the
// cell's queue (32 of one Queue; the others wait here). Who looks is told of new items and of those that
// are given up; besides, he tries each that is another's once in a lease, since strangers may wait for its
// lock (chubbyctl acquire) and give up, of which nobody is told.
//
// An item that a worker may not use, or that is no file, is passed over (QueueOptions.OnUnusable); the
// others are not held up by it.
//
// Items of v0.1.0 are taken, too, as of priority 0. Nothing is counted of them, and they do not become dead
// letters: their files hold nothing but the data, and a worker of v0.1.0 would take anything else for that. It
// sees none of the items that are put by this version.
//
// It is for some thousand items and some hundred a second: a lock service keeps little and changes it
// seldom. A message broker is something else.
type Queue struct {
	c    *client.Client
	dir  string
	o    QueueOptions
	door *hold.Turnstile
	made atomic.Bool // the file of door was there
}

// QueueOptions are those of a Queue.
type QueueOptions struct {
	// LockDelay is how long nobody may have the item of a worker that has failed, after its lease: at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; recipe.NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
	// Reason is shown to those who look who works on what; at most api.MaxReason bytes.
	Reason string
	// Attempts is how often an item is begun at most, 1 to MaxAttempts, before it is a dead letter; 0 is
	// without limit. All workers of a queue should have the same: each decides by its own, when it looks for
	// an item, and when it gives one back.
	Attempts int
	// OnUnusable is called, if it is not nil, for each item that Take has passed over because it cannot be
	// used, with the code PermissionDenied for example: once in each Take, by the goroutine that called it,
	// which waits for it. What is passed over is tried again once in a lease.
	OnUnusable func(id string, err error)
}

// PutOption qualifies Put.
type PutOption func(*putOptions)

type putOptions struct {
	priority int
	delay    time.Duration
}

// Priority has the item taken before all of a lower priority: -MaxPriority to MaxPriority, 0 without
// this option. An item that is given back keeps its priority, and its place in it.
func Priority(priority int) PutOption { return func(o *putOptions) { o.priority = priority } }

// Delay has nobody take the item for that long: 0 to MaxDelay, counted in whole seconds, and up to two more.
// The wall clocks of the masters count it: that of the master which wrote the item, and that of the one which
// serves when a worker looks. If they differ, or are set, the delay is so much shorter or longer; but a worker
// that has waited for the whole delay by its own monotonic clock takes the item whatever they say. So it is for when
// work is to be done, and nothing that must be safe may rest on it.
func Delay(delay time.Duration) PutOption { return func(o *putOptions) { o.delay = delay } }

// The files of a queue's directory begin with these.
const (
	itemPrefix = "item-" // an item of v0.1.0: its contents are the data, and nothing else
	taskPrefix = "task-" // an item: its contents are a record, and the data
	deadPrefix = "dead-" // a mark that an item is a dead letter, with the generation of the item's contents that say so
)

// NewQueue returns the queue of a directory. It asks nobody: the directory is made by the first who
// uses it, in one that is there.
func NewQueue(c *client.Client, dir string, o QueueOptions) *Queue {
	return &Queue{c: c, dir: dir, o: o, door: hold.NewTurnstile(c, dir, nil)}
}

// Put adds an item of at most MaxItemSize bytes, and returns its id. With the error Uncertain the
// item may be in the queue, under that id; to put it again may have it done twice.
func (q *Queue) Put(ctx context.Context, data []byte, options ...PutOption) (id string, err error) {
	var o putOptions
	for _, option := range options {
		option(&o)
	}
	switch {
	case o.priority < -MaxPriority || o.priority > MaxPriority:
		return "", q.fault("put", api.InvalidArgument, "a priority of %d; want %d to %d", o.priority, -MaxPriority, MaxPriority)
	case o.delay < 0 || o.delay > MaxDelay:
		return "", q.fault("put", api.InvalidArgument, "a delay of %v; want 0 to %v", o.delay, MaxDelay)
	case len(data) > MaxItemSize:
		return "", q.fault("put", api.TooLarge, "the item has %d bytes; a queue takes at most %d, so store a pointer to where the data is", len(data), MaxItemSize)
	}
	id = fmt.Sprintf("p%d.%s", o.priority, rand.Text())
	if err := q.ensureDoor(ctx); err != nil && !hold.Unusable(err) { // who may not open it may put
		return id, err
	}
	contents := itemRecord{Delay: seconds(o.delay)}.with(data)
	h, err := hold.OpenIn(ctx, q.c, q.dir, taskPrefix+id, client.OpenOptions{Write: true, Create: client.NewFile, Contents: contents})
	if err != nil {
		return id, err
	}
	hold.Leave(ctx, h)
	return id, nil
}

// ensureDoor creates the file of the turnstile if it is absent, once: so there is room for it, also if an item takes all that a quota
// leaves.
func (q *Queue) ensureDoor(ctx context.Context) error {
	if q.made.Load() {
		return nil
	}
	h, err := q.door.Open(ctx)
	if err != nil {
		return err
	}
	hold.Leave(ctx, h)
	q.made.Store(true)
	return nil
}

// seconds returns a delay as it is kept: rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// fault is an error of a call that was wrong, or came too early.
func (q *Queue) fault(op string, code api.Code, format string, args ...any) error {
	return &api.Error{Code: code, Op: op, Path: q.dir, Message: fmt.Sprintf(format, args...)}
}

// Len returns how many items there are, those that are worked on too, and without dead letters.
func (q *Queue) Len(ctx context.Context) (int, error) {
	list, err := q.listing(ctx)
	return len(list.live), err
}

// listing lists the directory, which may be absent.
func (q *Queue) listing(ctx context.Context) (queueListing, error) {
	h, err := q.c.Open(ctx, q.dir, client.OpenOptions{Read: true})
	if errors.Is(err, api.NotFound) {
		return queueListing{}, nil
	}
	if err != nil {
		return queueListing{}, err
	}
	defer hold.Leave(ctx, h)
	return listQueue(ctx, h)
}

// queueListing is what a queue's directory holds.
type queueListing struct {
	live  []api.Stat // the items, in the order in which they are taken
	dead  []api.Stat // the dead letters that are marked, the oldest first
	stale []api.Stat // marks of what is no dead letter any more
}

// listQueue lists an open directory. A mark holds for one generation of the item's contents, which never comes
// again, so it is true whenever it is written: an item that has been written since is none. What was
// deleted or written between two pages of the listing may be taken for live, or for stale, which costs a look.
func listQueue(ctx context.Context, dir *client.Handle) (list queueListing, err error) {
	all, err := dir.ReadDir(ctx)
	if err != nil {
		return queueListing{}, err
	}
	marks := map[string]api.Stat{} // by what they are called, without the prefix
	for _, one := range all {
		if name, is := strings.CutPrefix(one.Path.Base(), deadPrefix); is && one.Kind == api.File {
			marks[name] = one
		}
	}
	for _, one := range all {
		if one.Kind != api.File || !isItem(one) {
			continue
		}
		if mark, is := markOf(one, marks); is {
			delete(marks, mark)
			list.dead = append(list.dead, one)
			continue
		}
		list.live = append(list.live, one)
	}
	for _, mark := range marks {
		list.stale = append(list.stale, mark)
	}
	slices.SortFunc(list.live, func(a, b api.Stat) int {
		return cmp.Or(cmp.Compare(priorityOf(itemID(b)), priorityOf(itemID(a))), cmp.Compare(a.Instance, b.Instance))
	})
	slices.SortFunc(list.dead, func(a, b api.Stat) int { return cmp.Compare(a.Instance, b.Instance) })
	return list, nil
}

// markOf returns the mark that says of an item that it is a dead letter. Of one that may not be read the generation of its contents is not
// told: a mark of any counts.
func markOf(item api.Stat, marks map[string]api.Stat) (name string, is bool) {
	if item.Withheld {
		for name := range marks {
			if strings.HasSuffix(name, markName(itemID(item), 0)[1:]) {
				return name, true
			}
		}
		return "", false
	}
	name = markName(itemID(item), item.Content)
	_, is = marks[name]
	return name, is
}

// isItem reports whether a file is called as items are.
func isItem(s api.Stat) bool { return strings.HasPrefix(s.Path.Base(), itemPrefix) || isTask(s) }

// isTask reports whether an item has a record; one of v0.1.0 has none.
func isTask(s api.Stat) bool { return strings.HasPrefix(s.Path.Base(), taskPrefix) }

// itemID returns the id of an item's file. Both prefixes are equally long.
func itemID(s api.Stat) string { return s.Path.Base()[len(itemPrefix):] }

// priorityOf returns the priority in an id; 0 of one that has none.
func priorityOf(id string) int {
	text, _, _ := strings.Cut(strings.TrimPrefix(id, "p"), ".")
	n, err := strconv.Atoi(text)
	if err != nil || n < -MaxPriority || n > MaxPriority {
		return 0
	}
	return n
}

// markName returns the name of the mark of a dead letter, without its prefix.
func markName(id string, content api.Generation) string { return fmt.Sprintf("%d.%s", content, id) }

// markDead marks an item, whose contents of that generation say that it is a dead letter, so that who looks for
// items passes it over without opening it. If it cannot, who looks next does.
func markDead(ctx context.Context, c *client.Client, dir, id string, content api.Generation) {
	ctx, cancel := context.WithTimeout(ctx, hold.LeaveTime)
	defer cancel()
	h, err := c.Open(ctx, dir+"/"+deadPrefix+markName(id, content), client.OpenOptions{Write: true, Create: client.File})
	if err == nil {
		hold.Leave(ctx, h)
	}
}

// removeMarks removes marks that are not true any more. What remains is removed by who looks next.
func removeMarks(ctx context.Context, c *client.Client, paths ...string) {
	ctx, cancel := context.WithTimeout(ctx, hold.LeaveTime)
	defer cancel()
	for _, path := range paths {
		h, err := c.Open(ctx, path, client.OpenOptions{Write: true, Kind: api.File})
		if err != nil {
			continue
		}
		_ = h.Delete(ctx)
		hold.Leave(ctx, h)
	}
}
