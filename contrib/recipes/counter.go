package recipes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// Counter is a number that programs add to, each addition of which counts once, also if its answer was lost: with
// the master, or with the session. It is a directory: the file value holds the number as text, which other programs
// may read; and each Counter has a file of its own in adders, its mark, which says what it has added last. An
// addition is one transaction that writes both, on the condition that neither was written meanwhile. So it is made
// once, however often it is sent; and the mark tells whether it was.
//
// It uses the session of a client.Keeper, and goes on in another when that is lost. Its methods may be called from
// several goroutines; those that change something wait for each other. It has no goroutine.
//
// The mark of a program that has ended without Close stays until other Counters find it when they make theirs, and
// that its session has ended. If that happens to a Counter that is paused in the middle of an addition for longer
// than its lease, it cannot be known any more whether that was counted: Add says so (Uncertain), and so does Settle.
//
// It is for some ten additions a second of all programs together: a lock service changes little.
type Counter struct {
	keeper *client.Keeper
	dir    string
	turn   chan struct{} // capacity 1: full while a call uses what follows

	closed    bool
	number    uint64         // of the newest addition
	unsettled bool           // that may have been made, or may still be
	unknown   bool           // of which it cannot be known any more
	mark      string         // the path of the mark; empty before it is made
	markAt    api.Generation // as it was before the newest addition
	value     int64          // as it was seen last,
	valueAt   api.Generation // at that generation; 0 if there is no such file
	seen      bool           // there was no reason to look again
}

// markRecord is what a mark says.
type markRecord struct {
	Session string // the newest session that has written it
	Number  uint64 // of the addition that was made last,
	Value   int64  // and the number after it
	Void    bool   `json:",omitempty"` // it was not made, and will not be
}

// NewCounter returns the counter of a directory. It makes no call; the directory is made by the first Add.
func NewCounter(keeper *client.Keeper, dir string) *Counter {
	return &Counter{keeper: keeper, dir: dir, turn: make(chan struct{}, 1)}
}

// Get returns the number, which is 0 before the first Add. It is the newest at some moment during the call.
func (k *Counter) Get(ctx context.Context) (n int64, err error) {
	err = k.keeper.Do(ctx, func(c *client.Client) (err error) {
		n, _, err = k.look(ctx, c)
		return err
	})
	return n, err
}

// Add adds to the number, a negative delta too, and returns what it is then. With fences, the sequencer of each has
// to be valid at that moment: so a primary that has been replaced counts nothing (BadSequencer). InvalidArgument says
// that the number would not fit into 64 bits.
//
// After any error but Uncertain nothing was added, and will not be. Uncertain says that ctx has ended before the
// answer came: Settle says what came of it. Who calls Add again instead may count twice.
func (k *Counter) Add(ctx context.Context, delta int64, fences ...sequencer.Sequencer) (n int64, err error) {
	if err := k.enter(ctx, "add"); err != nil {
		return 0, err
	}
	defer k.leave()
	if err := ctx.Err(); err != nil {
		return 0, &api.Error{Code: api.ContextCode(err), Op: "add", Path: k.dir, Err: err, Message: "nothing was added"}
	}
	if k.unsettled {
		if _, _, err := k.settle(ctx); err != nil && k.unsettled {
			return 0, k.fault("add", api.Unavailable, "nothing was added, as it is not known yet what came of the addition before: %v", err)
		}
	}
	k.number++
	k.unknown = false
	err = k.repeat(ctx, func(c *client.Client) (err error) {
		n, err = k.add(ctx, c, delta, fences)
		return err
	})
	switch {
	case err == nil:
		return n, nil
	case k.unsettled:
		return 0, &api.Error{Code: api.Uncertain, Op: "add", Path: k.dir, Err: err, Message: "it may have been counted; call Settle, which says so"}
	case errors.Is(err, api.Uncertain) && !k.unknown: // of what came before the addition
		return 0, &api.Error{Code: api.ContextCode(ctx.Err()), Op: "add", Path: k.dir, Err: ctx.Err(), Message: fmt.Sprintf("nothing was added: %v", err)}
	}
	return 0, err
}

// Settle says what came of the last Add, whose error was Uncertain: that it was counted, and what the number was
// then; or that it was not, and never will be. Uncertain is the error if that cannot be known any more; after any
// other it may be called again. If the last Add had an answer it is InvalidArgument.
func (k *Counter) Settle(ctx context.Context) (n int64, counted bool, err error) {
	if err := k.enter(ctx, "settle"); err != nil {
		return 0, false, err
	}
	defer k.leave()
	switch {
	case k.unknown:
		return 0, false, k.forgotten()
	case !k.unsettled:
		return 0, false, k.fault("settle", api.InvalidArgument, "the last addition had an answer, or was settled")
	}
	return k.settle(ctx)
}

// Close removes what the Counter has in the cell besides the number. Later calls fail with HandleClosed. If it fails,
// others remove it when the session has ended. If ctx has been cancelled, also before the call, it has
// client.CleanupTime more.
func (k *Counter) Close(ctx context.Context) error {
	if err := k.enter(ctx, "close"); err != nil {
		if errors.Is(err, api.HandleClosed) {
			return nil
		}
		return err
	}
	defer k.leave()
	k.closed = true
	if k.mark == "" {
		return nil
	}
	err := k.keeper.Do(ctx, func(c *client.Client) error {
		ctx, cancel := c.CleanupContext(ctx)
		defer cancel()
		_, err := c.Txn().Delete(k.mark).Commit(ctx)
		return err
	})
	if errors.Is(err, api.NotFound) {
		return nil
	}
	return err
}

// enter waits for the turn. A turn that is free it takes also if ctx has ended.
func (k *Counter) enter(ctx context.Context, op string) error {
	select {
	case k.turn <- struct{}{}:
	default:
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return &api.Error{Code: api.ContextCode(ctx.Err()), Op: op, Path: k.dir, Err: ctx.Err(), Message: "another call of this Counter was under way, and nothing was done"}
		}
	}
	if k.closed {
		<-k.turn
		return k.fault(op, api.HandleClosed, "the Counter is closed")
	}
	return nil
}

func (k *Counter) leave() { <-k.turn }

// repeat calls f in one session after another, until ctx ends. f may be done again, as whatever an earlier call may
// still do depends on the mark.
func (k *Counter) repeat(ctx context.Context, f func(c *client.Client) error) error {
	for {
		err := k.keeper.Do(ctx, f)
		if ctx.Err() != nil || !errors.Is(err, api.SessionExpired) {
			return err
		}
	}
}

// add makes the newest addition, unless it was made.
func (k *Counter) add(ctx context.Context, c *client.Client, delta int64, fences []sequencer.Sequencer) (int64, error) {
	for {
		if k.mark == "" {
			if err := k.makeMark(ctx, c); err != nil {
				return 0, err
			}
		}
		if !k.seen {
			var err error
			if k.value, k.valueAt, err = k.look(ctx, c); err != nil {
				return 0, err
			}
			k.seen = true
		}
		if overflows(k.value, delta) {
			if k.unsettled { // it may have been made in the session before
				if n, counted, err := k.void(ctx, c); counted || err != nil {
					return n, err
				}
			}
			now, _, err := k.look(ctx, c)
			if k.seen = false; err == nil && overflows(now, delta) {
				err = k.fault("add", api.InvalidArgument, "the number is %d; with %d it does not fit into 64 bits", now, delta)
			}
			if err != nil {
				return 0, err
			}
			continue
		}
		n := k.value + delta
		t := c.Txn().If(k.mark, client.IfGeneration(k.markAt)) // first, so that it is what a refusal names
		for _, seq := range fences {
			//mutant: _ = seq
			t.If(k.dir, client.IfSequencer(seq))
		}
		stats, err := t.Put(k.valueFile(), strconv.AppendInt(nil, n, 10), client.IfGeneration(k.valueAt)).Put(k.mark, k.record(c, n, false)).Commit(ctx)
		switch {
		case err == nil:
			k.value, k.valueAt, k.markAt, k.unsettled = n, stats[0].Content, stats[1].Content, false
			return n, nil
		case errors.Is(err, api.GenerationMismatch) && pathOf(err) == k.mark:
			n, counted, err := k.readMark(ctx, c)
			if counted || err != nil {
				return n, err
			}
		case errors.Is(err, api.GenerationMismatch):
			k.seen = false // another has added
		default:
			if errors.Is(err, api.SessionExpired) || errors.Is(err, api.Uncertain) {
				k.unsettled = true
			}
			k.seen = false
			return 0, err
		}
	}
}

// settle finds out what came of the newest addition.
func (k *Counter) settle(ctx context.Context) (n int64, counted bool, err error) {
	err = k.repeat(ctx, func(c *client.Client) (err error) {
		n, counted, err = k.void(ctx, c)
		return err
	})
	return n, counted, err
}

// void writes the mark, so that the newest addition is not made any more, unless it was made.
func (k *Counter) void(ctx context.Context, c *client.Client) (n int64, counted bool, err error) {
	stats, err := c.Txn().Put(k.mark, k.record(c, 0, true), client.IfGeneration(k.markAt)).Commit(ctx)
	if errors.Is(err, api.GenerationMismatch) {
		return k.readMark(ctx, c)
	}
	if err == nil {
		k.markAt, k.unsettled = stats[0].Content, false
	}
	return 0, false, err
}

// readMark reads the mark, which is not as it was before the newest addition: so that was made, or is not made any
// more.
func (k *Counter) readMark(ctx context.Context, c *client.Client) (n int64, counted bool, err error) {
	text, stat, err := readNow(ctx, c, k.mark)
	var r markRecord
	switch {
	case gone(err): // others have removed it, as the session had ended
		k.mark, k.unsettled, k.unknown = "", false, k.unsettled
		if !k.unknown {
			return 0, false, nil
		}
		return 0, false, k.forgotten()
	case err != nil:
		return 0, false, err
	case json.Unmarshal(text, &r) != nil:
		return 0, false, &api.Error{Code: api.Corrupt, Op: "add", Path: k.mark, Message: "the mark of this Counter was written by another program"}
	}
	k.markAt, k.unsettled, k.seen = stat.Content, false, false
	counted = r.Number == k.number && !r.Void
	if !counted {
		return 0, false, nil
	}
	return r.Value, true, nil
}

// record returns what the mark is to say.
func (k *Counter) record(c *client.Client, n int64, void bool) []byte {
	text, _ := json.Marshal(markRecord{Session: c.Session().String(), Number: k.number, Value: n, Void: void}) // it never fails
	return text
}

func (k *Counter) valueFile() string { return k.dir + "/value" }
func (k *Counter) marks() string     { return k.dir + "/adders" }

// look returns the number, and the generation of its file.
func (k *Counter) look(ctx context.Context, c *client.Client) (int64, api.Generation, error) {
	text, stat, err := readNow(ctx, c, k.valueFile())
	if gone(err) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, 0, &api.Error{Code: api.Corrupt, Op: "read", Path: k.valueFile(), Err: err, Message: "the file holds no number"}
	}
	return n, stat.Content, nil
}

// readNow reads a file that changes more often than it is read: nobody's change waits for a cache.
func readNow(ctx context.Context, c *client.Client, path string) ([]byte, api.Stat, error) {
	h, err := c.Open(ctx, path, client.OpenOptions{Read: true, Kind: api.File, NoCache: true})
	if err != nil {
		return nil, api.Stat{}, err
	}
	defer leave(ctx, h)
	return h.Contents(ctx)
}

// makeMark makes the mark, under a name that no other has, and removes those of a few Counters that have ended.
func (k *Counter) makeMark(ctx context.Context, c *client.Client) error {
	name := rand.Text()
	path := k.marks() + "/" + name
	for {
		stats, err := c.Txn().Create(path, k.record(c, 0, true)).Commit(ctx)
		if errors.Is(err, api.NotFound) {
			err = c.MkdirAll(ctx, k.marks())
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err // if it was made, others remove it
		}
		k.mark, k.markAt = path, stats[0].Content
		k.sweep(ctx, c, name)
		return nil
	}
}

// swept is how many marks a Counter looks at that makes its own.
const swept = 8

// sweep removes the marks of sessions that have ended, of the few that follow a name, as on a ring. What fails is left to
// others.
func (k *Counter) sweep(ctx context.Context, c *client.Client, name string) {
	dir, err := c.Open(ctx, k.marks(), client.OpenOptions{Read: true, Kind: api.Directory, NoCache: true})
	if err != nil {
		return
	}
	defer leave(ctx, dir)
	page, _, err := dir.ReadDirPage(ctx, name, swept)
	if err == nil && len(page) < swept { // and of those with the first names
		var first []api.Stat
		first, _, err = dir.ReadDirPage(ctx, "", swept-len(page))
		page = append(page, first...)
	}
	if err != nil {
		return
	}
	for _, one := range page {
		text, stat, err := readNow(ctx, c, one.Path.String())
		var r markRecord
		if err != nil || json.Unmarshal(text, &r) != nil {
			continue
		}
		id, err := api.ParseSessionID(r.Session)
		if err != nil {
			continue
		}
		if _, found, err := c.Cell().FindSession(ctx, id); err != nil || found {
			continue
		}
		_, _ = c.Txn().Delete(one.Path.String(), client.IfGeneration(stat.Content)).Commit(ctx) // unless its Counter has another session
	}
}

// overflows reports whether a sum does not fit into 64 bits.
func overflows(n, delta int64) bool {
	return delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta
}

// pathOf returns the path that an error is about.
func pathOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Path
	}
	return ""
}

// forgotten is the error of an addition of which it cannot be known any more whether it was made.
func (k *Counter) forgotten() error {
	return k.fault("add", api.Uncertain, "it may have been counted: its session ended so long ago that others have removed the file that would say so")
}

// fault is an error of a call that was wrong, or came too early or too late.
func (k *Counter) fault(op string, code api.Code, format string, args ...any) error {
	return &api.Error{Code: code, Op: op, Path: k.dir, Message: fmt.Sprintf(format, args...)}
}
