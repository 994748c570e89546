package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type watchOptions struct {
	*globals
	children bool
	events   []string
	exec     string
	initial  bool
	contents bool
	count    int

	path     api.Path
	kinds    []api.EventKind
	now      func() time.Time // the time of day, for printing
	out, err io.Writer

	seen           api.Generation                                  // of the contents when CMD ran for them last
	readGeneration func(context.Context) (api.Generation, error)   // of the contents now
	readContents   func(context.Context) (*watchedContents, error) // now; nil without --contents
}

// subscribable returns the kinds of events that a watch can ask for.
func subscribable() []api.EventKind {
	return slices.DeleteFunc(api.EventKinds(), func(k api.EventKind) bool { return !k.Subscribable() })
}

func ofChildren() []api.EventKind {
	return slices.DeleteFunc(api.EventKinds(), func(k api.EventKind) bool { return !k.OfChild() })
}

func newWatchCommand(g *globals) *cobra.Command {
	o := &watchOptions{globals: g, now: now}
	cmd := &cobra.Command{
		Use:   "watch PATH",
		Short: "Print what happens to a node, as it happens",
		Long: fmt.Sprintf(`watch prints the events of a node, one per line, until Ctrl-C: when, what, on which
path, the generation it is about, and an explanation. An event comes after the change
that it reports: a read then returns that state, or a newer one. Several changes may
be one event. With -o json the time is that of this machine.

Without --events it tells when the contents are written, and, without --exec, when the
lock is taken and when nobody holds it any more; with --children also of what comes,
goes and changes in a directory. --events names the kinds instead:
  %s
Whatever was asked for, it also prints master-failed-over and events-lost, after
which events may be missing, so look again; and handle-invalid when the node is
gone: it then exits with %d, also if the node is created again.

--exec runs CMD with /bin/sh -c for each line that is printed, but for contents once
for each generation: after a fail-over only if they have changed meanwhile. --initial
runs it at the beginning, too. No two run at once: what happens meanwhile waits, up to
%d events; the rest becomes one events-lost. watch ignores CMD's exit status. CMD
reads nothing from standard input, but see --contents, and has in its environment:
  CHUBBY_EVENT       the kind, as contents-modified; initial at the beginning
  CHUBBY_PATH        the path that is watched
  CHUBBY_CHILD       the name of the child, of events of children; else empty
  CHUBBY_GENERATION  the generation, 0 if the event is about none
Ctrl-C gives a CMD that runs SIGTERM, and %v to end.

--contents has the contents of a file with each event after which they may be others, read
after it: as contents, contents_base64 and content_generation with -o json, and the same
object, as a line, on the standard input of CMD.

It exits with 0 after Ctrl-C, and after --count events.`,
			strings.ReplaceAll(strings.Join(kindNames(subscribable()), ", "), "conflicting", "\n  conflicting"), exitFailed, api.MaxEventQueue, hookGrace),
		Example: `  chubbyctl watch /ls/local/config --exec './reload.sh'
  chubbyctl watch /ls/local/config --contents --exec 'jq -r .contents >config'
  chubbyctl watch /ls/local/svc --children -o json
  chubbyctl watch /ls/local/nightly --events lock-acquired --count 1`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.out, o.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := o.validate(cmd, args[0]); err != nil {
				return err
			}
			return o.runWatch(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.children, "children", false, "tell of a directory's children too")
	flags.StringSliceVar(&o.events, "events", nil, "tell of these kinds, `KIND,...` (default contents-modified, and without --exec lock-acquired,lock-vacant)")
	flags.StringVar(&o.exec, "exec", "", "run `CMD` with /bin/sh for each event")
	flags.BoolVar(&o.initial, "initial", false, "run CMD at the beginning, too")
	flags.BoolVar(&o.contents, "contents", false, "with the contents of the file, for -o json and on the standard input of CMD")
	needsFlag(flags, "exec", "and there is none", "initial")
	flags.IntVar(&o.count, "count", 0, "end after `N` events (default: at Ctrl-C)")
	return cmd
}

func (o *watchOptions) validate(cmd *cobra.Command, path string) error {
	given := cmd.Flags().Changed
	switch {
	case given("count") && o.count < 1:
		return usagef("--count %d: want 1 or more", o.count)
	case given("exec") && strings.TrimSpace(o.exec) == "":
		return usagef("--exec: there is no command in it")
	case o.contents && o.exec == "" && !o.json():
		return usagef("--contents is for -o json and for --exec: a line of text has no room for them")
	case given("events") && len(o.events) == 0:
		return usagef("--events: want one or more of %s", strings.Join(kindNames(subscribable()), ", "))
	}
	var err error
	if o.path, err = o.parsePath(path); err != nil {
		return err
	}
	o.kinds, err = wantedKinds(o.events, o.children, o.exec != "")
	return err
}

// wantedKinds returns the kinds to ask for, each once.
func wantedKinds(names []string, children, hook bool) ([]api.EventKind, error) {
	var kinds []api.EventKind
	for _, name := range names {
		var kind api.EventKind
		err := kind.UnmarshalText([]byte(strings.TrimSpace(name)))
		if err != nil {
			return nil, usagef("--events: %q is no kind of event; want some of %s", name, strings.Join(kindNames(subscribable()), ", "))
		}
		if !kind.Subscribable() {
			return nil, usagef("--events: %v cannot be asked for; what concerns a watch is told in any case. Want some of %s",
				kind, strings.Join(kindNames(subscribable()), ", "))
		}
		kinds = append(kinds, kind)
	}
	if len(names) == 0 {
		kinds = append(kinds, api.EventContentsModified)
		if !hook {
			kinds = append(kinds, api.EventLockAcquired, api.EventLockVacant)
		}
	}
	if children {
		kinds = append(kinds, ofChildren()...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), nil
}

func kindNames(kinds []api.EventKind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	return names
}

// runWatch opens the node, within --timeout, and follows its events.
func (o *watchOptions) runWatch(ctx context.Context) error {
	var h *client.Handle
	var stat api.Stat
	open := func(ctx context.Context, c *client.Client) (err error) {
		if h, err = c.Open(ctx, o.path.String(), client.OpenOptions{Read: true, Events: o.kinds}); err == nil {
			stat, err = h.Stat(ctx)
		}
		return err
	}
	return o.withLastingSession(ctx, o.path, open, func(ctx context.Context, _ *client.Client) error { return o.follow(ctx, h, stat) })
}

// follow follows the events of a node that was as stat says.
func (o *watchOptions) follow(ctx context.Context, h *client.Handle, stat api.Stat) error {
	o.seen = stat.Content
	o.readGeneration = func(ctx context.Context) (api.Generation, error) {
		stat, err := h.Stat(ctx)
		return stat.Content, err
	}
	if o.contents && stat.Kind == api.Directory {
		return usagef("--contents: %v is a directory, and has none", o.path)
	}
	if o.contents {
		o.readContents = func(ctx context.Context) (*watchedContents, error) {
			contents, stat, err := h.Contents(ctx)
			return newWatchedContents(contents, stat), err
		}
	}
	o.notice(o.err, o.describeWatch(stat.Kind))
	if o.initial {
		e := api.Event{Path: o.path.String(), Generation: stat.Content}
		fields := newEventFields(e, o.now())
		fields.Event = "initial"
		fields.watchedContents = o.contentsAfter(ctx, api.EventContentsModified)
		if err := o.runHook(ctx, "initial", e, fields); err != nil {
			return err
		}
	}
	return o.followEvents(ctx, h.Next)
}

// describeWatch says what is watched, and which events cannot come.
func (o *watchOptions) describeWatch(kind api.Kind) string {
	text := fmt.Sprintf("watching %v for %s; end it with Ctrl-C", o.path, strings.Join(kindNames(o.kinds), ", "))
	children := slices.ContainsFunc(o.kinds, api.EventKind.OfChild)
	switch {
	case kind == api.Directory && !children:
		text += ". It is a directory; --children tells of what is in it"
	case kind == api.File && children:
		text += ". It is a file, and has no children"
	}
	return text
}

// followEvents prints events, and runs CMD for each, until an interrupt, the end of the node, or
// the last of --count.
func (o *watchOptions) followEvents(ctx context.Context, next func(context.Context) (api.Event, error)) error {
	for n := 1; ; n++ {
		e, err := next(ctx)
		if isInterrupted(ctx) {
			return nil
		}
		if err != nil {
			return err
		}
		e = o.completeEvent(e)
		fields := newEventFields(e, o.now())
		fields.watchedContents = o.contentsAfter(ctx, e.Kind)
		if err := o.printEvent(e, fields); err != nil {
			return err
		}
		if o.exec != "" && o.isDue(ctx, e) {
			if err := o.runHook(ctx, e.Kind.String(), e, fields); err != nil {
				return err
			}
		}
		switch {
		case isInterrupted(ctx):
			return nil
		case e.Kind == api.EventHandleInvalid:
			return &api.Error{Code: api.HandleClosed, Op: "watch", Path: e.Path,
				Message: fmt.Sprintf("there is nothing to watch any more: %s; watch the path again once it is there again", cmp.Or(because(e), "the handle is invalid"))}
		case n == o.count:
			return nil
		}
	}
}

// isDue reports whether to run CMD for an event: for contents-modified once for each generation
// of the contents. When events may have been missed, CMD runs if the contents have changed, or
// if anything else is watched.
func (o *watchOptions) isDue(ctx context.Context, e api.Event) bool {
	generation := e.Generation
	switch e.Kind {
	case api.EventContentsModified:
	case api.EventMasterFailedOver, api.EventLost:
		if !slices.Equal(o.kinds, []api.EventKind{api.EventContentsModified}) {
			return true
		}
		var err error
		if generation, err = o.readGeneration(ctx); err != nil {
			return true // the contents may have changed
		}
	default:
		return true
	}
	changed := generation > o.seen
	o.seen = max(o.seen, generation)
	return changed
}

// isInterrupted reports whether an interrupt has ended a command that runs until then.
func isInterrupted(ctx context.Context) bool { return ctx.Err() != nil }

// completeEvent fills in the path and the explanation of an event about the whole session.
func (o *watchOptions) completeEvent(e api.Event) api.Event {
	e.Path = cmp.Or(e.Path, o.path.String())
	if e.Explanation != "" {
		return e
	}
	switch e.Kind {
	case api.EventMasterFailedOver:
		e.Explanation = "another master serves the cell, and events may have been lost: look again"
	case api.EventLost:
		e.Explanation = "more happened than was kept for this watch: look again"
	}
	return e
}

type eventFields struct {
	Time        string         `json:"time"` // when chubbyctl got it, by this machine's clock
	Event       string         `json:"event"`
	Path        string         `json:"path"`
	Child       string         `json:"child"`
	Generation  api.Generation `json:"generation"`
	Reason      string         `json:"reason"`
	Explanation string         `json:"explanation"`
	*watchedContents
}

func newEventFields(e api.Event, at time.Time) eventFields {
	f := eventFields{
		Time:        at.Local().Format(time.RFC3339Nano),
		Event:       e.Kind.String(),
		Path:        e.Path,
		Child:       e.Child,
		Generation:  e.Generation,
		Explanation: e.Explanation,
	}
	if e.Reason != 0 {
		f.Reason = e.Reason.String()
	}
	return f
}

// printEvent writes an event as one line.
func (o *watchOptions) printEvent(e api.Event, fields eventFields) error {
	if o.json() {
		return o.output.Print(o.out, fields)
	}
	where, generation := e.Path, "-"
	if e.Child != "" {
		where += "/" + e.Child
	}
	if e.Generation != 0 {
		generation = fmt.Sprint(e.Generation)
	}
	line := fmt.Sprintf("%s  %-18v  %s  %s  %s", o.now().Local().Format("2006-01-02 15:04:05.000"), e.Kind, where, generation, because(e))
	_, err := fmt.Fprintln(o.out, term.StyleOf(o.out).Paint(meaning(e.Kind), term.Printable(strings.TrimRight(line, " "))))
	return err
}

// because joins the reason and the explanation of an event: "deleted: by ann".
func because(e api.Event) string {
	if e.Reason == 0 {
		return e.Explanation
	}
	return strings.TrimSuffix(e.Reason.String()+": "+e.Explanation, ": ")
}

// meaning returns the meaning of an event, for its colour.
func meaning(kind api.EventKind) term.Meaning {
	switch kind {
	case api.EventHandleInvalid, api.EventLockLost, api.EventSessionEnded:
		return term.Trouble
	case api.EventMasterFailedOver, api.EventLost, api.EventConflictingLock, api.EventLockVacant:
		return term.Waiting
	}
	return term.Plain
}
