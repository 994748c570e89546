package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// watched is what is known of a node that is watched.
type watched struct {
	handed   api.Generation            // of the contents that were told, or for which CMD has run, last
	owed     bool                      // CMD is to have what there was at the beginning, and had it not
	children map[string]api.Generation // the newest of each child when CMD ran last; nil if nobody asked for them

	contents func(context.Context) (*watchedContents, error) // now; HandleClosed if there are none, or no more
	look     func(context.Context) (outlook, error)          // what there is now
}

// outlook is what a watch has to tell of when events may have been missed.
type outlook struct {
	content  api.Generation
	children map[string]api.Generation
}

// hear takes note of what an event tells.
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

// shows reports whether there is anything of which an event of the kind should have told, after what is known.
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

// hasAll reports whether the children of one list are on another.
func hasAll(list, children map[string]api.Generation) bool {
	for name := range children {
		if _, is := list[name]; !is {
			return false
		}
	}
	return true
}

// toldEvent is an event with what is told of it.
type toldEvent struct {
	happening
	fields eventFields
}

// consume runs pumps, which put events into the backlog, and tells of them, until there is an end.
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

// handle prints events, and runs CMD for those for which it is due: once, of several. ctx ends with the session, cmd with an interrupt.
// The error is a final when there is nothing more to come.
func (o *watchOptions) handle(cmd, ctx context.Context, batch []happening) error {
	var due []toldEvent
	var end error
	for _, h := range batch {
		one, is, err := o.tell(ctx, h)
		if is {
			due = append(due, one)
		}
		if end = err; end != nil {
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

// tell prints an event, and reports whether CMD is to run for it.
func (o *watchOptions) tell(ctx context.Context, h happening) (one toldEvent, due bool, err error) {
	if h.end != nil {
		return one, false, final{h.end}
	}
	if h.Kind == api.EventContentsModified && h.Generation <= h.of.handed && !h.initial {
		return one, false, nil // it was told by what was read after an earlier event, or after the loss of some
	}
	one = toldEvent{h, newEventFields(h.Event, o.now())}
	without := ""
	if o.contents != "" && h.Kind != api.EventHandleInvalid {
		if one.fields.watchedContents, err = h.of.contents(ctx); err != nil && !isWithout(err) {
			return one, false, err
		}
	}
	if o.contents != "" {
		without = lacks(o.contents, one.fields.watchedContents, err)
	}
	due, err = o.isDue(ctx, one)
	if err != nil {
		return one, false, err
	}
	if h.initial {
		one.fields.Event, h.of.owed = initialEvent, false
	} else if err := o.printEvent(h.Event, one.fields); err != nil {
		return one, false, final{err}
	} else {
		o.printed++
	}
	if due && without != "" {
		o.notice(o.err, fmt.Sprintf("CMD is not run for %s of %s: %s", one.fields.Event, h.Path, without))
		due = false
	}
	switch {
	case h.Kind == api.EventHandleInvalid:
		return one, due, final{&api.Error{Code: api.HandleClosed, Op: "watch", Path: h.Path,
			Message: fmt.Sprintf("there is nothing to watch any more: %s; watch the path again once it is there again", cmp.Or(because(h.Event), "the handle is invalid"))}}
	case o.count > 0 && o.printed == o.count:
		return one, due, final{}
	}
	return one, due, nil
}

const initialEvent = "initial" // in place of a kind

// isWithout reports whether an error says that a node has no contents, or none any more, or that they may not be read: of what there
// is to wait for, an event tells.
func isWithout(err error) bool {
	return slices.Contains([]api.Code{api.HandleClosed, api.NotFound, api.IsDirectory, api.PermissionDenied}, api.CodeOf(err))
}

// lacks says why CMD has not the contents that it needs; "" if it has.
func lacks(form contentsForm, c *watchedContents, err error) string {
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

// isDue reports whether CMD runs for an event, and takes note of what it has told of then. When events may have been missed, it runs if the
// contents, or the children, are others than when it ran last, or if anything else is watched.
func (o *watchOptions) isDue(ctx context.Context, one toldEvent) (bool, error) {
	w, read := one.of, one.fields.watchedContents
	switch one.Kind {
	case api.EventContentsModified: // alone: a CMD may not look at the contents that come with an event of the lock
		if o.contents == "" || read != nil { // else CMD is still to have them
			w.handed = max(w.handed, one.Generation)
		}
		if read != nil {
			w.handed = max(w.handed, read.ContentGeneration)
		}
	case api.EventChildAdded, api.EventChildModified, api.EventChildRemoved:
		(&outlook{children: w.children}).hear(one.Event)
	case api.EventMasterFailedOver, api.EventLost:
		if o.exec == "" {
			return false, nil
		}
		now, err := w.look(ctx)
		if err != nil {
			return false, unlessGone(err)
		}
		if read != nil {
			now.content = read.ContentGeneration
		}
		changed := now.content != w.handed || !maps.Equal(now.children, w.children)
		w.handed, w.children = now.content, now.children
		return changed || slices.ContainsFunc(o.kinds, isOfLock), nil
	}
	return o.exec != "", nil
}

// unlessGone returns an error, unless it says that the node is gone, of which another event tells.
func unlessGone(err error) error {
	if errors.Is(err, api.HandleClosed) {
		return nil
	}
	return err
}

// isOfLock reports whether an event is about a lock: what has become of that cannot be told by a look.
func isOfLock(kind api.EventKind) bool {
	return slices.Contains([]api.EventKind{api.EventLockAcquired, api.EventLockVacant, api.EventConflictingLock}, kind)
}
