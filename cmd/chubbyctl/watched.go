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

// toldEvent is an event with its report.
type toldEvent struct {
	happening
	fields eventFields
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

// tell prints an event, and reports whether to run CMD for it.
func (o *watchOptions) tell(ctx context.Context, h happening) (one toldEvent, due bool, err error) {
	if h.end != nil {
		return one, false, final{h.end}
	}
	if h.Kind == api.EventContentsModified && h.Generation <= h.of.handed && !h.initial {
		return one, false, nil // a read after an earlier event, or after a loss, has reported it
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

// isWithout reports whether an error says that a node has no readable contents now. Events report a change of
// that.
func isWithout(err error) bool {
	return slices.Contains([]api.Code{api.HandleClosed, api.NotFound, api.IsDirectory, api.PermissionDenied}, api.CodeOf(err))
}

// lacks says why CMD lacks the contents that it needs, or "".
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

// isDue reports whether CMD runs for an event, and records what was reported then. After a loss of events, CMD
// runs if contents or children differ from its last run, or if anything else is watched.
func (o *watchOptions) isDue(ctx context.Context, one toldEvent) (bool, error) {
	w, read := one.of, one.fields.watchedContents
	switch one.Kind {
	case api.EventContentsModified: // only this one: a CMD may ignore contents that come with an event of the lock
		if o.contents == "" || read != nil { // else CMD has yet to get them
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

// unlessGone returns an error, unless it says that the node is gone, which another event reports.
func unlessGone(err error) error {
	if errors.Is(err, api.HandleClosed) {
		return nil
	}
	return err
}

// isOfLock reports whether an event is about a lock, whose changes a look does not show.
func isOfLock(kind api.EventKind) bool {
	return slices.Contains([]api.EventKind{api.EventLockAcquired, api.EventLockVacant, api.EventConflictingLock}, kind)
}
