package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

const (
	drillPace  = 10 * time.Millisecond                            // between two writes of the drill's own session
	drillLook  = 50 * time.Millisecond                            // between two looks at the cell afterwards
	drillAfter = 3 * time.Second                                  // faults within this time after a drill belong to it
	drillSlack = 10 * time.Second                                 // for the look after an interrupt
	drillLong  = 10*time.Second + api.MaxLease + api.MaxLockDelay // until all clients have returned, or lost their holdings
)

// drilling is a drill that is done, and what it has seen.
type drilling struct {
	*drillOptions
	before, after    *cellView     // after: nil until the cell is reached again
	held             []*heldBefore // by path
	events           []term.Fields
	file             string        // of the drill's own session, which keeps writing it
	calls            int           // of that session, answered
	noAnswer, silent time.Duration // the longest time without an answer for it, and how long a slow client was silent
}

// heldBefore is a lock that was held before the drill.
type heldBefore struct {
	was, is         client.LockInfo
	before, holders []term.Fields // as they were seen; holders: empty if it is free
	changed         bool          // it is held by others, or free
	after           *float64      // from the drill until it was seen so, in seconds; nil if that took too long
	why             string        // the earlier holding has ended; "" if unknown
}

func (o *drillOptions) perform(ctx context.Context) error {
	d := &drilling{drillOptions: o, events: []term.Fields{}}
	begun, err := d.run(ctx)
	if !begun {
		return err
	}
	what, longest := d.longestTime()
	interrupted, within := hasEnded(ctx), o.limit == 0 || longest <= o.limit.Seconds()
	err = afterSteps(true, err)
	printErr := o.output.Show(o.out, d.fields(interrupted, within), func(p *term.Page) {
		if interrupted {
			p.Sentence("The drill was interrupted, and has ended.")
		}
		d.drawReport(p)
	})
	switch {
	case printErr != nil:
		return errors.Join(err, printErr)
	case interrupted:
		return cmp.Or(err, context.Cause(ctx))
	case err == nil && !within:
		return &exitError{exitOverLimit, fmt.Errorf("drill %v: %s of %.3fs is longer than --limit %v", o.kind, what, longest, o.limit)}
	}
	return err
}

// run does the drill, with a session of its own that keeps writing a file and sees what other clients see.
func (d *drilling) run(ctx context.Context) (begun bool, err error) {
	opening, cancel := d.withTimeout(ctx)
	defer cancel()
	watch, cfg := stopwatch(), d.config(d.cell)
	cfg.OnState = func(s client.StateChange) { // until the session is closed
		if !errors.Is(s.Err, client.Closed) && len(d.events) < api.MaxListed {
			d.events = append(d.events, term.Fields{"at_s", term.Seconds(watch()), "what", s.State.String()})
		}
	}
	c, err := client.New(opening, cfg)
	if err != nil {
		return false, err
	}
	defer d.closeSession(ctx, c)
	d.file = fmt.Sprintf("%s/drill-%v", d.dir, c.Session())
	h, err := c.Open(opening, d.file, client.OpenOptions{Read: true, Write: true, Create: client.File, Kind: api.File, Ephemeral: true})
	if err != nil {
		return false, fmt.Errorf("the drill needs a file of its own; --dir names a directory in which you may write: %w", err)
	}
	d.own = append(d.own, c.Session())
	if d.before, err = d.lookAtCell(opening, c.Cell()); err != nil {
		return false, err
	}
	for _, path := range slices.Sorted(maps.Keys(d.before.locks)) {
		if l := d.before.locks[path]; len(l.Holders) > 0 {
			d.held = append(d.held, &heldBefore{was: l, before: term.Each(l.Holders, holderFields)})
		}
	}
	act, speak, err := d.act(opening, c)
	if err != nil {
		return false, err
	}
	defer speak()
	defer d.write(context.WithoutCancel(ctx), h)()
	acting, cancel := context.WithTimeoutCause(ctx, d.length+d.timeout, outOfTime{d.length + d.timeout})
	defer cancel()
	from := watch()
	err = act(acting)
	switch d.silent = watch() - from; {
	case err != nil && !hasEnded(ctx) && !errors.Is(err, api.Uncertain):
		return false, err
	case err == nil && d.silent < d.length:
		err = api.Errorf(api.Unavailable, "the %s ended after %v, before its time: another replica was elected", d.kind, d.silent.Round(time.Millisecond))
	}
	return true, errors.Join(err, d.review(ctx, c.Cell()))
}

// act returns what the drill does, by a session, and what ends that in any case.
func (d *drilling) act(opening context.Context, c *client.Client) (act func(context.Context) error, end func(), err error) {
	switch d.kind {
	case drillSessionLoss:
		return func(ctx context.Context) error {
			return c.EndSession(ctx, d.session, cmp.Or(d.reason, "a drill (chubbyctl drill session-loss)"))
		}, func() {}, nil
	case drillSlowClient:
		slow, speak, err := d.openSlow(opening)
		return func(ctx context.Context) error {
			defer speak()
			sleep(ctx, d.length)
			return context.Cause(ctx)
		}, func() { speak(); d.closeSession(opening, slow) }, err
	}
	return func(ctx context.Context) error { // has the cell elect another master, after an outage if there is to be one
		_, err := client.TransferWith(ctx, c, client.TransferOptions{To: d.to, Why: d.reason, Silent: d.kind != drillFailOver, Vacant: d.length})
		return err
	}, func() {}, nil
}

// write keeps writing the drill's file until stop is called, which waits for its end.
func (d *drilling) write(ctx context.Context, h *client.Handle) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	watch, done := stopwatch(), make(chan struct{})
	go func() {
		defer close(done)
		for answered := time.Duration(0); ctx.Err() == nil; sleep(ctx, drillPace) {
			_, err := h.SetContents(ctx, []byte("drill"))
			now := watch()
			if d.noAnswer = max(d.noAnswer, now-answered); err == nil {
				answered, d.calls = now, d.calls+1
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// openSlow opens a session with a cached file that then receives and sends nothing, like a stopped process,
// until speak is called.
func (d *drilling) openSlow(ctx context.Context) (c *client.Client, speak func(), err error) {
	hush := make(chan struct{}, 1) // full while it is silent
	speak = sync.OnceFunc(func() { <-hush })
	cfg := d.config(d.cell)
	cfg.NoCache = false
	dial := cfg.Dialer
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		return hushedConn{conn, hush}, err
	}
	if c, err = client.New(ctx, cfg); err != nil {
		return nil, nil, err
	}
	h, err := c.Open(ctx, d.file, client.OpenOptions{Read: true, Kind: api.File})
	for err == nil && c.Stats().Cache.Hits == 0 { // it may have no cache lease yet
		_, _, err = h.Contents(ctx)
		sleep(ctx, drillPace)
	}
	if err != nil {
		d.closeSession(ctx, c)
		return nil, nil, err
	}
	d.own = append(d.own, c.Session())
	hush <- struct{}{}
	return c, speak, nil
}

type hushedConn struct {
	net.Conn
	hush chan struct{}
}

func (c hushedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c hushedConn) Write(p []byte) (int, error) {
	c.pass()
	return c.Conn.Write(p)
}

func (c hushedConn) pass() {
	c.hush <- struct{}{}
	<-c.hush
}

// review watches the cell until it serves again and the clients have returned, and then asks why holdings
// ended. An interrupt still allows one look; the next one ends the process.
func (d *drilling) review(interrupt context.Context, c *client.Cell) error {
	watch := stopwatch()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(interrupt))
	defer cancel(nil)
	endIn := func(after time.Duration) { time.AfterFunc(after, func() { cancel(outOfTime{after}) }) }
	endIn(drillLong)
	defer context.AfterFunc(interrupt, func() { endIn(drillSlack) })()
	for settled := false; !settled || watch() <= drillAfter; {
		began := watch()
		after, err := d.lookAtCell(ctx, c)
		if err != nil && d.after != nil && hasEnded(ctx) {
			break // what was seen is reported
		}
		if err != nil {
			return err
		}
		settled = d.compare(after, term.Seconds(watch()))
		if hasEnded(interrupt) {
			break
		}
		sleep(interrupt, max(drillLook, 5*(watch()-began)))
	}
	for _, one := range d.changedLocks() {
		h, _ := c.History(ctx, one.was.Path) // without an answer it stays unknown
		for _, holding := range h.Holdings {
			if holding.Generation == one.was.Generation && holding.End != 0 {
				one.why = howEnded(holding.End)
			}
		}
	}
	return nil
}

// compare records the cell at a time after the drill. It reports whether its clients have returned, and the
// locks of an ended session have passed on.
func (d *drilling) compare(after *cellView, at float64) (settled bool) {
	d.after, settled = after, true
	for id := range d.before.sessions {
		s, there := after.sessions[id]
		settled = settled && !s.Unheard && !(there && id == d.session)
	}
	for _, one := range d.held {
		one.is = after.locks[one.was.Path]
		one.holders = term.Each(one.is.Holders, holderFields)
		one.changed = one.was.Generation != one.is.Generation || slices.ContainsFunc(one.was.Holders, func(h api.Holder) bool { return !holds(one.is, h.Session) })
		if one.changed && one.after == nil && (len(one.is.Holders) > 0 || one.is.Delayed == 0 && len(one.is.Waiters) == 0) {
			one.after = &at
		}
		settled = settled && (!holds(one.was, d.session) || one.after != nil)
	}
	return settled
}

// changedLocks returns the locks that have other holders than before, or none.
func (d *drilling) changedLocks() []*heldBefore {
	return slices.DeleteFunc(slices.Clone(d.held), func(one *heldBefore) bool { return !one.changed })
}

// goneSessions returns the sessions that have ended.
func (d *drilling) goneSessions() (list []client.SessionInfo) {
	for _, id := range slices.Sorted(maps.Keys(d.before.sessions)) {
		if d.after != nil && d.after.sessions[id].Session == 0 {
			list = append(list, d.before.sessions[id])
		}
	}
	return list
}

// longestTime returns what --limit limits, in seconds.
func (d *drilling) longestTime() (what string, took float64) {
	if d.session == 0 {
		return "the longest time without an answer", term.Seconds(d.noAnswer)
	}
	for _, one := range d.held {
		switch {
		case !holds(one.was, d.session):
		case one.after == nil:
			took = math.Inf(1)
		default:
			took = max(took, *one.after)
		}
	}
	return "the longest time of a lock without a holder", took
}

// fields returns the report for -o json. What is not known of the cell afterwards is empty or null.
func (d *drilling) fields(interrupted, within bool) term.Fields {
	master, epoch, kept := "", (*api.Epoch)(nil), 0
	if d.after != nil {
		master, epoch, kept = d.after.master, &d.after.epoch, len(d.held)-len(d.changedLocks())
	}
	var slow term.Fields
	if d.kind == drillSlowClient { // the writer waits
		slow = term.Fields{
			"file", d.file, "silent_s", term.Seconds(d.silent), "writes", d.calls, "longest_wait_s", term.Seconds(d.noAnswer),
			"at_most_s", term.Seconds(api.CacheLease),
		}
	}
	changed := term.Each(d.changedLocks(), func(l *heldBefore) term.Fields {
		return term.Fields{"path", l.was.Path, "before", l.before, "holders", l.holders, "after_s", l.after, "why", l.why}
	})
	return term.Fields{
		"drill", d.kind, "done", true, "interrupted", interrupted, "cell", d.cell, "limit_s", term.SecondsOrNull(d.limit), "within_limit", within,
		"no_answer_s", term.Seconds(d.noAnswer), "calls", d.calls, "events", d.events,
		"master_before", d.before.master, "master_after", master, "epoch_before", d.before.epoch, "epoch_after", epoch,
		"sessions_before", len(d.before.sessions), "sessions_gone", listOf(term.Each(d.goneSessions(), sessionFields)),
		"locks_before", len(d.held), "locks_kept", kept, "locks_changed", listOf(changed),
	}.With("slow_client", slow)
}

func (d *drilling) drawReport(p *term.Page) {
	say := p.Sentence
	say("Calls had no answer for %v at the longest (%s of the drill's own session were answered).", d.noAnswer.Round(time.Millisecond), term.Counted(d.calls, "call"))
	for _, e := range d.events {
		say("  after %.1fs that session was %s", e[1], e[3])
	}
	if d.kind == drillSlowClient {
		silent, longest, until := term.Seconds(d.silent), term.Seconds(d.noAnswer), ""
		if d.noAnswer >= api.CacheLease || longest < silent-0.1 {
			until = fmt.Sprintf(", until its cache lease of %v was over", api.CacheLease)
		}
		say("A client that cached %s was silent for %.1fs. The longest write waited %.2fs for it%s.", d.file, silent, longest, until)
	}
	if d.after == nil {
		say("How the cell is afterwards is not known; before, %s was the master in epoch %d. See chubbyctl cell status.", d.before.master, d.before.epoch)
		return
	}
	gone, changed := d.goneSessions(), d.changedLocks()
	say("The master was %s (epoch %d), and is %s (epoch %d).", d.before.master, d.before.epoch, term.OrDash(d.after.master), d.after.epoch)
	say("Sessions before: %d, of which %d have ended, by a loss or by themselves. Locks held before: %d, of which %d have the same holders.",
		len(d.before.sessions), len(gone), len(d.held), len(d.held)-len(changed))
	for _, s := range gone[:min(len(gone), api.MaxListed)] {
		say("  session %v of %s on %s, which held %s, is gone", s.Session, cmp.Or(s.Principal, "somebody"), s.Host, term.Counted(s.Locks, "lock"))
	}
	for _, l := range changed[:min(len(changed), api.MaxListed)] {
		now := "nobody has it"
		if len(l.is.Holders) > 0 {
			now = "now it is " + heldBy(l.is.Holders)
		}
		if l.after != nil {
			now += fmt.Sprintf(", since %.1fs after the drill", *l.after)
		}
		say("  %s was %s; that ended (%s), and %s", l.was.Path, heldBy(l.was.Holders), cmp.Or(l.why, "why is not known"), now)
	}
}
