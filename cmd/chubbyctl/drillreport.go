package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// cellView is the sessions and locks of a moment that the caller may see, without the drill's own.
type cellView struct {
	master   string
	epoch    api.Epoch
	whole    bool // all are visible: the caller is an operator
	sessions map[api.SessionID]client.SessionInfo
	locks    map[string]client.LockInfo // held, delayed or waited for
}

// look reads the cell, once it has a master.
func (o *drillOptions) look(ctx context.Context, c *client.Cell) (*cellView, error) {
	v := &cellView{sessions: map[api.SessionID]client.SessionInfo{}, locks: map[string]client.LockInfo{}}
	overview, err := c.Overview(ctx, 1)
	if err != nil {
		return nil, err
	}
	for s, err := range c.EachSession(ctx) {
		if err != nil {
			return nil, err
		}
		if !slices.Contains(o.own, s.Session) {
			v.sessions[s.Session] = s
		}
	}
	for l, err := range c.EachLock(ctx, "/"+api.Root+"/"+o.cell) {
		if err != nil {
			return nil, err
		}
		v.locks[l.Path] = l
	}
	status, err := c.Status(ctx)
	v.whole, v.master, v.epoch = overview.Whole, status.Master, overview.Epoch
	return v, err
}

type drillPlan struct {
	Drill     string  `json:"drill"`
	Done      bool    `json:"done"` // false
	Cell      string  `json:"cell"`
	Master    string  `json:"master"`
	Epoch     uint64  `json:"epoch"`
	NoAnswerS float64 `json:"no_answer_s"` // the longest silence, in seconds
	Partial   bool    `json:"partial"`     // what follows is only the visible part: the caller is no operator

	Sessions   int `json:"sessions"`
	InJeopardy int `json:"sessions_in_jeopardy"` // whose leases may end before a master answers
	Lost       int `json:"sessions_lost"`        // and the usual grace period after it
	Locks      int `json:"locks_held"`
	Waiters    int `json:"requests_waiting"`

	Unchecked hitLocks `json:"without_sequencer"`
	GivenUp   hitLocks `json:"given_up"` // whose holders stop working before a master answers
	Queues    hitLocks `json:"queues"`   // with waiters
}

type hitLocks struct {
	List []lockFields `json:"list"`

	locks []client.LockInfo
}

func (h *hitLocks) add(l client.LockInfo) {
	h.List, h.locks = append(h.List, newLockFields(l)), append(h.locks, l)
}

// gap returns how long calls may go unanswered, assuming a bad fail-over.
func (o *drillOptions) gap() time.Duration {
	const election = 3 * time.Second
	return map[string]time.Duration{drillFailOver: time.Second, drillHardFailOver: election, drillOutage: o.length + election}[o.kind]
}

func (o *drillOptions) plan(v *cellView) *drillPlan {
	gap, nothing := o.gap(), hitLocks{List: []lockFields{}}
	p := &drillPlan{
		Drill: o.kind, Cell: o.cell, Master: v.master, Epoch: uint64(v.epoch), NoAnswerS: term.Seconds(gap), Partial: !v.whole,
		Sessions: len(v.sessions), Unchecked: nothing, GivenUp: nothing, Queues: nothing,
	}
	for _, s := range v.sessions {
		if s.LeftLeast < gap {
			p.InJeopardy++
		}
		if s.LeftLeast+api.DefaultGrace < gap {
			p.Lost++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(v.locks)) {
		l := v.locks[path]
		if o.session != 0 && !holds(l, o.session) {
			continue
		}
		if n := len(l.Waiters) + l.MoreWaiters; n > 0 {
			p.Waiters += n
			p.Queues.add(l)
		}
		if len(l.Holders) > 0 {
			p.Locks++
		}
		if l.MoreHolders > 0 || slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return !h.Checked }) {
			p.Unchecked.add(l)
		}
		if slices.ContainsFunc(l.Holders, func(h api.Holder) bool {
			left := v.sessions[h.Session].LeftLeast
			return left+h.LockDelay-client.Margin(left, h.LockDelay) < gap
		}) {
			p.GivenUp.add(l)
		}
	}
	return p
}

func holds(l client.LockInfo, id api.SessionID) bool {
	return slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return h.Session == id })
}

func (o *drillOptions) printPlan(p *drillPlan) error {
	return o.output.Show(o.out, p, func(page *term.Page) {
		say := page.Sentence
		say(map[string]string{
			drillFailOver:     "The master of cell %[1]s, %[2]s (epoch %[3]d), would hand over. Calls have no answer for some milliseconds, and for %[4]v if that goes badly.",
			drillHardFailOver: "The master of cell %[1]s, %[2]s (epoch %[3]d), would fall silent, and the others elect another. Calls have no answer for about a second, and for %[4]v if that goes badly.",
			drillOutage:       "Cell %[1]s would have no master for %[5]v; now it is %[2]s (epoch %[3]d). Calls have no answer for so long, and for an election after it.",
			drillSessionLoss:  "Session %[6]v would end. Its locks are free once its client has heard of it, or after its lease and their lock-delays.",
			drillSlowClient:   "A session of the drill would cache %[7]s, and fall silent for %[5]v. Writers of the file then wait for up to %[8]v.",
		}[o.kind], p.Cell, p.Master, p.Epoch, o.gap(), o.length, o.session, cmp.Or(o.file, "a file of its own in "+o.dir), api.CacheLease)
		counted := "The cell has"
		if p.Partial {
			counted = "You may see"
			say("You are no operator of this cell. What follows counts only the sessions and locks that you may see; it would hit others, too.")
		}
		say("%s %s, %s held, and %s for locks.", counted, term.Counted(p.Sessions, "session"), term.Counted(p.Locks, "lock"), term.Counted(p.Waiters, "waiting request"))
		if p.NoAnswerS > 0 {
			say("%s would be in jeopardy, as their leases may be over before a master answers; %s would be lost, if their clients have the usual grace period of %v.",
				term.Counted(p.InJeopardy, "session"), term.Counted(p.Lost, "session"), api.DefaultGrace)
			p.GivenUp.draw(page, "LOCKS THAT THEIR HOLDERS GIVE UP", "no holder gives up its lock: all leases and lock-delays are longer")
		}
		if o.kind != drillSlowClient {
			p.Unchecked.draw(page, "LOCKS WITHOUT A SEQUENCER: if a holder goes on when it has lost its lock, nothing that the cell knows of stops it", "of all locks a sequencer was shown to the cell")
			p.Queues.draw(page, "LOCKS THAT ARE WAITED FOR", "none")
		}
	})
}

func (h hitLocks) draw(p *term.Page, title, none string) {
	p.Line("")
	p.Sentence("%s", title)
	if len(h.locks) == 0 {
		p.Line("%s", none)
		return
	}
	p.Table(func(t *term.Table) {
		for _, l := range h.locks[:min(len(h.locks), api.MaxListed)] {
			addLock(t, l)
		}
	}, lockColumns()...)
	p.Rest(len(h.locks)-api.MaxListed, "locks")
}

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

	SessionsBefore int                    `json:"sessions_before"`
	SessionsGone   listed[sessionFields]  `json:"sessions_gone"`
	LocksBefore    int                    `json:"locks_before"`
	LocksKept      int                    `json:"locks_kept"`
	LocksChanged   listed[*changedFields] `json:"locks_changed"`

	Loss *lossFields `json:"session_loss,omitempty"`
	Slow *slowFields `json:"slow_client,omitempty"`

	noAnswer time.Duration
	passed   map[string]*float64 // when a lock was first seen free or with other holders, after the drill
}

type listed[T any] struct {
	List []T `json:"list"`
}

type drillEvent struct {
	AtS  float64 `json:"at_s"` // since the beginning
	What string  `json:"what"`
}

type changedFields struct {
	Path    string         `json:"path"`
	Before  []holderFields `json:"before"`
	Holders []holderFields `json:"holders"` // the new ones; empty if free
	AfterS  *float64       `json:"after_s"` // from the drill until they had it, or it was free; null if that took too long
	Why     string         `json:"why"`     // of the end of the earlier holding; "" if unknown

	was, is client.LockInfo
}

type lossFields struct {
	Session  string           `json:"session"`
	GoneS    *float64         `json:"gone_after_s"` // null if it still exists
	Locks    []*changedFields `json:"locks"`
	Returned *string          `json:"returned_as"` // a newer session of the same principal and host, or null
}

// compare records the cell at a time after the drill. It reports whether its clients have returned, and the
// locks of an ended session have passed on.
func (r *drillReport) compare(o *drillOptions, before, after *cellView, at float64) (settled bool) {
	epoch := uint64(after.epoch)
	r.MasterAfter, r.EpochAfter, r.LocksBefore, r.LocksKept, settled = after.master, &epoch, 0, 0, true
	r.SessionsGone.List, r.LocksChanged.List = []sessionFields{}, []*changedFields{}
	for _, id := range slices.Sorted(maps.Keys(before.sessions)) {
		s, there := after.sessions[id]
		if settled = settled && !s.Unheard; !there {
			r.SessionsGone.List = append(r.SessionsGone.List, newSessionFields(before.sessions[id]))
		}
	}
	var lost []*changedFields
	for _, path := range slices.Sorted(maps.Keys(before.locks)) {
		was, is := before.locks[path], after.locks[path]
		if len(was.Holders) == 0 {
			continue
		}
		changed := was.Generation != is.Generation || slices.ContainsFunc(was.Holders, func(h api.Holder) bool { return !holds(is, h.Session) })
		if changed && r.passed[path] == nil && (len(is.Holders) > 0 || is.Delayed == 0 && len(is.Waiters) == 0) {
			r.passed[path] = &at
		}
		one := &changedFields{path, newLockFields(was).Holders, newLockFields(is).Holders, r.passed[path], "", was, is}
		if r.LocksBefore++; changed {
			r.LocksChanged.List = append(r.LocksChanged.List, one)
		} else {
			r.LocksKept++
		}
		if holds(was, o.session) {
			lost, settled = append(lost, one), settled && one.AfterS != nil
		}
	}
	if o.session == 0 {
		return settled
	}
	r.Loss.Locks = append([]*changedFields{}, lost...)
	for id, s := range after.sessions {
		victim, name := before.sessions[o.session], id.String()
		if _, old := before.sessions[id]; !old && s.Principal == victim.Principal && s.Host == victim.Host {
			r.Loss.Returned = &name
		}
	}
	if _, there := after.sessions[o.session]; !there && r.Loss.GoneS == nil {
		r.Loss.GoneS = &at
	}
	return settled && r.Loss.GoneS != nil
}

// explain asks the cell why the holdings of changed locks ended. Unanswered ones stay unknown.
func (r *drillReport) explain(ctx context.Context, c *client.Cell) {
	for _, one := range r.LocksChanged.List {
		h, _ := c.History(ctx, one.Path)
		for _, holding := range h.Holdings {
			if holding.Generation == one.was.Generation && holding.End != 0 {
				one.Why = howEnded(holding.End)
			}
		}
	}
}

// longest returns what --limit limits.
func (r *drillReport) longest() (what string, took float64) {
	switch {
	case r.Slow != nil:
		return "the longest wait of a writer", r.Slow.LongestS
	case r.Loss == nil:
		return "the longest time without an answer", r.NoAnswerS
	}
	for _, l := range r.Loss.Locks {
		if l.AfterS == nil {
			took = math.Inf(1)
		} else {
			took = max(took, *l.AfterS)
		}
	}
	return "the longest time of a lock without a holder", took
}

func (o *drillOptions) printReport(r *drillReport) error {
	return o.output.Show(o.out, r, func(p *term.Page) { o.drawReport(p, r) })
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
		if s.LongestS >= s.AtMostS || o.file == "" && s.LongestS < s.SilentS-0.1 {
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
	if l := r.Loss; l != nil && l.Returned != nil {
		say("  its owner came back as session %s", *l.Returned)
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
