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
	if o.json() {
		return o.output.Print(o.out, r)
	}
	if r.Interrupted {
		o.say("The drill was interrupted, and has ended.")
	}
	o.say("Calls had no answer for %v at the longest (%s of the drill's own session were answered).", r.noAnswer.Round(time.Millisecond), term.Counted(r.Calls, "call"))
	for _, e := range r.Events {
		o.say("  after %.1fs that session was %s", e.AtS, e.What)
	}
	if s := r.Slow; s != nil {
		until := ""
		if s.LongestS >= s.AtMostS || o.file == "" && s.LongestS < s.SilentS-0.1 {
			until = fmt.Sprintf(", until its cache lease of %v was over", api.CacheLease)
		}
		o.say("A client that cached %s was silent for %.1fs. The longest write waited %.2fs for it%s.", s.File, s.SilentS, s.LongestS, until)
	}
	if r.EpochAfter == nil {
		o.say("How the cell is afterwards is not known; before, %s was the master in epoch %d. See chubbyctl cell status.", r.MasterBefore, r.EpochBefore)
		return nil
	}
	o.say("The master was %s (epoch %d), and is %s (epoch %d).", r.MasterBefore, r.EpochBefore, term.OrDash(r.MasterAfter), *r.EpochAfter)
	o.say("Sessions before: %d, of which %d have ended, by a loss or by themselves. Locks held before: %d, of which %d have the same holders.",
		r.SessionsBefore, len(r.SessionsGone.List), r.LocksBefore, r.LocksKept)
	for _, s := range r.SessionsGone.List[:min(len(r.SessionsGone.List), api.MaxListed)] {
		o.say("  session %s of %s on %s, which held %s, is gone", s.Session, cmp.Or(s.Principal, "somebody"), s.Host, term.Counted(s.Locks, "lock"))
	}
	if l := r.Loss; l != nil && l.Returned != nil {
		o.say("  its owner came back as session %s", *l.Returned)
	}
	for _, l := range r.LocksChanged.List[:min(len(r.LocksChanged.List), api.MaxListed)] {
		now := "nobody has it"
		if len(l.is.Holders) > 0 {
			now = "now it is " + heldBy(l.is.Holders)
		}
		if l.AfterS != nil {
			now += fmt.Sprintf(", since %.1fs after the drill", *l.AfterS)
		}
		o.say("  %s was %s; that ended (%s), and %s", l.Path, heldBy(l.was.Holders), cmp.Or(l.Why, "why is not known"), now)
	}
	return nil
}
