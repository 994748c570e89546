package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// The kinds of drills.
const (
	drillFailOver     = "failover"
	drillHardFailOver = "hard-failover"
	drillOutage       = "outage"
	drillSessionLoss  = "session-loss"
	drillSlowClient   = "slow-client"
)

// Limits of a slow client's silence, and the first one of an outage. After maxSilence the session would be lost.
const minDrill, maxSilence = time.Second, time.Minute

// drillOptions are one drill. To the cell it is a client: it asks for another master, or for none for a while,
// ends a session, or stops answering.
type drillOptions struct {
	*globals
	yes, hard bool
	reason    string
	limit     time.Duration // of the longest silence; 0: none
	dir       string        // of the drill's own file

	kind, cell string
	to         string          // of a fail-over: the next master
	length     time.Duration   // of an outage, or a slow client's silence
	session    api.SessionID   // to end
	own        []api.SessionID // the drill's sessions, not counted

	out io.Writer
}

// drillVerb returns the verb of one kind of drills.
func drillVerb(kind string) verb {
	return func(g *globals, cmd *cobra.Command) {
		o, flags := &drillOptions{globals: g, kind: kind}, cmd.Flags()
		flags.BoolVar(&o.yes, "yes", false, "do it; without, it is only said whom it would hit")
		flags.StringVar(&o.reason, "reason", "", "why, for the logs of the cell; the client of a session that is ended is told, too")
		flags.DurationVar(&o.limit, "limit", 0, fmt.Sprintf("exit with %d if calls had no answer for longer (default: no limit)", exitOverLimit))
		flags.StringVar(&o.dir, "dir", "", "the directory in which the drill has a file of its own (default: the root directory of the cell)")
		switch kind {
		case drillFailOver:
			flags.BoolVar(&o.hard, "hard", false, "the master gives up without a word, and the others have to elect")
			flags.StringVar(&o.to, "to", "", "the id of the replica that is to be the master")
			keepApart(flags, "hard", "with it the others elect whom they like", "to")
			zeroIsOff(flags, "to")
		case drillSlowClient:
			flags.DurationVar(&o.length, "for", 5*time.Second, "for how long it falls silent")
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			o.out = cmd.OutOrStdout()
			if err := o.parse(args); err != nil {
				return err
			}
			do := o.rehearse
			if o.yes {
				do = o.perform
			}
			return interruptOr(cmd.Context(), do(cmd.Context()))
		}
	}
}

// parse reads and checks the arguments and flags.
func (o *drillOptions) parse(args []string) (err error) {
	longest := maxSilence
	switch o.kind {
	case drillFailOver:
		if o.hard {
			o.kind = drillHardFailOver
		}
	case drillOutage:
		if o.length, err = time.ParseDuration(args[0]); err != nil {
			return usagef("%q is not a duration; want one as 20s", args[0])
		}
		args, longest = args[1:], api.MaxOutage
	case drillSessionLoss:
		if o.session, _, err = o.sessionOf(args[:1]); err != nil {
			return err
		}
		args = args[1:]
	}
	timed := o.kind == drillOutage || o.kind == drillSlowClient
	switch {
	case timed && (o.length < minDrill || o.length > longest):
		return usagef("%s for %v: want %v to %v", o.kind, o.length, minDrill, longest)
	case o.kind == drillOutage && o.limit > 0 && o.limit <= o.length:
		return usagef("--limit %v: calls have no answer for the outage itself, %v; want a longer limit", o.limit, o.length)
	case o.limit < 0:
		return usagef("--limit %v: want a positive duration", o.limit)
	case len(o.reason) > api.MaxReason:
		return usagef("--reason has %d bytes; at most %d are kept", len(o.reason), api.MaxReason)
	}
	if o.cell, err = o.cellOf(args); err != nil {
		return err
	}
	o.dir = cmp.Or(o.dir, "/"+api.Root+"/"+o.cell)
	_, err = o.parsePath(o.dir)
	return err
}

func (o *drillOptions) rehearse(ctx context.Context) error {
	err := o.withCell(ctx, o.cell, func(ctx context.Context, c *client.Cell) error {
		view, err := o.look(ctx, c)
		if err == nil && o.session != 0 {
			_, err = findSession(ctx, c, o.cell, o.session)
		}
		if err != nil {
			return err
		}
		return o.printPlan(o.plan(view))
	})
	return cmp.Or(err, usagef("drill %v: nothing was done; --yes does it", o.kind))
}

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
	overview, err := c.Overview(ctx, 1) // which waits for a master
	if err != nil {
		return nil, err
	}
	sessions, err := c.Sessions(ctx)
	locks, failed := c.Locks(ctx, "/"+api.Root+"/"+o.cell)
	status, silent := c.Status(ctx)
	if err := cmp.Or(err, failed, silent); err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if !slices.Contains(o.own, s.Session) {
			v.sessions[s.Session] = s
		}
	}
	for _, l := range locks {
		v.locks[l.Path] = l
	}
	v.whole, v.master, v.epoch = overview.Whole, status.Master, overview.Epoch
	return v, nil
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

func (h *hitLocks) addIf(hit bool, l client.LockInfo) {
	if hit {
		h.List, h.locks = append(h.List, newLockFields(l)), append(h.locks, l)
	}
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
	for _, l := range o.hit(v) {
		unchecked, givenUp := false, false
		for _, h := range l.Holders {
			left := v.sessions[h.Session].LeftLeast
			unchecked, givenUp = unchecked || !h.Checked, givenUp || left+h.LockDelay-client.Margin(left, h.LockDelay) < gap
		}
		waiters := len(l.Waiters) + l.MoreWaiters
		if p.Waiters += waiters; len(l.Holders) > 0 {
			p.Locks++
		}
		p.Queues.addIf(waiters > 0, l)
		p.Unchecked.addIf(unchecked || l.MoreHolders > 0, l)
		p.GivenUp.addIf(givenUp, l)
	}
	return p
}

// hit returns the locks that a drill may hit: those of its victim, or all.
func (o *drillOptions) hit(v *cellView) (list []client.LockInfo) {
	for _, path := range slices.Sorted(maps.Keys(v.locks)) {
		if l := v.locks[path]; o.session == 0 || holds(l, o.session) {
			list = append(list, l)
		}
	}
	return list
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
			drillSlowClient:   "A session of the drill would cache a file of its own in %[7]s, and fall silent for %[5]v. Writers of the file then wait for up to %[8]v.",
		}[o.kind], p.Cell, p.Master, p.Epoch, o.gap(), o.length, o.session, o.dir, api.CacheLease)
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
