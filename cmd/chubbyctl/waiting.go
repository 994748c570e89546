package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

const (
	reportAfter       = 2 * time.Second        // how long an operation may be silent, and between two questions for its cause
	reportBound       = 3 * time.Second        // for one such question
	reportCallTimeout = 700 * time.Millisecond // for one replica's answer to it
)

// waitReport says on standard error what an operation waits for, once it takes long, and when that changes. It
// asks the cell, without a session, during the operation. Its goroutine has ended when stop returns.
type waitReport struct {
	g      *globals
	cell   string
	path   api.Path             // of the operation; zero for the whole cell
	flag   string               // the limiting flag,
	limit  time.Duration        // and its limit, from the beginning
	watch  func() time.Duration // since the beginning
	cancel context.CancelFunc
	done   chan struct{}
	last   string // the latest cause, without times; until done it is the goroutine's
}

// reportWaitUntil begins a report on an operation that a flag limits. The report ends with ctx or stop.
func (g *globals) reportWaitUntil(ctx context.Context, cell string, path api.Path, flag string, limit time.Duration) *waitReport {
	r := &waitReport{
		g:     g,
		cell:  cell,
		path:  path,
		flag:  flag,
		limit: limit,
		watch: stopwatch(),
		done:  make(chan struct{}),
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		if g.stderr != nil {
			r.runReport(ctx)
		}
	}()
	return r
}

// stop ends the report, and returns the latest cause.
func (r *waitReport) stop() string {
	r.cancel()
	<-r.done
	return r.last
}

func (r *waitReport) runReport(ctx context.Context) {
	for sleep(ctx, reportAfter) {
		found, until := r.findCause(ctx)
		if ctx.Err() != nil {
			return // the answer is incomplete
		}
		if found != r.last {
			r.last = found
			r.g.notice(r.g.stderr, fmt.Sprintf("waiting for %s%s; %s gives up in %s", found, until, r.flag, term.Roughly(r.limit-r.watch())))
		}
	}
}

// findCause finds what the operation waits for, and the latest end.
func (r *waitReport) findCause(ctx context.Context) (found, until string) {
	ctx, cancel := context.WithTimeout(ctx, reportBound)
	defer cancel()
	cfg := r.g.config(r.cell)
	cfg.DialTimeout, cfg.CallTimeout = reportCallTimeout, reportCallTimeout
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return fmt.Sprintf("cell %s, of which nothing is known: %v", r.cell, err), ""
	}
	defer c.Close()
	status, err := c.Status(ctx)
	if api.CodeOf(err) == api.Unauthenticated {
		return fmt.Sprintf("cell %s, which refuses this client: %v", r.cell, err), ""
	}
	if err != nil {
		return fmt.Sprintf("cell %s, none of whose replicas answers", r.cell), ""
	}
	switch {
	case status.Master == "" && status.Named != "":
		return fmt.Sprintf("the master of cell %s, %s, which does not answer from here", r.cell, status.Named), ""
	case status.Master == "":
		status.Cell = r.cell // perhaps no replica has answered
		return "a master of " + replicasOf(status), ""
	}
	for _, p := range []api.Path{r.path, r.path.Parent()} { // creating a node changes its directory
		if p.IsZero() {
			continue
		}
		if e, err := c.Explain(ctx, p.String()); err == nil {
			if found, until := lateCachers(p, e.Cachers); found != "" {
				return found, until
			}
		}
	}
	return fmt.Sprintf("the master of cell %s, %s", r.cell, status.Master), ""
}

// replicasOf says how many replicas answer: "cell foo, of whose 5 replicas 2 answer and 3 are needed".
func replicasOf(s client.Status) string {
	answer := 0
	for _, r := range s.Replicas {
		if r.Err == nil {
			answer++
		}
	}
	return fmt.Sprintf("cell %s, of whose %s %d answer and %d are needed", s.Cell, term.Counted(len(s.Replicas), "replica"), answer, len(s.Replicas)/2+1)
}

// lateCachers names the clients whose caches delay a node's change, and the time limit; "" if no change waits.
func lateCachers(p api.Path, cachers []client.Cacher) (found, until string) {
	var names []string
	var longest time.Duration
	for _, c := range cachers {
		if c.Waiting > 0 {
			names, longest = append(names, whoIs(c.Holder)), max(longest, c.AtMost)
		}
	}
	if len(names) == 0 {
		return "", ""
	}
	const limit = 3
	if len(names) > limit {
		names = append(names[:limit], fmt.Sprintf("%d more", len(names)-limit))
	}
	return fmt.Sprintf("%s to drop %v from the cache ('chubbyctl explain' says more)", strings.Join(names, ", "), p), ", at most another " + term.Roughly(longest)
}

// withReport runs f within --timeout, and reports what it waits for when that takes long. The error of a
// timeout says it too.
func (g *globals) withReport(ctx context.Context, cell string, path api.Path, f func(context.Context) error) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	report := g.reportWaitUntil(ctx, cell, path, "--timeout", g.timeout)
	err := f(ctx)
	return report.explain(err)
}

// explain ends the report, and adds the latest cause to an error of a timeout.
func (r *waitReport) explain(err error) error {
	last := r.stop()
	if code := exitCode(err); last == "" || code != exitUnavailable && code != exitUncertain {
		return err
	}
	return fmt.Errorf("%w; it waited for %s", err, last)
}

// outOfTime is the cause of a context that --timeout has ended.
type outOfTime struct{ after time.Duration }

func (o outOfTime) Error() string {
	return fmt.Sprintf("the cell did not answer within %v; raise --timeout, or look at 'chubbyctl cell status'", o.after)
}

func (o outOfTime) Unwrap() error { return context.DeadlineExceeded }

type lockWait struct {
	o        *workOptions
	early    string // the text until the cell reports the queue
	progress *term.Progress[waitState]
}

// waitState is the queue as last reported; Place is 0 before that.
type waitState struct {
	client.Queued
	path string // the lock's
}

func (o *workOptions) showWait(early string) *lockWait {
	w := &lockWait{o: o, early: early}
	w.progress = term.NewProgress(waitState.key, w.show)
	return w
}

func (w *lockWait) queued(q client.Queued) { w.queuedFor(w.o.path.String(), q) }

// queuedFor is queued for one of several locks.
func (w *lockWait) queuedFor(path string, q client.Queued) { w.progress.Update(waitState{q, path}) }

func (w *lockWait) describe(s waitState) string {
	if s.Place == 0 {
		return w.early
	}
	return s.String()
}

func (w *lockWait) show(s waitState) {
	if w.o.quiet {
		return
	}
	if !w.o.json() {
		term.Remark(w.o.err, "waiting for %s: %s", cmp.Or(s.path, w.o.path.String()), w.describe(s))
		return
	}
	f := term.Fields{
		"path", cmp.Or(s.path, w.o.path.String()), "place", s.Place, "waiting", s.Waiting, "holders", term.Each(s.Holders, holderFields),
		"delayed_s", term.Seconds(s.Delayed), "estimate_s", term.SecondsOrNull(s.Estimate),
	}.With("more_holders", s.MoreHolders)
	_ = w.o.output.Print(w.o.err, term.Fields{"waiting", f}) // if it cannot be written, nobody reads it
}

// key is equal for states that differ only in time.
func (s waitState) key() string {
	key := fmt.Sprintf("%s %d/%d delayed %t", s.path, s.Place, s.Waiting, s.Delayed > 0)
	for _, h := range s.Holders {
		key += " " + h.Session.String()
	}
	return key
}

// String describes the wait: "held by ..., place 2 of 5, perhaps 4m more".
func (s waitState) String() string {
	var text string
	switch {
	case s.Delayed > 0:
		text = fmt.Sprintf("a holder failed, and nobody may have the lock for another %s", term.Roughly(s.Delayed))
	case len(s.Holders) > 0:
		text = heldBy(s.Holders)
		if s.MoreHolders > 0 {
			text += fmt.Sprintf(" and %d more", s.MoreHolders)
		}
	default:
		text = "others are before"
	}
	text += fmt.Sprintf(", place %d of %d", s.Place, s.Waiting)
	if s.Estimate > s.Delayed { // else the text has the delay
		text += ", perhaps " + term.Guess(s.Estimate) + " more"
	}
	return text
}
