package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

const (
	drillPace  = 10 * time.Millisecond                        // between two writes of the drill's own session
	drillLook  = 50 * time.Millisecond                        // between two looks at the cell afterwards
	drillAfter = 3 * time.Second                              // faults within this time after a drill belong to it
	drillSlack = 10 * time.Second                             // until the cell answers again
	drillLong  = drillSlack + api.MaxLease + api.MaxLockDelay // until all clients have returned, or lost their holdings
)

// run does the drill, with a session of its own that keeps writing a file and sees what other clients see. It
// returns no report if the drill did not begin.
func (o *drillOptions) run(ctx context.Context) (r *drillReport, err error) {
	opening, cancel := o.withTimeout(ctx)
	defer cancel()
	one := &drillReport{Drill: o.kind, Done: true, Cell: o.cell, Events: []drillEvent{}, passed: map[string]*float64{}}
	watch, cfg := stopwatch(), o.config(o.cell)
	cfg.OnState = func(s client.StateChange) { // until the session is closed
		if !errors.Is(s.Err, client.Closed) && len(one.Events) < api.MaxListed {
			one.Events = append(one.Events, drillEvent{term.Seconds(watch()), s.State.String()})
		}
	}
	c, err := client.New(opening, cfg)
	if err != nil {
		return nil, err
	}
	defer o.closeSession(ctx, c)
	file := fmt.Sprintf("%s/drill-%v", o.dir, c.Session())
	h, err := c.Open(opening, file, client.OpenOptions{Read: true, Write: true, Create: client.File, Kind: api.File, Ephemeral: true})
	if err != nil {
		return nil, fmt.Errorf("the drill needs a file of its own; --dir names a directory in which you may write: %w", err)
	}
	o.own = append(o.own, c.Session())
	before, err := o.look(opening, c.Cell())
	if err != nil {
		return nil, err
	}
	act := o.failOver
	switch o.kind {
	case drillSessionLoss:
		act, one.Loss = o.loseSession, &lossFields{Session: o.session.String(), Locks: []*changedFields{}}
	case drillSlowClient:
		slow, err := o.openSlow(opening, cmp.Or(o.file, file))
		if err != nil {
			return nil, err
		}
		defer slow.close(ctx)
		act, one.Slow = slow.wait, &slow.slowFields
	}
	one.MasterBefore, one.EpochBefore, one.SessionsBefore = before.master, uint64(before.epoch), len(before.sessions)
	defer o.write(context.WithoutCancel(ctx), h, one)()
	begun := watch()
	err = act(ctx, c)
	switch took := watch() - begun; {
	case err != nil && !hasEnded(ctx) && !errors.Is(err, api.Uncertain):
		return nil, err
	case err == nil && took < o.length:
		err = api.Errorf(api.Unavailable, "the %s ended after %v, before its time: another replica was elected", o.kind, took.Round(time.Millisecond))
	}
	return one, errors.Join(err, o.review(ctx, c.Cell(), before, one))
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
		if r.Slow != nil && o.file == "" { // the writer waits
			r.Slow.Writes, r.Slow.LongestS = r.Calls, r.NoAnswerS
		}
		if limit := term.Seconds(o.limit); limit > 0 {
			r.LimitS = &limit
		}
		_, longest := r.longest()
		r.WithinLimit = r.LimitS == nil || longest <= *r.LimitS
	}
}

// failOver makes the cell elect another master, after an outage if requested.
func (o *drillOptions) failOver(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.length+o.timeout, outOfTime{o.length + o.timeout})
	defer cancel()
	_, err := client.TransferWith(ctx, c, client.TransferOptions{To: o.to, Why: o.reason, Silent: o.kind != drillFailOver, Vacant: o.length})
	return err
}

func (o *drillOptions) loseSession(ctx context.Context, c *client.Client) error {
	ctx, cancel := o.withTimeout(ctx)
	defer cancel()
	return c.EndSession(ctx, o.session, cmp.Or(o.reason, "a drill (chubbyctl drill session-loss)"))
}

// review watches the cell until it serves again and the clients have returned. An interrupt still allows one
// look; the next one ends the process.
func (o *drillOptions) review(ctx context.Context, c *client.Cell, before *cellView, r *drillReport) error {
	interrupted, bound := hasEnded(ctx), drillLong
	if interrupted {
		bound = drillSlack
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), bound, outOfTime{bound})
	defer cancel()
	for watch := stopwatch(); ; {
		began := watch()
		after, err := o.look(ctx, c)
		switch {
		case err != nil && r.EpochAfter != nil && hasEnded(ctx):
			return nil // what was seen is reported
		case err != nil:
			return err
		}
		if settled := r.compare(o, before, after, term.Seconds(watch())); settled && watch() > drillAfter || interrupted {
			r.explain(ctx, c)
			return nil
		}
		sleep(ctx, max(drillLook, 5*(watch()-began)))
	}
}

type slowFields struct {
	File     string  `json:"file"`
	SilentS  float64 `json:"silent_s"`
	Writes   int     `json:"writes"` // of the drill's own session; 0 with --file
	LongestS float64 `json:"longest_wait_s"`
	AtMostS  float64 `json:"at_most_s"` // the cache lease: no write waits longer for one client
}

// slowClient is a session with a cached file. While hush is full it receives and sends nothing, like a stopped
// process.
type slowClient struct {
	slowFields
	*drillOptions
	hush   chan struct{}
	speak  func() // ends the silence
	client *client.Client
}

func (o *drillOptions) openSlow(ctx context.Context, file string) (*slowClient, error) {
	s := &slowClient{drillOptions: o, hush: make(chan struct{}, 1)}
	s.File, s.AtMostS = file, term.Seconds(api.CacheLease)
	s.speak = sync.OnceFunc(func() { <-s.hush })
	cfg := o.config(o.cell)
	cfg.NoCache = false
	dial := cfg.Dialer
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return hushedConn{conn, s}, nil
	}
	var err error
	if s.client, err = client.New(ctx, cfg); err != nil {
		return nil, err
	}
	h, err := s.client.Open(ctx, file, client.OpenOptions{Read: true, Kind: api.File})
	for err == nil && s.client.Stats().Cache.Hits == 0 { // it may have no cache lease yet
		_, _, err = h.Contents(ctx)
		sleep(ctx, drillPace)
	}
	o.own = append(o.own, s.client.Session())
	if s.hush <- struct{}{}; err != nil {
		s.close(ctx)
	}
	return s, err
}

func (s *slowClient) close(ctx context.Context) {
	s.speak()
	s.closeSession(ctx, s.client)
}

// wait waits for the length of the silence. With --file it measures how long others' writes wait.
func (s *slowClient) wait(ctx context.Context, c *client.Client) error {
	defer s.speak()
	watch := stopwatch()
	for watch() < s.length && !hasEnded(ctx) {
		if s.file != "" {
			e, err := c.Cell().Explain(ctx, s.File)
			if err != nil {
				return err
			}
			for _, one := range e.Cachers {
				if one.Session == s.client.Session() {
					s.LongestS = max(s.LongestS, term.Seconds(one.Waiting))
				}
			}
		}
		sleep(ctx, min(drillLook, s.length-watch()))
	}
	s.SilentS = term.Seconds(watch())
	return context.Cause(ctx)
}

type hushedConn struct {
	net.Conn
	of *slowClient
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
	c.of.hush <- struct{}{}
	<-c.of.hush
}
