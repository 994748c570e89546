package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type sessionFields struct {
	party
	LeaseS     float64 `json:"lease_s"`
	LeftLeastS float64 `json:"left_least_s"`
	LeftMostS  float64 `json:"left_most_s"`
	Handles    int     `json:"handles"`
	Locks      int     `json:"locks"`
	MayCache   bool    `json:"may_cache"`
}

func newSessionFields(s client.SessionInfo) sessionFields {
	return sessionFields{
		newParty(s.Holder), term.Seconds(s.Lease), term.Seconds(s.LeftLeast), term.Seconds(s.LeftMost), s.Handles, s.Locks, s.MayCache,
	}
}

func sessionLsVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
			return g.printSessions(cmd.OutOrStdout(), c.EachSession(ctx))
		})
	}
}

func (g *globals) printSessions(out io.Writer, sessions iter.Seq2[client.SessionInfo, error]) error {
	add := func(t *term.Table, s client.SessionInfo) {
		left := term.Roughly(s.LeftLeast) + " to " + term.Roughly(s.LeftMost)
		t.Add(s.Session, s.Principal, s.Host, s.PID, s.Lease, left, s.Handles, s.Locks)
	}
	list := term.List[client.SessionInfo, sessionFields]{
		Fields:  newSessionFields,
		Add:     add,
		Columns: []string{"SESSION", "PRINCIPAL", "HOST", "PID", "LEASE", "LEFT", "HANDLES", "LOCKS"},
		None:    "the cell has no sessions",
	}
	return list.Print(out, g.output, sessions)
}

func (g *globals) sessionOf(args []string) (api.SessionID, string, error) {
	id, err := api.ParseSessionID("s" + strings.TrimPrefix(args[0], "s"))
	if err != nil {
		return 0, "", usagef("%q is not a session: want its number, as in s42 or 42", args[0])
	}
	cell, err := g.cellOf(args[1:])
	return id, cell, err
}

type shownSession struct {
	info client.SessionInfo
	held []string
}

// findSession returns one session, or NotFound. It asks for the session and then for its locks, so they may be
// of different moments.
func findSession(ctx context.Context, c *client.Cell, cell string, id api.SessionID) (shownSession, error) {
	info, found, err := c.FindSession(ctx, id)
	if err != nil {
		return shownSession{}, err
	}
	if !found {
		return shownSession{}, &api.Error{Code: api.NotFound, Op: "show session", Path: id.String(),
			Message: fmt.Sprintf("cell %s has no such session: it has ended, or never was; 'chubbyctl session ls %s' lists those there are", cell, cell)}
	}
	locks, err := c.LocksOf(ctx, id)
	held := []string{}
	for _, l := range locks {
		held = append(held, l.Path)
	}
	return shownSession{info, held}, err
}

// askSession is findSession by a cell's name.
func (g *globals) askSession(ctx context.Context, cell string, id api.SessionID) (shownSession, error) {
	return askCell(ctx, g, cell, func(c *client.Cell, ctx context.Context) (shownSession, error) { return findSession(ctx, c, cell, id) })
}

func sessionShowVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, cell, err := g.sessionOf(args)
		if err != nil {
			return err
		}
		s, err := g.askSession(cmd.Context(), cell, id)
		if err != nil {
			return err
		}
		return g.printSession(cmd.OutOrStdout(), s)
	}
}

type shownFields struct {
	sessionFields
	LocksHeld []string `json:"locks_held"`
}

func (g *globals) printSession(out io.Writer, s shownSession) error {
	return g.output.Show(out, shownFields{newSessionFields(s.info), s.held}, func(p *term.Page) {
		fields := []any{
			"session", s.info.Session, "principal", s.info.Principal, "host", s.info.Host, "pid", s.info.PID, "lease", s.info.Lease,
			"left", term.Roughly(s.info.LeftLeast) + " at least, " + term.Roughly(s.info.LeftMost) + " at most",
			"handles", s.info.Handles, "locks", s.info.Locks,
		}
		for _, path := range s.held {
			fields = append(fields, "holds", path)
		}
		p.Fields(fields...)
	})
}

// revocation are the options for taking a lock or a session away.
type revocation struct {
	*globals
	reason string
	yes    bool
	now    bool // of a lock: do not wait for its holders
}

func (o *revocation) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.reason, "reason", "", "why; those who are concerned are told (required)")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it; without, it is only said what would be done")
}

func (o *revocation) validate(verb string) error {
	switch {
	case strings.TrimSpace(o.reason) == "":
		return usagef("%s: say why with --reason; those who are concerned are told", verb)
	case len(o.reason) > api.MaxReason:
		return usagef("--reason has %d bytes; at most %d are kept", len(o.reason), api.MaxReason)
	}
	return nil
}

const nowRisk = "--now: a holder that is alive may believe that it has the lock until its lease is over, and another have it too; only servers that check sequencers keep them apart"

func lockBreakVerb(g *globals, cmd *cobra.Command) {
	o := &revocation{globals: g}
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if err := o.validate("lock break"); err != nil {
			return err
		}
		return o.breakLock(cmd, p)
	})
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.now, "now", false, "do not wait for the holders: two may then believe that they hold it")
}

func (o *revocation) breakLock(cmd *cobra.Command, p api.Path) error {
	if !o.yes {
		locks, err := askNode(cmd.Context(), o.globals, p, (*client.Cell).Locks)
		return interruptOr(cmd.Context(), o.breakRefusal(p, locks, err))
	}
	text := "free once its holder lets go or its lease and lock-delay are over"
	if o.now {
		text = "free at once, or granted to the next who waits"
		o.notice(cmd.ErrOrStderr(), nowRisk)
	}
	err := o.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
		return c.BreakLock(ctx, p.String(), o.reason, o.now)
	})
	if err != nil {
		return err
	}
	fields := struct {
		Path   string `json:"path"`
		Broken bool   `json:"broken"`
		Now    bool   `json:"now"`
	}{p.String(), true, o.now}
	return o.output.Say(cmd.OutOrStdout(), fields, "broken: %s; 'chubbyctl locks %v' shows it", text, p)
}

// breakRefusal returns the answer to a break without --yes. locks are those at and below the path; err is why
// the cell did not list them.
func (o *revocation) breakRefusal(p api.Path, locks []client.LockInfo, err error) error {
	refusal := &api.Error{Code: api.InvalidArgument, Op: "lock break", Path: p.String()}
	lock, listed := lockAt(locks, p)
	switch {
	case err != nil:
		refusal.Message = fmt.Sprintf("nothing was done without --yes, and who holds the lock is not known: %v", err)
	case listed && len(lock.Holders) > 0:
		refusal.Holders = lock.Holders
		what := "is free once they let go or their lease and lock-delay are over"
		if o.now {
			what = "is free at once, and they may believe that they still hold it"
		}
		refusal.Message = fmt.Sprintf("the lock is %s; --yes takes it away: its sequencers die at once, and the lock %s. Nothing was done without it", heldBy(lock.Holders), what)
	case listed && lock.Delayed > 0:
		refusal.Message = fmt.Sprintf("nobody holds the lock; a holder failed, and it is free in %s. Nothing was done without --yes", term.Roughly(lock.Delayed))
	default:
		refusal.Message = "nobody holds the lock, so there is nothing to break. Nothing was done without --yes"
	}
	return refusal
}

// lockAt returns the lock of one node. It compares names within the cell, because the path may name the cell
// differently (local).
func lockAt(locks []client.LockInfo, p api.Path) (client.LockInfo, bool) {
	for _, l := range locks {
		if at, err := api.ParsePath(l.Path); err == nil && at.Name() == p.Name() {
			return l, true
		}
	}
	return client.LockInfo{}, false
}

func sessionEndVerb(g *globals, cmd *cobra.Command) {
	o := &revocation{globals: g}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, cell, err := g.sessionOf(args)
		if err == nil {
			err = o.validate("session end")
		}
		if err != nil {
			return err
		}
		return o.endSession(cmd, cell, id)
	}
	o.flags(cmd)
}

func (o *revocation) endSession(cmd *cobra.Command, cell string, id api.SessionID) error {
	if !o.yes {
		s, err := o.askSession(cmd.Context(), cell, id)
		return interruptOr(cmd.Context(), endRefusal(id, s, err))
	}
	err := o.withSession(cmd.Context(), cell, func(ctx context.Context, c *client.Client) error {
		return c.EndSession(ctx, id, o.reason)
	})
	if err != nil {
		return err
	}
	fields := struct {
		Session string `json:"session"`
		Ended   bool   `json:"ended"`
	}{id.String(), true}
	return o.output.Say(cmd.OutOrStdout(), fields,
		"ended: gone once its client has heard of it or its lease is over; 'chubbyctl session show %v' shows it", id)
}

// endRefusal returns the answer to an end without --yes.
func endRefusal(id api.SessionID, s shownSession, err error) error {
	refusal := &api.Error{Code: api.InvalidArgument, Op: "session end", Path: id.String()}
	switch {
	case api.CodeOf(err) == api.NotFound:
		refusal.Message = "there is no such session, so there is nothing to end. Nothing was done without --yes"
	case err != nil:
		refusal.Message = fmt.Sprintf("nothing was done without --yes, and whose session it is is not known: %v", err)
	default:
		locks := "which holds no lock"
		if len(s.held) > 0 {
			locks = "which holds " + strings.Join(s.held, ", ")
		}
		refusal.Message = fmt.Sprintf("it is the session of %s, %s; --yes ends it. Nothing was done without it", whoIs(s.info.Holder), locks)
	}
	return refusal
}
