package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// drillPace is between two writes of the drill's own session: the least that it can see of a time without an answer.
const drillPace = 10 * time.Millisecond

// drillWork is a session that works all the time while a drill goes on: what it sees is what other clients see. Its goroutine has
// ended when stop returns.
type drillWork struct {
	client *client.Client
	handle *client.Handle
	watch  func() time.Duration
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex // guards what follows
	answered time.Duration
	counts   bool
	from     time.Duration // since when it counts
	longest  time.Duration
	calls    int
	events   []drillEvent
	gone     error // why it ended by itself
}

// drillEvent is what the session of a drill has seen.
type drillEvent struct {
	AtS  float64 `json:"at_s"` // since the drill began
	What string  `json:"what"`
}

// beginWork opens the session, and has it write its file.
func (o *drillOptions) beginWork(ctx context.Context) (*drillWork, error) {
	w := &drillWork{watch: stopwatch(), done: make(chan struct{})}
	cfg := o.config(o.cell)
	cfg.OnState = func(s client.StateChange) { w.note(s.State.String()) }
	var err error
	if w.client, err = client.New(ctx, cfg); err != nil {
		return nil, err
	}
	if w.handle, err = o.openOwn(ctx, w.client, "work"); err != nil {
		o.closeSession(ctx, w.client)
		return nil, err
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	go func() {
		defer close(w.done)
		w.write(working)
	}()
	return w, nil
}

// openOwn opens an ephemeral file of the drill's own.
func (o *drillOptions) openOwn(ctx context.Context, c *client.Client, name string) (*client.Handle, error) {
	dir, err := o.parsePath(o.dir)
	if err != nil {
		return nil, err
	}
	p, err := dir.Join(fmt.Sprintf("drill-%v-%s", c.Session(), name))
	if err != nil {
		return nil, err
	}
	h, err := c.Open(ctx, p.String(), client.OpenOptions{Read: true, Write: true, Create: client.File, Kind: api.File, Ephemeral: true})
	if code := api.CodeOf(err); code == api.PermissionDenied || code == api.NotFound {
		return nil, fmt.Errorf("the drill needs a file of its own; --dir names a directory in which you may write: %w", err)
	}
	return h, err
}

// write writes until ctx ends, or the session.
func (w *drillWork) write(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := w.handle.SetContents(ctx, []byte("drill"))
		w.mu.Lock()
		switch now := w.watch(); {
		case err == nil:
			if w.counts {
				w.longest = max(w.longest, now-max(w.answered, w.from))
				w.calls++
			}
			w.answered = now
		case api.CodeOf(err) == api.SessionExpired:
			w.gone = err
		}
		gone := w.gone
		w.mu.Unlock()
		if gone != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(drillPace):
		}
	}
}

// note notes an event.
func (w *drillWork) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts && len(w.events) < maxHit {
		w.events = append(w.events, drillEvent{term.Seconds(w.watch() - w.from), what})
	}
}

// count begins to count.
func (w *drillWork) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts, w.from = true, w.watch()
}

// awaitAnswer waits until a write has been answered that began after the call, or the session is gone.
func (w *drillWork) awaitAnswer(ctx context.Context) error {
	began := w.watch()
	tick := time.NewTicker(drillPace)
	defer tick.Stop()
	for {
		w.mu.Lock()
		answered, gone := w.answered > began+2*drillPace, w.gone
		w.mu.Unlock()
		if answered || gone != nil {
			return gone
		}
		select {
		case <-tick.C:
		case <-w.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop ends the work, and returns what it has seen.
func (w *drillWork) stop() (longest time.Duration, calls int, events []drillEvent) {
	w.cancel()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.longest = max(w.longest, w.watch()-max(w.answered, w.from)); w.client.State().String() == "gone" {
		w.events = append(w.events, drillEvent{term.Seconds(w.watch() - w.from), "gone"})
	}
	return w.longest, w.calls, w.events
}
