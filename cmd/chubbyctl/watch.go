package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type watchOptions struct {
	*globals
	children bool
	tree     bool
	events   []string
	exec     string
	initial  bool
	contents string // "", or the form in which CMD needs them
	count    int
	settle   settling

	paths    []api.Path
	kinds    []api.EventKind
	now      func() time.Time // the time, for printing
	out, err io.Writer

	backlog *backlog
	run     func(ctx context.Context, due []happening) error // CMD, for these events
	printed int                                              // lines
}

// subscribable returns the kinds of events that a watch can request.
func subscribable() []api.EventKind {
	return slices.DeleteFunc(api.EventKinds(), func(k api.EventKind) bool { return !k.Subscribable() })
}

func ofChildren() []api.EventKind {
	return slices.DeleteFunc(api.EventKinds(), func(k api.EventKind) bool { return !k.OfChild() })
}

func watchVerb(g *globals, cmd *cobra.Command) {
	o := &watchOptions{globals: g, now: now}
	o.run = o.runHook
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.out, o.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := o.validate(cmd, args); err != nil {
			return err
		}
		o.backlog = newBacklog(o.settle)
		return o.runWatch(cmd.Context())
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.children, "children", false, "tell of a directory's children too")
	flags.BoolVar(&o.tree, "tree", false, "tell of everything below each PATH")
	flags.StringSliceVar(&o.events, "events", nil, "tell of these kinds, `KIND,...` (default contents-modified, and without --exec lock-acquired,lock-vacant)")
	flags.StringVar(&o.exec, "exec", "", "run `CMD` with /bin/sh for each event")
	flags.BoolVar(&o.initial, "initial", false, "run CMD at the beginning, too")
	flags.StringVar(&o.contents, "contents", "", "with the contents of the file, for -o json and on the standard input of CMD, which needs them as `text`; or base64")
	flags.Lookup("contents").NoOptDefVal = contentsText
	// Fails for a missing flag, or one with a completion.
	_ = cmd.RegisterFlagCompletionFunc("contents", g.complete(words(contentsText, contentsBase64)))
	flags.DurationVar(&o.settle.quiet, "settle", 0, "wait until nothing has happened for this long, as in 2s, and run CMD once for all")
	flags.DurationVar(&o.settle.atMost, "settle-at-most", 0, "for how long an event waits for --settle at most (default: without limit)")
	needsFlag(flags, "exec", "and there is none", "initial", "settle")
	needsFlag(flags, "settle", "and nothing waits without it", "settle-at-most")
	keepApart(flags, "children", "a tree has the children of every directory", "tree")
	zeroIsOff(flags, "settle", "settle-at-most")
	flags.IntVar(&o.count, "count", 0, "end after `N` events (default: at Ctrl-C)")
}

func (o *watchOptions) validate(cmd *cobra.Command, paths []string) error {
	given := cmd.Flags().Changed
	switch {
	case given("count") && o.count < 1:
		return usagef("--count %d: want 1 or more", o.count)
	case given("exec") && strings.TrimSpace(o.exec) == "":
		return usagef("--exec: there is no command in it")
	case given("contents") && o.contents != contentsText && o.contents != contentsBase64:
		return usagef("--contents %q: want text, for files that are UTF-8, or base64", o.contents)
	case o.contents != "" && o.exec == "" && !o.json():
		return usagef("--contents is for -o json and for --exec: a line of text has no room for them")
	case given("events") && len(o.events) == 0:
		return usagef("--events: want one or more of %s", strings.Join(kindNames(subscribable()), ", "))
	case o.settle.quiet < 0:
		return usagef("--settle %v: want a duration, as in 2s", o.settle.quiet)
	case o.settle.atMost != 0 && o.settle.atMost < o.settle.quiet:
		return usagef("--settle-at-most %v: want --settle, %v, or longer", o.settle.atMost, o.settle.quiet)
	}
	var err error
	if o.paths, err = o.parsePaths("watch", paths); err != nil {
		return err
	}
	if len(o.paths) > maxWatchedPaths {
		return usagef("watch: these are %d paths; at most %d can be watched together, or a whole --tree", len(o.paths), maxWatchedPaths)
	}
	o.kinds, err = wantedKinds(o.events, o.children, o.exec != "")
	if err != nil || !o.tree {
		return err
	}
	told := []api.EventKind{api.EventContentsModified, api.EventChildAdded, api.EventChildRemoved}
	if len(o.events) == 0 {
		o.kinds = []api.EventKind{api.EventContentsModified, api.EventChildRemoved}
	}
	for _, kind := range o.kinds {
		if !slices.Contains(told, kind) {
			return usagef("--events: of a --tree %v is not told; want some of %s", kind, strings.Join(kindNames(told), ", "))
		}
	}
	return nil
}

// maxWatchedPaths is how many nodes one command follows: each has a handle.
const maxWatchedPaths = 100

// wantedKinds returns the kinds to request, each once.
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

func kindNames(kinds []api.EventKind) []string { return term.Each(kinds, api.EventKind.String) }

type eventFields struct {
	Time        string         `json:"time"` // of arrival, by this machine's clock
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

func (o *watchOptions) printEvent(e happening) error {
	where, generation := e.Path, "-"
	if e.Child != "" {
		where += "/" + e.Child
	}
	if e.Generation != 0 {
		generation = fmt.Sprint(e.Generation)
	}
	line := fmt.Sprintf("%s  %-18v  %s  %s  %s", o.now().Local().Format("2006-01-02 15:04:05.000"), e.Kind, where, generation, because(e.Event))
	return o.output.SayIn(o.out, e.fields, meaning(e.Kind), strings.TrimRight(line, " "))
}

// because joins an event's reason and explanation: "deleted: by ann".
func because(e api.Event) string {
	if e.Reason == 0 {
		return e.Explanation
	}
	return strings.TrimSuffix(e.Reason.String()+": "+e.Explanation, ": ")
}

// meaning returns an event's meaning, for its colour.
func meaning(kind api.EventKind) term.Meaning {
	switch kind {
	case api.EventHandleInvalid, api.EventLockLost, api.EventSessionEnded:
		return term.Trouble
	case api.EventMasterFailedOver, api.EventLost, api.EventConflictingLock, api.EventLockVacant:
		return term.Waiting
	}
	return term.Plain
}

// explained adds the explanation to an event about the whole session.
func explained(e api.Event) api.Event {
	switch {
	case e.Explanation != "":
	case e.Kind == api.EventMasterFailedOver:
		e.Explanation = "another master serves the cell, and events may have been lost: look again"
	case e.Kind == api.EventLost:
		e.Explanation = "more happened than was kept for this watch: look again"
	}
	return e
}

// The forms of --contents.
const (
	contentsText   = "text"
	contentsBase64 = "base64"
)

// watchedContents are a file's contents after an event, for programs.
type watchedContents struct {
	ContentGeneration api.Generation `json:"content_generation"`
	Contents          *string        `json:"contents,omitempty"` // if UTF-8
	ContentsBase64    string         `json:"contents_base64"`
}

func newWatchedContents(contents []byte, stat api.Stat) *watchedContents {
	w := &watchedContents{ContentGeneration: stat.Content, ContentsBase64: base64.StdEncoding.EncodeToString(contents)}
	if utf8.Valid(contents) {
		text := string(contents)
		w.Contents = &text
	}
	return w
}

// hookGrace is the time from SIGTERM to SIGKILL for the CMD of a watch.
const hookGrace = 3 * time.Second

// runHook runs CMD for events, the last of which is in its environment, and waits for it. If CMD fails, it
// notifies the user and returns no error: CMD may need the next event too. With --contents CMD gets each
// event's fields on standard input, which it may ignore.
func (o *watchOptions) runHook(ctx context.Context, due []happening) error {
	if hasEnded(ctx) {
		return nil
	}
	e := due[len(due)-1]
	c := exec.CommandContext(ctx, "/bin/sh", "-c", o.exec)
	c.Env = append(os.Environ(), // of duplicate names, the later value counts
		"CHUBBY_EVENT="+e.fields.Event,
		"CHUBBY_PATH="+e.Path,
		"CHUBBY_CHILD="+e.Child,
		"CHUBBY_GENERATION="+strconv.FormatUint(uint64(e.Generation), 10),
	)
	if o.contents != "" {
		var lines bytes.Buffer
		for _, one := range due {
			if err := term.JSON.Print(&lines, one.fields); err != nil {
				return err
			}
		}
		c.Stdin = &lines
	}
	c.Stdout, c.Stderr = term.Bare(o.out), term.Bare(o.err)
	c.WaitDelay = hookGrace
	finish := endAsGroup(c)
	err := c.Run()
	finish()
	var exit *exec.ExitError
	switch {
	case hasEnded(ctx):
		return nil // it was asked to end
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // CMD has ended, and its leftovers hold its standard input
	case errors.As(err, &exit):
		o.notice(o.err, fmt.Sprintf("CMD for %s of %s failed: %v", e.fields.Event, e.Path, err))
		return nil
	case err != nil:
		return fmt.Errorf("run CMD: %w", err)
	}
	return nil
}
