package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

const (
	reportAfter       = 2 * time.Second        // how long an operation may take without a word
	reportEvery       = 2 * time.Second        // between two looks at what it waits for
	reportBound       = 3 * time.Second        // for one look
	reportCallTimeout = 700 * time.Millisecond // for one replica to answer it
)

// waitReport says on standard error what an operation waits for, once it takes long,
// and again when that changes. It asks the cell like anybody else, beside the
// operation. Its goroutine has ended when stop returns.
type waitReport struct {
	g      *globals
	cell   string
	path   api.Path             // what is operated on; zero if that is the whole cell
	watch  func() time.Duration // since the operation began
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex // guards last
	last string     // what was found last, without what changes by itself
}

// reportWait begins one, which ends with ctx or by stop.
func (g *globals) reportWait(ctx context.Context, cell string, path api.Path) *waitReport {
	v := &waitReport{g: g, cell: cell, path: path, watch: stopwatch(), done: make(chan struct{})}
	ctx, v.cancel = context.WithCancel(ctx)
	go func() {
		defer close(v.done)
		if g.stderr != nil {
			v.runReport(ctx)
		}
	}()
	return v
}

// stop ends it, and returns what was found last.
func (v *waitReport) stop() string {
	v.cancel()
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

func (v *waitReport) runReport(ctx context.Context) {
	timer := time.NewTimer(reportAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found, until := v.findCause(ctx)
		if ctx.Err() != nil {
			return // the look was cut short
		}
		v.mu.Lock()
		changed := found != v.last
		v.last = found
		v.mu.Unlock()
		if changed {
			v.g.notice(v.g.stderr, fmt.Sprintf("waiting for %s%s; --timeout gives up in %s", found, until, term.Roughly(v.g.timeout-v.watch())))
		}
		timer.Reset(reportEvery)
	}
}

// findCause finds what the operation waits for, and for how long at most.
func (v *waitReport) findCause(ctx context.Context) (found, until string) {
	ctx, cancel := context.WithTimeout(ctx, reportBound)
	defer cancel()
	cfg := v.g.config(v.cell)
	cfg.DialTimeout, cfg.CallTimeout = reportCallTimeout, reportCallTimeout
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return fmt.Sprintf("cell %s, of which nothing is known: %v", v.cell, err), ""
	}
	defer c.Close()
	status, err := c.Status(ctx)
	if err != nil {
		return fmt.Sprintf("cell %s, none of whose replicas answers", v.cell), ""
	}
	switch {
	case status.Master == "" && status.Named != "":
		return fmt.Sprintf("the master of cell %s, %s, which does not answer from here", v.cell, status.Named), ""
	case status.Master == "":
		status.Cell = v.cell // nobody may have said it
		return "a master of " + replicasOf(status), ""
	}
	for _, p := range []api.Path{v.path, v.path.Parent()} { // what is created changes the directory too
		if p.IsZero() {
			continue
		}
		if e, err := c.Explain(ctx, p.String()); err == nil {
			if found, until := lateCachers(p, e.Cachers); found != "" {
				return found, until
			}
		}
	}
	return fmt.Sprintf("the master of cell %s, %s", v.cell, status.Master), ""
}

// replicasOf counts those who answer: "cell foo, of whose 5 replicas 2 answer and
// 3 are needed".
func replicasOf(s client.Status) string {
	answer := 0
	for _, r := range s.Replicas {
		if r.Err == nil {
			answer++
		}
	}
	return fmt.Sprintf("cell %s, of whose %s %d answer and %d are needed", s.Cell, term.Counted(len(s.Replicas), "replica"), answer, len(s.Replicas)/2+1)
}

// lateCachers names those in whose caches a node still is, and how long a change
// waits for them at most; nobody if no change waits.
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
	const most = 3
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return fmt.Sprintf("%s to drop %v from the cache ('chubbyctl explain' says more)", strings.Join(names, ", "), p), ", at most another " + term.Roughly(longest)
}

// withReport runs f within --timeout, and says what it waits for when that takes
// long. An error for want of an answer says it too.
func (g *globals) withReport(ctx context.Context, cell string, path api.Path, f func(context.Context) error) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	v := g.reportWait(ctx, cell, path)
	err := f(ctx)
	return v.explain(err)
}

// explain ends the vigil, and adds what it found to an error that came of
// waiting too long.
func (v *waitReport) explain(err error) error {
	last := v.stop()
	if last == "" || exitCode(err) != exitUnavailable {
		return err
	}
	return fmt.Errorf("%w; it waited for %s", err, last)
}

// outOfTime is why an operation on a cell was given up.
type outOfTime struct{ after time.Duration }

func (o outOfTime) Error() string {
	return fmt.Sprintf("the cell did not answer within %v; raise --timeout, or look at 'chubbyctl cell status'", o.after)
}

// Unwrap makes it what it is for those who ask.
func (o outOfTime) Unwrap() error { return context.DeadlineExceeded }
