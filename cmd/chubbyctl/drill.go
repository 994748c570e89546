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
			if o.yes {
				return interruptOr(cmd.Context(), o.perform(cmd.Context()))
			}
			err := o.withCell(cmd.Context(), o.cell, func(ctx context.Context, c *client.Cell) error {
				view, err := o.lookAtCell(ctx, c)
				if err == nil && o.session != 0 {
					_, err = findSession(ctx, c, o.cell, o.session)
				}
				if err != nil {
					return err
				}
				return o.printPlan(view)
			})
			return interruptOr(cmd.Context(), cmp.Or(err, usagef("drill %v: nothing was done; --yes does it", o.kind)))
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

// cellView is the sessions and locks of a moment that the caller may see, without the drill's own.
type cellView struct {
	master   string
	epoch    api.Epoch
	whole    bool // all are visible: the caller is an operator
	sessions map[api.SessionID]client.SessionInfo
	locks    map[string]client.LockInfo // held, delayed or waited for
}

// lookAtCell reads the cell, once it has a master.
func (o *drillOptions) lookAtCell(ctx context.Context, c *client.Cell) (*cellView, error) {
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

// gap returns how long calls may go unanswered, assuming a bad fail-over.
func (o *drillOptions) gap() time.Duration {
	const election = 3 * time.Second
	return map[string]time.Duration{drillFailOver: time.Second, drillHardFailOver: election, drillOutage: o.length + election}[o.kind]
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

// printPlan prints whom a drill would hit.
func (o *drillOptions) printPlan(v *cellView) error {
	gap, jeopardy, lost, held, waiting := o.gap(), 0, 0, 0, 0
	for _, s := range v.sessions {
		if s.LeftLeast < gap {
			jeopardy++
		}
		if s.LeftLeast+api.DefaultGrace < gap {
			lost++
		}
	}
	var unchecked, givenUp, queues []client.LockInfo // given up: by holders that stop working before a master answers
	addIf := func(hit bool, to *[]client.LockInfo, l client.LockInfo) {
		if hit {
			*to = append(*to, l)
		}
	}
	for _, l := range o.hit(v) {
		without, stops := l.MoreHolders > 0, false
		for _, h := range l.Holders {
			left := v.sessions[h.Session].LeftLeast
			without, stops = without || !h.Checked, stops || left+h.LockDelay-client.Margin(left, h.LockDelay) < gap
		}
		waiters := len(l.Waiters) + l.MoreWaiters
		if waiting += waiters; len(l.Holders) > 0 {
			held++
		}
		addIf(waiters > 0, &queues, l)
		addIf(without, &unchecked, l)
		addIf(stops, &givenUp, l)
	}
	fields := term.Fields{
		"drill", o.kind, "done", false, "cell", o.cell, "master", v.master, "epoch", v.epoch, "no_answer_s", term.Seconds(gap), "partial", !v.whole,
		"sessions", len(v.sessions), "sessions_in_jeopardy", jeopardy, "sessions_lost", lost, "locks_held", held, "requests_waiting", waiting,
		"without_sequencer", listOf(term.Each(unchecked, lockFields)), "given_up", listOf(term.Each(givenUp, lockFields)),
		"queues", listOf(term.Each(queues, lockFields)),
	}
	return o.output.Show(o.out, fields, func(page *term.Page) {
		say := page.Sentence
		say(map[string]string{
			drillFailOver:     "The master of cell %[1]s, %[2]s (epoch %[3]d), would hand over. Calls have no answer for some milliseconds, and for %[4]v if that goes badly.",
			drillHardFailOver: "The master of cell %[1]s, %[2]s (epoch %[3]d), would fall silent, and the others elect another. Calls have no answer for about a second, and for %[4]v if that goes badly.",
			drillOutage:       "Cell %[1]s would have no master for %[5]v; now it is %[2]s (epoch %[3]d). Calls have no answer for so long, and for an election after it.",
			drillSessionLoss:  "Session %[6]v would end. Its locks are free once its client has heard of it, or after its lease and their lock-delays.",
			drillSlowClient:   "A session of the drill would cache a file of its own in %[7]s, and fall silent for %[5]v. Writers of the file then wait for up to %[8]v.",
		}[o.kind], o.cell, v.master, v.epoch, gap, o.length, o.session, o.dir, api.CacheLease)
		counted := "The cell has"
		if !v.whole {
			counted = "You may see"
			say("You are no operator of this cell. What follows counts only the sessions and locks that you may see; it would hit others, too.")
		}
		say("%s %s, %s held, and %s for locks.", counted, term.Counted(len(v.sessions), "session"), term.Counted(held, "lock"), term.Counted(waiting, "waiting request"))
		if gap > 0 {
			say("%s would be in jeopardy, as their leases may be over before a master answers; %s would be lost, if their clients have the usual grace period of %v.",
				term.Counted(jeopardy, "session"), term.Counted(lost, "session"), api.DefaultGrace)
			drawHit(page, givenUp, "LOCKS THAT THEIR HOLDERS GIVE UP", "no holder gives up its lock: all leases and lock-delays are longer")
		}
		if o.kind != drillSlowClient {
			drawHit(page, unchecked, "LOCKS WITHOUT A SEQUENCER: if a holder goes on when it has lost its lock, nothing that the cell knows of stops it", "of all locks a sequencer was shown to the cell")
			drawHit(page, queues, "LOCKS THAT ARE WAITED FOR", "none")
		}
	})
}

func listOf(list any) term.Fields { return term.Fields{"list", list} }

func drawHit(p *term.Page, locks []client.LockInfo, title, none string) {
	p.Line("")
	p.Sentence("%s", title)
	if len(locks) == 0 {
		p.Line("%s", none)
		return
	}
	p.Table(func(t *term.Table) {
		for _, l := range locks[:min(len(locks), api.MaxListed)] {
			addLock(t, l)
		}
	}, lockColumns()...)
	p.Rest(len(locks)-api.MaxListed, "locks")
}
