package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// drillSlack is how long a drill waits, besides what it does, for the cell to serve again and for clients to return.
const drillSlack = 10 * time.Second

// cellView is who has sessions and locks at one moment.
type cellView struct {
	master   string
	epoch    api.Epoch
	sessions map[api.SessionID]client.SessionInfo
	locks    map[string]client.LockInfo // that are held
}

// look looks at the cell.
func look(ctx context.Context, c *client.Cell, cell string) (*cellView, error) {
	v := &cellView{sessions: map[api.SessionID]client.SessionInfo{}, locks: map[string]client.LockInfo{}}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	v.master, v.epoch = status.Master, status.Epoch
	for s, err := range c.EachSession(ctx) {
		if err != nil {
			return nil, err
		}
		v.sessions[s.Session] = s
	}
	for l, err := range c.EachLock(ctx, "/"+api.Root+"/"+cell) {
		if err != nil {
			return nil, err
		}
		if len(l.Holders) > 0 {
			v.locks[l.Path] = l
		}
	}
	return v, nil
}

// run does the drill. r is filled as far as the drill came.
func (o *drillOptions) run(ctx context.Context, r *drillReport) error {
	opening, cancel := o.withTimeout(ctx)
	defer cancel()
	operator, err := client.New(opening, o.config(o.cell))
	if err != nil {
		return err
	}
	defer o.closeSession(ctx, operator)
	work, err := o.beginWork(opening)
	if err != nil {
		return err
	}
	defer o.closeSession(ctx, work.client)
	defer func() { r.measured(work.stop()) }()
	if o.session == operator.Session() || o.session == work.client.Session() {
		return usagef("drill session-loss: %v is the drill's own session", o.session)
	}
	before, err := look(opening, operator.Cell(), o.cell)
	if err != nil {
		return err
	}
	if _, there := before.sessions[o.session]; o.session != 0 && !there {
		_, err := findSession(opening, operator.Cell(), o.cell, o.session)
		return cmp.Or(err, error(api.Errorf(api.NotFound, "%v: the session has just begun; try again", o.session)))
	}
	delete(before.sessions, operator.Session())
	delete(before.sessions, work.client.Session())
	during, end := context.WithCancel(ctx)
	defer end()
	work.count()
	// The call that begins it bounds its own time; the drill lasts as long as during.
	wait, err := o.beginDrill(opening, during, operator)
	if err != nil {
		return err
	}
	r.begun, r.Cell = true, o.cell
	r.before(before)
	acted := o.act(during, operator, wait, before, r)
	return errors.Join(acted, o.review(ctx, operator.Cell(), work, before, r))
}

// beginDrill has the cell begin the drill, for as long as during lasts, and returns what waits for its end.
func (o *drillOptions) beginDrill(opening, during context.Context, operator *client.Client) (func() error, error) {
	within, cancel := context.WithCancelCause(during)
	stop := context.AfterFunc(opening, func() { cancel(context.Cause(opening)) })
	length := api.MaxDrill
	if o.kind == client.DrillOutage {
		length = o.length
	}
	_, wait, err := client.BeginDrill(within, operator, client.Drill{Kind: o.kind, For: length, Reason: o.reason})
	stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return func() error {
		defer cancel(nil)
		return wait()
	}, nil
}

// act does what the drill is about.
func (o *drillOptions) act(ctx context.Context, operator *client.Client, wait func() error, before *cellView, r *drillReport) error {
	switch o.kind {
	case client.DrillFailOver:
		transferring, cancel := o.withTimeout(ctx)
		defer cancel()
		_, err := operator.Transfer(transferring, o.to)
		return err
	case client.DrillOutage:
		return wait()
	case client.DrillSessionLoss:
		return o.loseSession(ctx, operator, before, r)
	case client.DrillSlowClient:
		return o.fallSilent(ctx, r)
	}
	return nil // the master does it
}

// review waits until the cell serves again and the clients have returned, and looks at it. An interrupt does not keep it from that: the
// next one does, as it ends the process.
func (o *drillOptions) review(ctx context.Context, c *client.Cell, work *drillWork, before *cellView, r *drillReport) error {
	longest := time.Duration(0)
	for _, s := range before.sessions {
		longest = max(longest, s.Lease)
	}
	bound, interrupted := drillSlack+longest, hasEnded(ctx)
	if interrupted {
		bound = drillSlack
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), bound, outOfTime{bound})
	defer cancel()
	if o.kind == client.DrillHardFailOver {
		pauseFor(ctx, time.Second) // it may not have begun
	}
	if err := work.awaitAnswer(ctx); err != nil {
		return err
	}
	if !interrupted {
		pauseFor(ctx, time.Second) // what goes wrong after it belongs to it
	}
	for {
		after, err := look(ctx, c, o.cell)
		if err != nil {
			return err
		}
		waiting := false
		for id, s := range after.sessions {
			_, old := before.sessions[id]
			waiting = waiting || old && s.Unheard
		}
		if !waiting || interrupted {
			r.after(before, after)
			r.explain(ctx, c)
			return nil
		}
		if pauseFor(ctx, drillLookAgain); ctx.Err() != nil {
			r.after(before, after)
			return nil
		}
	}
}

// drillLookAgain is between two looks at the sessions of a cell.
const drillLookAgain = 250 * time.Millisecond

// pauseFor waits, at most until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
