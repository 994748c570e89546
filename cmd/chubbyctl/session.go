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

func newSessionCommand(g *globals) *cobra.Command {
	return newGroup("session", "Look at the sessions of a cell, and end them",
		newSessionLsCommand(g), newSessionShowCommand(g), newSessionEndCommand(g))
}

func newSessionLsCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "ls [CELL]",
		Aliases: []string{"list"},
		Short:   "List the sessions of a cell",
		Long: `ls lists the sessions of a cell: whose they are, the length of their lease, and
how much of it is left. A session that is not extended lives at least as long as the
first figure says. It normally ends before the second; a fail-over, or a master that
was stopped for a moment, starts all leases again in full.`,
		Example: "  chubbyctl session ls -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
				return g.printSessions(cmd.OutOrStdout(), c.EachSession(ctx))
			})
		},
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

func newSessionShowCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID [CELL]",
		Short: "Show one session, with the locks that it holds",
		Long: `show shows one session: whose it is, its lease, how much of that is left at least
and at most, how many handles it has open, and which locks it holds.`,
		Example: "  chubbyctl session show s42\n  chubbyctl session show 42 foo -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, cell, err := g.sessionOf(args)
			if err != nil {
				return err
			}
			s, err := g.askSession(cmd.Context(), cell, id)
			if err != nil {
				return err
			}
			return g.printSession(cmd.OutOrStdout(), s)
		},
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

func newLockCommand(g *globals) *cobra.Command {
	o := &revocation{globals: g}
	breaking := &cobra.Command{
		Use:   "break PATH",
		Short: "Take a lock away from its holders",
		Long: `break takes a lock away from those who hold it. Their sequencers are not valid any
more at once; the lock is free once each of them has let go, or its lease and
lock-delay are over. break does not wait for that: 'chubbyctl locks PATH' shows it.
Without --yes it says who holds the lock, changes nothing, and exits with 2. It
takes the right to change the ACL of the node.

--now gives the lock to the next who asks at once. A holder that is alive may then
believe that it still has it, until its lease is over, and two may act at once, unless
the servers that the lock protects check sequencers. Use it when the holder is known
to be dead.`,
		Example: `  chubbyctl lock break /ls/local/deploy --reason 'web3 hangs'  # who loses it?
  chubbyctl lock break /ls/local/deploy --reason 'web3 hangs' --yes
  chubbyctl lock break /ls/local/deploy --reason 'web3 is unplugged' --yes --now`,
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			if err := o.validate("lock break"); err != nil {
				return err
			}
			return o.breakLock(cmd, p)
		}),
	}
	o.flags(breaking)
	breaking.Flags().BoolVar(&o.now, "now", false, "do not wait for the holders: two may then believe that they hold it")
	return newGroup("lock", "Act on a lock that others hold", breaking)
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

func newSessionEndCommand(g *globals) *cobra.Command {
	o := &revocation{globals: g}
	cmd := &cobra.Command{
		Use:   "end ID [CELL]",
		Short: "End a session",
		Long: `end ends another's session. Nothing that it asks for is done any more, and the
sequencers of its locks are not valid any more, at once; the session, with its
ephemeral files, is gone and its locks are free once its client has heard of it, or
its lease (and the lock-delays) are over. end does not wait for that: 'chubbyctl
session show ID' shows it. Without --yes it says whose session it is, changes
nothing, and exits with 2. It is for operators of the cell (/ls/CELL/acl/operators),
except for sessions of one's own principal.`,
		Example: `  chubbyctl session end s42 --reason 'left over from a test'  # whose is it?
  chubbyctl session end s42 --reason 'left over from the test' --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, cell, err := g.sessionOf(args)
			if err == nil {
				err = o.validate("session end")
			}
			if err != nil {
				return err
			}
			return o.endSession(cmd, cell, id)
		},
	}
	o.flags(cmd)
	return cmd
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
