package main

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// maxHit is how many locks or sessions of a kind a drill lists; the others are counted.
const maxHit = api.MaxListed

// Of a fail-over it is not known before how long it takes; these are long for one that goes well.
const (
	handOverGap = time.Second
	electionGap = 3 * time.Second
)

// drillPlan is whom a drill would hit, as -o json shows it.
type drillPlan struct {
	Drill     string  `json:"drill"`
	Done      bool    `json:"done"` // false
	Cell      string  `json:"cell"`
	Master    string  `json:"master"`
	Epoch     uint64  `json:"epoch"`
	NoAnswerS float64 `json:"no_answer_s"` // for how long calls may have no answer
	Partial   bool    `json:"partial"`     // what follows is only what the caller may see: he is no operator

	Sessions   int `json:"sessions"`
	InJeopardy int `json:"sessions_in_jeopardy"` // whose leases may be over before a master answers
	Lost       int `json:"sessions_lost"`        // and the usual grace period after it
	Locks      int `json:"locks_held"`
	Waiters    int `json:"requests_waiting"`

	Unchecked hits[heldFields]  `json:"without_sequencer"`
	GivenUp   hits[heldFields]  `json:"given_up"` // locks whose holders stop working before a master answers
	Queues    hits[queueFields] `json:"queues"`

	Session *shownFields `json:"session,omitempty"` // that is ended

	gap time.Duration
}

// hits are the first of those that a drill hits.
type hits[T any] struct {
	List []T `json:"list"`
	More int `json:"more"`
}

// add adds one, or counts it.
func (h *hits[T]) add(one T) {
	if len(h.List) < maxHit {
		h.List = append(h.List, one)
	} else {
		h.More++
	}
}

func (h hits[T]) count() int { return len(h.List) + h.More }

// heldFields is a holding of a lock.
type heldFields struct {
	Path       string       `json:"path"`
	Token      uint64       `json:"token"`
	Holder     holderFields `json:"holder"`
	LeftS      float64      `json:"left_s"` // of the lease, at least
	LockDelayS float64      `json:"lock_delay_s"`

	who api.Holder
}

// queueFields is a lock that is waited for.
type queueFields struct {
	Path    string  `json:"path"`
	Waiters int     `json:"waiters"`
	FirstS  float64 `json:"first_waits_s"`
}

// gap is how long calls may have no answer.
func (o *drillOptions) gap() time.Duration {
	switch o.kind {
	case client.DrillFailOver:
		return handOverGap
	case client.DrillHardFailOver:
		return electionGap
	case client.DrillOutage:
		return o.length + handOverGap
	}
	return 0
}

// plan finds out whom the drill would hit.
func (o *drillOptions) plan(ctx context.Context, c *client.Cell) (*drillPlan, error) {
	p := &drillPlan{
		Drill: o.kind.String(), Cell: o.cell, gap: o.gap(), NoAnswerS: term.Seconds(o.gap()),
		Unchecked: hits[heldFields]{List: []heldFields{}}, GivenUp: hits[heldFields]{List: []heldFields{}}, Queues: hits[queueFields]{List: []queueFields{}},
	}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	overview, err := c.Overview(ctx, 1)
	if err != nil {
		return nil, err
	}
	p.Master, p.Epoch, p.Partial = status.Master, uint64(status.Epoch), !overview.Whole
	left := map[api.SessionID]time.Duration{} // of leases
	for s, err := range c.EachSession(ctx) {
		if err != nil {
			return nil, err
		}
		left[s.Session] = s.LeftLeast
		p.Sessions++
		if p.gap > 0 && s.LeftLeast < p.gap {
			p.InJeopardy++
		}
		if s.LeftLeast+api.DefaultGrace < p.gap {
			p.Lost++
		}
	}
	for l, err := range c.EachLock(ctx, "/"+api.Root+"/"+o.cell) {
		if err != nil {
			return nil, err
		}
		p.addLock(o, l, left)
	}
	if o.session != 0 {
		s, err := findSession(ctx, c, o.cell, o.session)
		if err != nil {
			return nil, err
		}
		p.Session = &shownFields{newSessionFields(s.info), s.held}
	}
	return p, nil
}

// addLock adds a lock that the drill may hit.
func (p *drillPlan) addLock(o *drillOptions, l client.LockInfo, left map[api.SessionID]time.Duration) {
	waiters := len(l.Waiters) + l.MoreWaiters
	mine := o.session == 0
	for _, h := range l.Holders {
		mine = mine || h.Session == o.session
	}
	if !mine {
		return
	}
	if len(l.Holders) > 0 {
		p.Locks++
	}
	if waiters > 0 {
		p.Waiters += waiters
		one := queueFields{Path: l.Path, Waiters: waiters}
		for _, w := range l.Waiters {
			one.FirstS = max(one.FirstS, term.Seconds(w.Waiting))
		}
		p.Queues.add(one)
	}
	for _, h := range l.Holders {
		if o.session != 0 && h.Session != o.session {
			continue
		}
		one := heldFields{
			Path: l.Path, Token: uint64(l.Generation), Holder: newHolderFields(h), LeftS: term.Seconds(left[h.Session]), LockDelayS: term.Seconds(h.LockDelay), who: h,
		}
		if !h.Checked {
			p.Unchecked.add(one)
		}
		if until := left[h.Session] + h.LockDelay; p.gap > 0 && until-client.Margin(left[h.Session], h.LockDelay) < p.gap {
			p.GivenUp.add(one)
		}
	}
	if l.MoreHolders > 0 {
		p.Unchecked.More += l.MoreHolders // of them nothing is known
	}
}

// printPlan prints whom the drill would hit.
func (o *drillOptions) printPlan(p *drillPlan) error {
	if o.json() {
		return o.output.Print(o.out, p)
	}
	style := term.StyleOf(o.out)
	say := func(format string, args ...any) { fmt.Fprintln(o.out, style.Wrap(fmt.Sprintf(format, args...), "")) }
	say("%s", o.describePlan(p))
	if p.Partial {
		say("You are no operator of this cell, and may not do the drill. What follows counts only the sessions and locks that you may see; it would hit others, too.")
	}
	say("%s %s, %s held, and %s for locks.", p.counted(), term.Counted(p.Sessions, "session"), term.Counted(p.Locks, "lock"), countedRequests(p.Waiters))
	if p.gap > 0 {
		say("%s would be in jeopardy, as their leases may be over before a master answers; %s would be lost, if their clients have the usual grace period of %v.",
			term.Counted(p.InJeopardy, "session"), term.Counted(p.Lost, "session"), api.DefaultGrace)
	}
	if p.gap > 0 {
		if err := o.printHeld(p.GivenUp, "LOCKS THAT THEIR HOLDERS GIVE UP", "no holder gives up its lock: all leases and lock-delays are longer"); err != nil {
			return err
		}
	}
	if err := o.printHeld(p.Unchecked, "LOCKS WITHOUT A SEQUENCER", "of all locks a sequencer was shown to the cell"); err != nil {
		return err
	}
	if p.Unchecked.count() > 0 {
		say("Of these no sequencer was shown to this master: if a holder goes on when it has lost its lock, nothing that the cell knows of stops it. Servers that check without the cell do.")
	}
	if p.Queues.count() == 0 {
		return nil
	}
	fmt.Fprintln(o.out)
	t := o.output.NewTable(o.out, "WAITED FOR", "REQUESTS", "FIRST FOR")
	for _, q := range p.Queues.List {
		t.Add(q.Path, q.Waiters, term.Roughly(time.Duration(q.FirstS*float64(time.Second))))
	}
	return flushOr(t, o.out, len(p.Queues.List), "", p.Queues.More, "locks")
}

// counted begins the sentence that says how much there is.
func (p *drillPlan) counted() string {
	if p.Partial {
		return "You may see"
	}
	return "The cell has"
}

// describePlan says what the drill would do.
func (o *drillOptions) describePlan(p *drillPlan) string {
	switch o.kind {
	case client.DrillFailOver:
		return fmt.Sprintf("The master of cell %s, %s (epoch %d), would hand over. Calls have no answer for some milliseconds, and for %v if that goes badly.", p.Cell, p.Master, p.Epoch, p.gap)
	case client.DrillHardFailOver:
		return fmt.Sprintf("The master of cell %s, %s (epoch %d), would fall silent, and the others elect another. Calls have no answer for about a second, and for %v if that goes badly.", p.Cell, p.Master, p.Epoch, p.gap)
	case client.DrillOutage:
		return fmt.Sprintf("Cell %s would have no master for %v; now it is %s (epoch %d). Calls have no answer for so long, and for an election after it.", p.Cell, o.length, p.Master, p.Epoch)
	case client.DrillSessionLoss:
		return fmt.Sprintf("The session %v of %s would end. It holds %s; each is free once the client has heard of it, or after %v and the lock-delay.",
			o.session, whoseSession(api.Holder{Principal: p.Session.Principal, Host: p.Session.Host}), term.Counted(len(p.Session.LocksHeld), "lock"),
			time.Duration(p.Session.LeftMostS*float64(time.Second)).Round(time.Second))
	}
	what := "a file of its own in " + o.dir + ", which it would write, too"
	if o.file != "" {
		what = o.file
	}
	return fmt.Sprintf("A session of the drill would cache %s, and fall silent for %v. Who writes the file then waits for up to %v; nobody else is concerned.", what, o.length, api.CacheLease)
}

// countedRequests counts requests.
func countedRequests(n int) string {
	if n == 1 {
		return "1 request that waits"
	}
	return fmt.Sprintf("%d requests that wait", n)
}

// printHeld prints a list of holdings.
func (o *drillOptions) printHeld(h hits[heldFields], title, none string) error {
	if o.kind == client.DrillSlowClient {
		return nil
	}
	fmt.Fprintln(o.out)
	t := o.output.NewTable(o.out, title, "HELD BY", "SESSION?", "LEASE LEFT", "LOCK-DELAY")
	for _, one := range h.List {
		t.Add(one.Path, whoseProcess(one.who), one.who.Session, term.Roughly(time.Duration(one.LeftS*float64(time.Second))), one.who.LockDelay)
	}
	return flushOr(t, o.out, len(h.List), none, h.More, "locks")
}
