package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
)

// watched is the known state of a watched node.
type watched struct {
	handed   api.Generation            // of the last contents reported, or handled by CMD
	owed     bool                      // CMD has yet to get the initial state
	children map[string]api.Generation // of each child, at CMD's last run; nil if not requested

	contents func(context.Context) (*watchedContents, error) // current; HandleClosed without any, or no more
	look     func(context.Context) (outlook, error)          // at the current state
}

// outlook is the state that a watch has to report after events may be missing.
type outlook struct {
	content  api.Generation
	children map[string]api.Generation
}

// hear updates the state by an event.
func (o *outlook) hear(e api.Event) {
	switch e.Kind {
	case api.EventContentsModified:
		o.content = max(o.content, e.Generation)
	case api.EventChildAdded, api.EventChildModified:
		if o.children != nil {
			o.children[e.Child] = max(o.children[e.Child], e.Generation)
		}
	case api.EventChildRemoved:
		delete(o.children, e.Child)
	}
}

// shows reports whether the state differs from the known one in a way that an event of the kind should have
// reported.
func (o *outlook) shows(kind api.EventKind, known *outlook) bool {
	switch kind {
	case api.EventContentsModified:
		return o.content > known.content
	case api.EventChildAdded:
		return !hasAll(known.children, o.children)
	case api.EventChildRemoved:
		return !hasAll(o.children, known.children)
	case api.EventChildModified:
		for name, was := range known.children {
			if o.children[name] > was {
				return true
			}
		}
	}
	return false
}

// hasAll reports whether children contains all of the list.
func hasAll(list, children map[string]api.Generation) bool {
	for name := range children {
		if _, is := list[name]; !is {
			return false
		}
	}
	return true
}

// consume runs pumps, which put events into the backlog, and reports the events until the end.
func (o *watchOptions) consume(cmd, ctx context.Context, pumps ...func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer fail(nil)
	for _, pump := range pumps {
		running.Go(func() {
			if err := pump(ctx); err != nil {
				fail(err)
			}
		})
	}
	for {
		batch, err := o.backlog.take(ctx)
		if err != nil {
			return err
		}
		if err := o.handle(cmd, ctx, batch); err != nil {
			return err
		}
	}
}

// handle prints events, and runs CMD once for those that need it. ctx ends with the session, cmd with an
// interrupt. The error is a final when nothing more follows.
func (o *watchOptions) handle(cmd, ctx context.Context, batch []happening) (end error) {
	var due []happening
	for _, h := range batch {
		var is bool
		if is, end = o.tell(ctx, &h); is {
			due = append(due, h)
		}
		if end != nil {
			break
		}
	}
	if len(due) > 0 {
		if err := o.run(cmd, due); err != nil {
			return final{err}
		}
	}
	if hasEnded(cmd) {
		return final{}
	}
	return end
}

// tell prints an event, and reports whether to run CMD for it.
func (o *watchOptions) tell(ctx context.Context, h *happening) (due bool, err error) {
	switch {
	case h.end != nil:
		return false, final{h.end}
	case h.Kind == api.EventContentsModified && h.Generation <= h.of.handed && !h.initial:
		return false, nil // a read after an earlier event, or after a loss, has reported it
	}
	h.fields = newEventFields(h.Event, o.now())
	missing := ""
	if o.contents != "" {
		// These say that a node has no readable contents now; events report a change of that.
		without := []api.Code{api.HandleClosed, api.NotFound, api.IsDirectory, api.PermissionDenied}
		if h.Kind != api.EventHandleInvalid {
			if h.fields.watchedContents, err = h.of.contents(ctx); err != nil && !slices.Contains(without, api.CodeOf(err)) {
				return false, err
			}
		}
		missing = lacks(o.contents, h.fields.watchedContents, err)
	}
	if due, err = o.isDue(ctx, h); err != nil {
		return false, err
	}
	if h.initial {
		h.fields.Event, h.of.owed = initialEvent, false
	} else if err := o.printEvent(*h); err != nil {
		return false, final{err}
	} else {
		o.printed++
	}
	if due && missing != "" {
		o.notice(o.err, fmt.Sprintf("CMD is not run for %s of %s: %s", h.fields.Event, h.Path, missing))
		due = false
	}
	switch {
	case h.Kind == api.EventHandleInvalid:
		return due, final{&api.Error{Code: api.HandleClosed, Op: "watch", Path: h.Path,
			Message: fmt.Sprintf("there is nothing to watch any more: %s; watch the path again once it is there again", cmp.Or(because(h.Event), "the handle is invalid"))}}
	case o.count > 0 && o.printed == o.count:
		return due, final{}
	}
	return due, nil
}

const initialEvent = "initial" // in place of a kind

// lacks says why CMD lacks the contents that it needs, or "".
func lacks(form string, c *watchedContents, err error) string {
	switch {
	case c == nil && err != nil:
		return err.Error()
	case c == nil:
		return "there are no contents any more"
	case form == contentsText && c.Contents == nil:
		return fmt.Sprintf("generation %d is not UTF-8; --contents=base64 is for all bytes", c.ContentGeneration)
	}
	return ""
}

// isDue reports whether CMD runs for an event, and records what was reported then. After a loss of events, CMD
// runs if contents or children differ from its last run, or if anything else is watched.
func (o *watchOptions) isDue(ctx context.Context, h *happening) (bool, error) {
	w, read := h.of, h.fields.watchedContents
	switch h.Kind {
	case api.EventContentsModified: // only this one: a CMD may ignore contents that come with an event of the lock
		if o.contents == "" || read != nil { // else CMD has yet to get them
			w.handed = max(w.handed, h.Generation)
		}
		if read != nil {
			w.handed = max(w.handed, read.ContentGeneration)
		}
	case api.EventChildAdded, api.EventChildModified, api.EventChildRemoved:
		(&outlook{children: w.children}).hear(h.Event)
	case api.EventMasterFailedOver, api.EventLost:
		if o.exec == "" {
			return false, nil
		}
		now, err := w.look(ctx)
		if err != nil {
			if errors.Is(err, api.HandleClosed) { // which another event reports
				err = nil
			}
			return false, err
		}
		if read != nil {
			now.content = read.ContentGeneration
		}
		changed := now.content != w.handed || !maps.Equal(now.children, w.children)
		w.handed, w.children = now.content, now.children
		isOfLock := func(kind api.EventKind) bool { // whose changes a look does not show
			return kind == api.EventLockAcquired || kind == api.EventLockVacant || kind == api.EventConflictingLock
		}
		return changed || slices.ContainsFunc(o.kinds, isOfLock), nil
	}
	return o.exec != "", nil
}

// happening is an event of a watched node.
type happening struct {
	api.Event
	of      *watched
	initial bool  // no event, but the initial state
	end     error // no event, but why no more follow

	fields eventFields // as it is printed
}

// backlog holds pending events while CMD runs or things settle. Of events of one kind about the same contents
// it keeps the newest: CMD runs for the present contents, not for each change. Every event of locks and of
// children counts.
type backlog struct {
	settle settling

	mu      sync.Mutex // guards what follows
	waiting []happening
	changed chan struct{}        // closed and replaced when something is added or taken
	first   func() time.Duration // time since the first event,
	last    func() time.Duration // and since the last
}

// settling says how long nothing must happen before events are taken together, and how long they wait for that
// at most. 0: not at all, and without limit.
type settling struct{ quiet, atMost time.Duration }

func newBacklog(settle settling) *backlog {
	return &backlog{settle: settle, changed: make(chan struct{})}
}

// until tries with mu held until that is done: again when something was added or taken, and after the wait that
// it returns.
func (b *backlog) until(ctx context.Context, try func() (done bool, wait time.Duration)) error {
	for ctx.Err() == nil {
		b.mu.Lock()
		done, wait := try()
		changed := b.changed
		if done {
			close(b.changed)
			b.changed = make(chan struct{})
		}
		b.mu.Unlock()
		if done {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return context.Cause(ctx)
}

// put adds an event. It blocks at api.MaxEventQueue events; then the client library queues as many again, and
// reports the loss of more.
func (b *backlog) put(ctx context.Context, h happening) error {
	return b.until(ctx, func() (bool, time.Duration) {
		none := len(b.waiting) == 0
		b.waiting = slices.DeleteFunc(b.waiting, h.replaces)
		if len(b.waiting) >= api.MaxEventQueue {
			return false, time.Hour
		}
		b.last = stopwatch()
		if none {
			b.first = b.last
		}
		b.waiting = append(b.waiting, h)
		return true, 0
	})
}

// replaces reports whether h makes an earlier event unnecessary.
func (h happening) replaces(earlier happening) bool {
	if h.of != earlier.of || h.Kind != earlier.Kind || h.Path != earlier.Path || h.Child != earlier.Child {
		return false
	}
	switch h.Kind {
	case api.EventContentsModified, api.EventChildModified:
		return earlier.Generation <= h.Generation
	case api.EventMasterFailedOver, api.EventLost:
		return true
	}
	return false
}

// take waits for the first event and takes it; with settling, it waits for that and takes all.
func (b *backlog) take(ctx context.Context) (taken []happening, err error) {
	err = b.until(ctx, func() (bool, time.Duration) {
		n, wait := len(b.waiting), time.Hour
		switch {
		case n == 0:
			return false, wait
		case b.settle.quiet == 0:
			n = 1
		default:
			wait = b.settle.quiet - b.last()
			if most := b.settle.atMost; most > 0 {
				wait = min(wait, most-b.first())
			}
			if wait > 0 && n < api.MaxEventQueue && !slices.ContainsFunc(b.waiting, happening.ends) {
				return false, wait
			}
		}
		taken, b.waiting = slices.Clone(b.waiting[:n]), slices.Delete(b.waiting, 0, n)
		return true, 0
	})
	return taken, err
}

// ends reports whether no event follows.
func (h happening) ends() bool { return h.Kind == api.EventHandleInvalid || h.end != nil }
