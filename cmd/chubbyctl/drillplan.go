package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	if o.json() {
		return o.output.Print(o.out, p)
	}
	counted := "The cell has"
	o.say(map[string]string{
		drillFailOver:     "The master of cell %[1]s, %[2]s (epoch %[3]d), would hand over. Calls have no answer for some milliseconds, and for %[4]v if that goes badly.",
		drillHardFailOver: "The master of cell %[1]s, %[2]s (epoch %[3]d), would fall silent, and the others elect another. Calls have no answer for about a second, and for %[4]v if that goes badly.",
		drillOutage:       "Cell %[1]s would have no master for %[5]v; now it is %[2]s (epoch %[3]d). Calls have no answer for so long, and for an election after it.",
		drillSessionLoss:  "Session %[6]v would end. Its locks are free once its client has heard of it, or after its lease and their lock-delays.",
		drillSlowClient:   "A session of the drill would cache %[7]s, and fall silent for %[5]v. Writers of the file then wait for up to %[8]v.",
	}[o.kind], p.Cell, p.Master, p.Epoch, o.gap(), o.length, o.session, cmp.Or(o.file, "a file of its own in "+o.dir), api.CacheLease)
	if p.Partial {
		counted = "You may see"
		o.say("You are no operator of this cell. What follows counts only the sessions and locks that you may see; it would hit others, too.")
	}
	o.say("%s %s, %s held, and %s for locks.", counted, term.Counted(p.Sessions, "session"), term.Counted(p.Locks, "lock"), term.Counted(p.Waiters, "waiting request"))
	if p.NoAnswerS > 0 {
		o.say("%s would be in jeopardy, as their leases may be over before a master answers; %s would be lost, if their clients have the usual grace period of %v.",
			term.Counted(p.InJeopardy, "session"), term.Counted(p.Lost, "session"), api.DefaultGrace)
		if err := o.list("LOCKS THAT THEIR HOLDERS GIVE UP", p.GivenUp, "no holder gives up its lock: all leases and lock-delays are longer"); err != nil {
			return err
		}
	}
	if o.kind == drillSlowClient {
		return nil
	}
	err := o.list("LOCKS WITHOUT A SEQUENCER: if a holder goes on when it has lost its lock, nothing that the cell knows of stops it", p.Unchecked, "of all locks a sequencer was shown to the cell")
	return cmp.Or(err, o.list("LOCKS THAT ARE WAITED FOR", p.Queues, "none"))
}

func (o *drillOptions) list(title string, h hitLocks, none string) error {
	fmt.Fprintln(o.out)
	o.say("%s", title)
	t := o.output.NewTable(o.out, lockColumns()...)
	for _, l := range h.locks[:min(len(h.locks), api.MaxListed)] {
		addLock(t, l)
	}
	return flushOr(t, o.out, len(h.locks), none, max(len(h.locks)-api.MaxListed, 0), "locks")
}

func (o *drillOptions) say(format string, args ...any) {
	fmt.Fprintln(o.out, term.StyleOf(o.out).Wrap(fmt.Sprintf(format, args...), ""))
}
