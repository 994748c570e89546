package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// drillReport is what a drill did, as -o json shows it.
type drillReport struct {
	Drill       string   `json:"drill"`
	Done        bool     `json:"done"` // true
	Interrupted bool     `json:"interrupted"`
	Cell        string   `json:"cell"`
	LimitS      *float64 `json:"limit_s"` // null without --limit
	WithinLimit bool     `json:"within_limit"`

	NoAnswerS float64      `json:"no_answer_s"` // the longest time without an answer of the drill's own session
	Calls     int          `json:"calls"`       // of that session which were answered
	Events    []drillEvent `json:"events"`

	MasterBefore string  `json:"master_before"`
	MasterAfter  string  `json:"master_after"` // empty if none was found
	EpochBefore  uint64  `json:"epoch_before"`
	EpochAfter   *uint64 `json:"epoch_after"` // null if the cell was not reached afterwards

	SessionsBefore int                 `json:"sessions_before"`
	SessionsGone   hits[goneFields]    `json:"sessions_gone"`
	LocksBefore    int                 `json:"locks_before"`
	LocksKept      int                 `json:"locks_kept"`
	LocksChanged   hits[changedFields] `json:"locks_changed"`

	Loss *lossFields `json:"session_loss,omitempty"`
	Slow *slowFields `json:"slow_client,omitempty"`

	begun   bool
	answers time.Duration // see NoAnswerS
	longest time.Duration // what --limit is about
}

// goneFields is a session that was there before a drill, and was not after it.
type goneFields struct {
	holderFields
	Locks int `json:"locks"`

	who api.Holder
}

// changedFields is a lock that was held before a drill, and not by the same after it.
type changedFields struct {
	Path   string         `json:"path"`
	Before []holderFields `json:"before"`
	After  []holderFields `json:"after"` // none if nobody holds it
	Why    string         `json:"why"`   // the holding before ended; "" if that is not known

	token         api.Generation
	before, after []api.Holder
}

// before notes how the cell was.
func (r *drillReport) before(v *cellView) {
	r.MasterBefore, r.EpochBefore, r.SessionsBefore, r.LocksBefore = v.master, uint64(v.epoch), len(v.sessions), len(v.locks)
	r.SessionsGone.List, r.LocksChanged.List, r.Events = []goneFields{}, []changedFields{}, []drillEvent{}
}

// after notes how the cell is.
func (r *drillReport) after(before, after *cellView) {
	epoch := uint64(after.epoch)
	r.MasterAfter, r.EpochAfter = after.master, &epoch
	for _, id := range sortedKeys(before.sessions) {
		s := before.sessions[id]
		if _, there := after.sessions[id]; !there {
			r.SessionsGone.add(goneFields{newHolderFields(s.Holder), s.Locks, s.Holder})
		}
	}
	for _, path := range sortedKeys(before.locks) {
		was, is := before.locks[path], after.locks[path]
		if was.Generation == is.Generation && sameHolders(was.Holders, is.Holders) {
			r.LocksKept++
			continue
		}
		one := changedFields{Path: path, Before: []holderFields{}, After: []holderFields{}, token: was.Generation, before: was.Holders, after: is.Holders}
		for _, h := range was.Holders {
			one.Before = append(one.Before, newHolderFields(h))
		}
		for _, h := range is.Holders {
			one.After = append(one.After, newHolderFields(h))
		}
		r.LocksChanged.add(one)
	}
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[K ~string | ~uint64, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// sameHolders reports whether all holders of before are among those of after.
func sameHolders(before, after []api.Holder) bool {
	for _, b := range before {
		if !slices.ContainsFunc(after, func(a api.Holder) bool { return a.Session == b.Session }) {
			return false
		}
	}
	return true
}

// explain asks the cell why the holdings of locks that have changed their holders ended. What it does not answer stays unknown.
func (r *drillReport) explain(ctx context.Context, c *client.Cell) {
	for i := range r.LocksChanged.List {
		one := &r.LocksChanged.List[i]
		h, err := c.History(ctx, one.Path)
		if err != nil {
			continue
		}
		for _, holding := range h.Holdings {
			if holding.Generation == one.token && holding.End != 0 {
				one.Why = howEnded(holding.End)
			}
		}
	}
}

// measured notes what the drill's own session has seen.
func (r *drillReport) measured(longest time.Duration, calls int, events []drillEvent) {
	r.answers, r.Calls = longest, calls
	if r.Events = append(r.Events, events...); r.Loss == nil && r.Slow == nil {
		r.longest = longest
	}
	r.NoAnswerS = term.Seconds(longest)
}

// printReport prints what the drill did.
func (o *drillOptions) printReport(r *drillReport) error {
	r.WithinLimit = o.limit == 0 || r.longest <= o.limit
	if r.Loss != nil && o.limit > 0 {
		for _, l := range r.Loss.Locks {
			r.WithinLimit = r.WithinLimit && l.AfterS != nil
		}
	}
	if o.limit > 0 {
		limit := term.Seconds(o.limit)
		r.LimitS = &limit
	}
	if o.json() {
		return o.output.Print(o.out, r)
	}
	style := term.StyleOf(o.out)
	say := func(format string, args ...any) { fmt.Fprintln(o.out, style.Wrap(fmt.Sprintf(format, args...), "")) }
	if r.Interrupted {
		say("The drill was interrupted, and has ended.")
	}
	say("Calls had no answer for %v at the longest (%s of the drill's own session were answered).", r.answers.Round(time.Millisecond), term.Counted(r.Calls, "call"))
	for _, e := range r.Events {
		say("  after %.1fs its session was %s", e.AtS, e.What)
	}
	o.sayLoss(say, r.Loss)
	o.saySlow(say, r)
	if r.EpochAfter == nil {
		say("How the cell is afterwards is not known; before, %s was the master in epoch %d. See chubbyctl cell status.", r.MasterBefore, r.EpochBefore)
		return nil
	}
	if *r.EpochAfter == r.EpochBefore {
		say("The master is %s (epoch %d), as before.", term.OrDash(r.MasterAfter), *r.EpochAfter)
	} else {
		say("The master was %s (epoch %d), and is %s (epoch %d).", r.MasterBefore, r.EpochBefore, term.OrDash(r.MasterAfter), *r.EpochAfter)
	}
	say("Sessions before: %d. Of these, %d have ended, by a loss or by themselves.", r.SessionsBefore, r.SessionsGone.count())
	say("Locks held before: %d. Of these, %d have the holders that they had.", r.LocksBefore, r.LocksKept)
	return o.printChanges(r)
}

// sayLoss says what became of a session.
func (o *drillOptions) sayLoss(say func(string, ...any), l *lossFields) {
	if l == nil {
		return
	}
	if l.GoneS == nil {
		say("Session %s has not ended yet.", l.Session)
	} else {
		say("Session %s was gone after %.1fs.", l.Session, *l.GoneS)
	}
	for _, lock := range l.Locks {
		switch {
		case lock.AfterS == nil:
			say("  %s: nobody has it yet", lock.Path)
		case len(lock.who) == 0:
			say("  %s: free after %.1fs, and nobody has it", lock.Path, *lock.AfterS)
		default:
			var who []string
			for _, h := range lock.who {
				who = append(who, whoIs(h))
			}
			say("  %s: after %.1fs held by %s", lock.Path, *lock.AfterS, strings.Join(who, ", "))
		}
	}
	if l.Returned == nil {
		say("Its owner has opened no other session so far.")
	} else {
		say("Its owner came back as session %s.", *l.Returned)
	}
}

// saySlow says how long writers waited.
func (o *drillOptions) saySlow(say func(string, ...any), r *drillReport) {
	switch s := r.Slow; {
	case s == nil:
	case o.file == "" && r.longest < api.CacheLease: // the silence ended first
		say("A client that cached %s was silent for %.1fs. The longest of %s took %v, less than its cache lease of %v: that client was heard of again before.",
			s.File, s.SilentS, term.Counted(s.Writes, "write"), r.longest.Round(time.Millisecond), api.CacheLease)
	case o.file == "":
		say("A client that cached %s was silent for %.1fs. The longest of %s took %v; it waited for that client until its cache lease of %v was over, and then was done.",
			s.File, s.SilentS, term.Counted(s.Writes, "write"), r.longest.Round(time.Millisecond), api.CacheLease)
	case r.longest == 0:
		say("A client that cached %s was silent for %.1fs. No write waited for it.", s.File, s.SilentS)
	default:
		say("A client that cached %s was silent for %.1fs. A write waited %v for it at least; the cache lease bounds that to %v.",
			s.File, s.SilentS, r.longest.Round(10*time.Millisecond), api.CacheLease)
	}
}

// printChanges prints the sessions that are gone, and the locks that have other holders.
func (o *drillOptions) printChanges(r *drillReport) error {
	if len(r.SessionsGone.List) > 0 {
		fmt.Fprintln(o.out)
		t := o.output.NewTable(o.out, "SESSION GONE", "OF", "LOCKS")
		for _, s := range r.SessionsGone.List {
			t.Add(s.who.Session, whoseProcess(s.who), s.Locks)
		}
		if err := flushOr(t, o.out, len(r.SessionsGone.List), "", r.SessionsGone.More, "sessions"); err != nil {
			return err
		}
	}
	if len(r.LocksChanged.List) == 0 {
		return nil
	}
	fmt.Fprintln(o.out)
	t := o.output.NewTable(o.out, "LOCK WITH ANOTHER HOLDER", "WAS HELD BY", "THAT ENDED", "NOW HELD BY")
	for _, l := range r.LocksChanged.List {
		t.Add(l.Path, firstHolder(l.before), term.OrDash(l.Why), firstHolder(l.after))
	}
	return flushOr(t, o.out, len(r.LocksChanged.List), "", r.LocksChanged.More, "locks")
}

// firstHolder names the first of the holders of a lock.
func firstHolder(holders []api.Holder) string {
	switch len(holders) {
	case 0:
		return "nobody"
	case 1:
		return whoIs(holders[0])
	}
	return fmt.Sprintf("%s and %d more", whoIs(holders[0]), len(holders)-1)
}
