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

type drillReport struct {
	Drill       string   `json:"drill"`
	Done        bool     `json:"done"` // true
	Interrupted bool     `json:"interrupted"`
	Cell        string   `json:"cell"`
	LimitS      *float64 `json:"limit_s"` // null without --limit
	WithinLimit bool     `json:"within_limit"`

	NoAnswerS float64      `json:"no_answer_s"` // the longest silence for the drill's own session
	Calls     int          `json:"calls"`       // answered calls of that session
	Events    []drillEvent `json:"events"`

	MasterBefore string  `json:"master_before"`
	MasterAfter  string  `json:"master_after"` // empty if unknown
	EpochBefore  uint64  `json:"epoch_before"`
	EpochAfter   *uint64 `json:"epoch_after"` // null if the cell was not reached afterwards

	SessionsBefore int                   `json:"sessions_before"`
	SessionsGone   listed[sessionFields] `json:"sessions_gone"`
	LocksBefore    int                   `json:"locks_before"`
	LocksKept      int                   `json:"locks_kept"`
	LocksChanged   listed[*heldBefore]   `json:"locks_changed"`

	Slow *slowFields `json:"slow_client,omitempty"`

	held     []*heldBefore // a victim's, or all
	noAnswer time.Duration
}

type listed[T any] struct {
	List []T `json:"list"`
}

type drillEvent struct {
	AtS  float64 `json:"at_s"` // since the beginning
	What string  `json:"what"`
}

// heldBefore is a lock that was held before the drill.
type heldBefore struct {
	Path    string         `json:"path"`
	Before  []holderFields `json:"before"`
	Holders []holderFields `json:"holders"` // the new ones; empty if free
	AfterS  *float64       `json:"after_s"` // from the drill until it was seen with them, or free; null if that took too long
	Why     string         `json:"why"`     // of the end of the earlier holding; "" if unknown

	was, is client.LockInfo
}

type slowFields struct {
	File     string  `json:"file"`
	SilentS  float64 `json:"silent_s"`
	Writes   int     `json:"writes"` // of the drill's own session
	LongestS float64 `json:"longest_wait_s"`
	AtMostS  float64 `json:"at_most_s"` // the cache lease: no write waits longer for one client
}

func (o *drillOptions) perform(ctx context.Context) error {
	r := &drillReport{
		Drill: o.kind, Done: true, Cell: o.cell, LimitS: term.SecondsOrNull(o.limit), Events: []drillEvent{},
		SessionsGone: listed[sessionFields]{[]sessionFields{}}, LocksChanged: listed[*heldBefore]{[]*heldBefore{}},
	}
	begun, err := o.run(ctx, r)
	if !begun {
		return err
	}
	what, longest := o.longest(r)
	r.Interrupted, r.WithinLimit = hasEnded(ctx), o.limit == 0 || longest <= o.limit.Seconds()
	err = afterSteps(true, err)
	printErr := o.output.Show(o.out, r, func(p *term.Page) { o.drawReport(p, r) })
	switch {
	case printErr != nil:
		return errors.Join(err, printErr)
	case r.Interrupted:
		return cmp.Or(err, context.Cause(ctx))
	case err == nil && !r.WithinLimit:
		return &exitError{exitOverLimit, fmt.Errorf("drill %v: %s of %.3fs is longer than --limit %v", o.kind, what, longest, o.limit)}
	}
	return err
}

// run does the drill, with a session of its own that keeps writing a file and sees what other clients see.
func (o *drillOptions) run(ctx context.Context, r *drillReport) (begun bool, err error) {
	opening, cancel := o.withTimeout(ctx)
	defer cancel()
	watch, cfg := stopwatch(), o.config(o.cell)
	cfg.OnState = func(s client.StateChange) { // until the session is closed
		if !errors.Is(s.Err, client.Closed) && len(r.Events) < api.MaxListed {
			r.Events = append(r.Events, drillEvent{term.Seconds(watch()), s.State.String()})
		}
	}
	c, err := client.New(opening, cfg)
	if err != nil {
		return false, err
	}
	defer o.closeSession(ctx, c)
	file := fmt.Sprintf("%s/drill-%v", o.dir, c.Session())
	h, err := c.Open(opening, file, client.OpenOptions{Read: true, Write: true, Create: client.File, Kind: api.File, Ephemeral: true})
	if err != nil {
		return false, fmt.Errorf("the drill needs a file of its own; --dir names a directory in which you may write: %w", err)
	}
	o.own = append(o.own, c.Session())
	before, err := o.look(opening, c.Cell())
	if err != nil {
		return false, err
	}
	r.MasterBefore, r.EpochBefore, r.SessionsBefore = before.master, uint64(before.epoch), len(before.sessions)
	for _, path := range slices.Sorted(maps.Keys(before.locks)) {
		if l := before.locks[path]; len(l.Holders) > 0 {
			r.held = append(r.held, &heldBefore{Path: l.Path, Before: newHolderList(l.Holders), was: l})
		}
	}
	r.LocksBefore = len(r.held)
	act := func(ctx context.Context) error { // has the cell elect another master, after an outage if there is to be one
		_, err := client.TransferWith(ctx, c, client.TransferOptions{To: o.to, Why: o.reason, Silent: o.kind != drillFailOver, Vacant: o.length})
		return err
	}
	if o.kind == drillSessionLoss {
		act = func(ctx context.Context) error {
			return c.EndSession(ctx, o.session, cmp.Or(o.reason, "a drill (chubbyctl drill session-loss)"))
		}
	}
	if o.kind == drillSlowClient {
		slow, speak, err := o.openSlow(opening, file)
		if err != nil {
			return false, err
		}
		defer func() { speak(); o.closeSession(ctx, slow) }()
		r.Slow = &slowFields{File: file, AtMostS: term.Seconds(api.CacheLease)}
		act = func(ctx context.Context) error {
			defer speak()
			sleep(ctx, o.length)
			return context.Cause(ctx)
		}
	}
	defer o.write(context.WithoutCancel(ctx), h, r)()
	acting, cancel := context.WithTimeoutCause(ctx, o.length+o.timeout, outOfTime{o.length + o.timeout})
	defer cancel()
	from := watch()
	err = act(acting)
	switch took := watch() - from; {
	case err != nil && !hasEnded(ctx) && !errors.Is(err, api.Uncertain):
		return false, err
	case err == nil && took < o.length:
		err = api.Errorf(api.Unavailable, "the %s ended after %v, before its time: another replica was elected", o.kind, took.Round(time.Millisecond))
	case r.Slow != nil:
		r.Slow.SilentS = term.Seconds(took)
	}
	return true, errors.Join(err, o.review(ctx, c.Cell(), before, r))
}

// write keeps writing a file until stop is called, which waits for its end.
func (o *drillOptions) write(ctx context.Context, h *client.Handle, r *drillReport) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	watch, done := stopwatch(), make(chan struct{})
	go func() {
		defer close(done)
		for answered := time.Duration(0); ctx.Err() == nil; sleep(ctx, drillPace) {
			_, err := h.SetContents(ctx, []byte("drill"))
			now := watch()
			if r.noAnswer = max(r.noAnswer, now-answered); err == nil {
				answered, r.Calls = now, r.Calls+1
			}
		}
	}()
	return func() {
		cancel()
		<-done
		r.NoAnswerS = term.Seconds(r.noAnswer)
		if r.Slow != nil { // the writer waits
			r.Slow.Writes, r.Slow.LongestS = r.Calls, r.NoAnswerS
		}
	}
}

// openSlow opens a session with a cached file that then receives and sends nothing, like a stopped process,
// until speak is called.
func (o *drillOptions) openSlow(ctx context.Context, file string) (c *client.Client, speak func(), err error) {
	hush := make(chan struct{}, 1) // full while it is silent
	speak = sync.OnceFunc(func() { <-hush })
	cfg := o.config(o.cell)
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
	h, err := c.Open(ctx, file, client.OpenOptions{Read: true, Kind: api.File})
	for err == nil && c.Stats().Cache.Hits == 0 { // it may have no cache lease yet
		_, _, err = h.Contents(ctx)
		sleep(ctx, drillPace)
	}
	if err != nil {
		o.closeSession(ctx, c)
		return nil, nil, err
	}
	o.own = append(o.own, c.Session())
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
func (o *drillOptions) review(ctx context.Context, c *client.Cell, before *cellView, r *drillReport) error {
	watch, interrupt := stopwatch(), ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(interrupt))
	defer cancel(nil)
	endIn := func(d time.Duration) { time.AfterFunc(d, func() { cancel(outOfTime{d}) }) }
	endIn(drillLong)
	defer context.AfterFunc(interrupt, func() { endIn(drillSlack) })()
	for settled := false; !settled || watch() <= drillAfter; {
		began := watch()
		after, err := o.look(ctx, c)
		if err != nil && r.EpochAfter != nil && hasEnded(ctx) {
			break // what was seen is reported
		}
		if err != nil {
			return err
		}
		settled = o.compare(r, before, after, term.Seconds(watch()))
		if hasEnded(interrupt) {
			break
		}
		sleep(interrupt, max(drillLook, 5*(watch()-began)))
	}
	for _, one := range r.LocksChanged.List {
		h, _ := c.History(ctx, one.Path) // without an answer it stays unknown
		for _, holding := range h.Holdings {
			if holding.Generation == one.was.Generation && holding.End != 0 {
				one.Why = howEnded(holding.End)
			}
		}
	}
	return nil
}

// compare records the cell at a time after the drill. It reports whether its clients have returned, and the
// locks of an ended session have passed on.
func (o *drillOptions) compare(r *drillReport, before, after *cellView, at float64) (settled bool) {
	epoch := uint64(after.epoch)
	r.MasterAfter, r.EpochAfter, settled = after.master, &epoch, true
	r.SessionsGone.List, r.LocksChanged.List = []sessionFields{}, []*heldBefore{}
	for _, id := range slices.Sorted(maps.Keys(before.sessions)) {
		s, there := after.sessions[id]
		if settled = settled && !s.Unheard && !(there && id == o.session); !there {
			r.SessionsGone.List = append(r.SessionsGone.List, newSessionFields(before.sessions[id]))
		}
	}
	for _, one := range r.held {
		one.is = after.locks[one.Path]
		one.Holders = newHolderList(one.is.Holders)
		if one.was.Generation != one.is.Generation || slices.ContainsFunc(one.was.Holders, func(h api.Holder) bool { return !holds(one.is, h.Session) }) {
			r.LocksChanged.List = append(r.LocksChanged.List, one)
			if one.AfterS == nil && (len(one.is.Holders) > 0 || one.is.Delayed == 0 && len(one.is.Waiters) == 0) {
				one.AfterS = &at
			}
		}
		settled = settled && (!holds(one.was, o.session) || one.AfterS != nil)
	}
	r.LocksKept = r.LocksBefore - len(r.LocksChanged.List)
	return settled
}

// longest returns what --limit limits, in seconds.
func (o *drillOptions) longest(r *drillReport) (what string, took float64) {
	if o.session == 0 {
		return "the longest time without an answer", r.NoAnswerS
	}
	for _, one := range r.held {
		switch {
		case !holds(one.was, o.session):
		case one.AfterS == nil:
			took = math.Inf(1)
		default:
			took = max(took, *one.AfterS)
		}
	}
	return "the longest time of a lock without a holder", took
}

func (o *drillOptions) drawReport(p *term.Page, r *drillReport) {
	say := p.Sentence
	if r.Interrupted {
		say("The drill was interrupted, and has ended.")
	}
	say("Calls had no answer for %v at the longest (%s of the drill's own session were answered).", r.noAnswer.Round(time.Millisecond), term.Counted(r.Calls, "call"))
	for _, e := range r.Events {
		say("  after %.1fs that session was %s", e.AtS, e.What)
	}
	if s := r.Slow; s != nil {
		until := ""
		if s.LongestS >= s.AtMostS || s.LongestS < s.SilentS-0.1 {
			until = fmt.Sprintf(", until its cache lease of %v was over", api.CacheLease)
		}
		say("A client that cached %s was silent for %.1fs. The longest write waited %.2fs for it%s.", s.File, s.SilentS, s.LongestS, until)
	}
	if r.EpochAfter == nil {
		say("How the cell is afterwards is not known; before, %s was the master in epoch %d. See chubbyctl cell status.", r.MasterBefore, r.EpochBefore)
		return
	}
	say("The master was %s (epoch %d), and is %s (epoch %d).", r.MasterBefore, r.EpochBefore, term.OrDash(r.MasterAfter), *r.EpochAfter)
	say("Sessions before: %d, of which %d have ended, by a loss or by themselves. Locks held before: %d, of which %d have the same holders.",
		r.SessionsBefore, len(r.SessionsGone.List), r.LocksBefore, r.LocksKept)
	for _, s := range r.SessionsGone.List[:min(len(r.SessionsGone.List), api.MaxListed)] {
		say("  session %s of %s on %s, which held %s, is gone", s.Session, cmp.Or(s.Principal, "somebody"), s.Host, term.Counted(s.Locks, "lock"))
	}
	for _, l := range r.LocksChanged.List[:min(len(r.LocksChanged.List), api.MaxListed)] {
		now := "nobody has it"
		if len(l.is.Holders) > 0 {
			now = "now it is " + heldBy(l.is.Holders)
		}
		if l.AfterS != nil {
			now += fmt.Sprintf(", since %.1fs after the drill", *l.AfterS)
		}
		say("  %s was %s; that ended (%s), and %s", l.Path, heldBy(l.was.Holders), cmp.Or(l.Why, "why is not known"), now)
	}
}
