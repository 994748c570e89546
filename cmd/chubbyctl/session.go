package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/misuse"
)

func sessionFields(s client.SessionInfo) term.Fields {
	return append(party(s.Holder), "lease_s", term.Seconds(s.Lease), "left_least_s", term.Seconds(s.LeftLeast), "left_most_s", term.Seconds(s.LeftMost),
		"handles", s.Handles, "locks", s.Locks, "may_cache", s.MayCache)
}

func sessionLsVerb(g *globals, cmd *cobra.Command, args []string) error {
	return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
		return printSessions(g.output, cmd.OutOrStdout(), c.EachSession(ctx))
	})
}

func printSessions(as term.Format, out io.Writer, sessions iter.Seq2[client.SessionInfo, error]) error {
	add := func(t *term.Table, s client.SessionInfo) {
		left := term.Roughly(s.LeftLeast) + " to " + term.Roughly(s.LeftMost)
		t.Add(s.Session, s.Principal, s.Host, s.PID, s.Lease, left, s.Handles, s.Locks)
	}
	list := term.List[client.SessionInfo]{
		Fields:  sessionFields,
		Add:     add,
		Columns: []string{"SESSION", "PRINCIPAL", "HOST", "PID", "LEASE", "LEFT", "HANDLES", "LOCKS"},
		None:    "the cell has no sessions",
	}
	return list.Print(out, as, sessions)
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
	return shownSession{info, term.Each(locks, func(l client.LockInfo) string { return l.Path })}, err
}

// askSession is findSession by a cell's name.
func askSession(ctx context.Context, g *globals, cell string, id api.SessionID) (shownSession, error) {
	return askCell(ctx, g, cell, func(c *client.Cell, ctx context.Context) (shownSession, error) { return findSession(ctx, c, cell, id) })
}

func sessionShowVerb(g *globals, cmd *cobra.Command, args []string) error {
	id, cell, err := g.sessionOf(args)
	if err != nil {
		return err
	}
	s, err := askSession(cmd.Context(), g, cell, id)
	if err != nil {
		return err
	}
	return printSession(g.output, cmd.OutOrStdout(), s)
}

func printSession(as term.Format, out io.Writer, s shownSession) error {
	return as.Show(out, append(sessionFields(s.info), "locks_held", s.held), func(p *term.Page) {
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
		if !o.yes {
			locks, err := askNode(cmd.Context(), g, p, (*client.Cell).Locks)
			return interruptOr(cmd.Context(), o.breakRefusal(p, locks, err))
		}
		text := "free once its holder lets go or its lease and lock-delay are over"
		if o.now {
			text = "free at once, or granted to the next who waits"
			o.notice(cmd.ErrOrStderr(), nowRisk)
		}
		err := g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
			return c.BreakLock(ctx, p.String(), o.reason, o.now)
		})
		if err != nil {
			return err
		}
		fields := term.Fields{"path", p.String(), "broken", true, "now", o.now}
		return g.output.Say(cmd.OutOrStdout(), fields, "broken: %s; 'chubbyctl locks %v' shows it", text, p)
	})
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.now, "now", false, "do not wait for the holders: two may then believe that they hold it")
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
		if !o.yes {
			s, err := askSession(cmd.Context(), g, cell, id)
			return interruptOr(cmd.Context(), endRefusal(id, s, err))
		}
		err = g.withSession(cmd.Context(), cell, func(ctx context.Context, c *client.Client) error {
			return c.EndSession(ctx, id, o.reason)
		})
		if err != nil {
			return err
		}
		return g.output.Say(cmd.OutOrStdout(), term.Fields{"session", id.String(), "ended", true},
			"ended: gone once its client has heard of it or its lease is over; 'chubbyctl session show %v' shows it", id)
	}
	o.flags(cmd)
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

func lintVerb(g *globals, cmd *cobra.Command) {
	var (
		o       misuse.Options
		session string
		rules   []string
	)
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) (err error) {
		if p.Name() != "" {
			o.Path = p.String()
		}
		if cmd.Flags().Changed("session") {
			if o.Session, _, err = g.sessionOf([]string{session}); err != nil {
				return err
			}
		}
		if o.Kinds, err = misusesOf(rules); err != nil {
			return err
		}
		if o.Most < 1 || o.Most > api.MaxListed {
			return usagef("--most %d: want 1 to %d", o.Most, api.MaxListed)
		}
		r, err := askCell(cmd.Context(), g, p.Cell(), func(c *client.Cell, ctx context.Context) (misuse.Report, error) { return c.Lint(ctx, o) })
		if err != nil {
			return err
		}
		return printLint(g.output, cmd.OutOrStdout(), r)
	})
	flags := cmd.Flags()
	flags.StringVar(&session, "session", "", "only of the session `ID`")
	flags.StringVar(&o.Principal, "principal", "", "only of sessions of this principal")
	flags.StringSliceVar(&rules, "rule", nil, "only by these rules, `RULE,...`")
	flags.IntVar(&o.Most, "most", 20, "how many findings to list at most")
	_ = cmd.RegisterFlagCompletionFunc("rule", g.complete(words(misuseNames()...))) // the flag exists
}

func misuseNames() []string { return term.Each(misuse.Kinds(), misuse.Kind.String) }

func misusesOf(names []string) (list []misuse.Kind, err error) {
	for _, name := range names {
		var m misuse.Kind
		if err := m.UnmarshalText([]byte(name)); err != nil {
			return nil, usagef("--rule %s: there is no such rule; want some of %s", name, strings.Join(misuseNames(), ", "))
		}
		list = append(list, m)
	}
	return list, nil
}

// printLint prints a report. Its error has the exit code of findings.
func printLint(as term.Format, out io.Writer, r misuse.Report) (err error) {
	err = as.Show(out, lintFields(r), func(p *term.Page) { drawLint(p, r) })
	if err == nil && len(r.Findings) > 0 {
		err = &exitError{code: exitMismatch}
	}
	return err
}

func lintFields(r misuse.Report) term.Fields {
	return term.Fields{"epoch", r.Epoch, "since_s", term.Seconds(r.Since), "findings", term.Each(r.Findings, findingFields)}.With("more", r.More)
}

// findingFields returns a finding for -o json. It has no session if it is about all sessions of the principal.
func findingFields(f misuse.Finding) term.Fields {
	session, share := "", (*float64)(nil) // the share is null if the count has no whole
	if f.Who.Session != 0 {
		session = f.Who.Session.String()
	}
	if f.Share > 0 {
		share = &f.Share
	}
	return append(term.Fields{"rule", f.Kind.String()}.With("session", session).With("principal", f.Who.Principal).With("host", f.Who.Host).
		With("pid", f.Who.PID).With("path", f.Path), "count", f.Count, "per_s", f.PerSecond(), "share", share,
		"measured_s", term.Seconds(f.Measured), "lease_s", term.SecondsOrNull(f.Lease),
		"what", f.Kind.What(), "why", f.Kind.Why(), "instead", f.Kind.Instead()).With("unseen", f.Kind.Unseen())
}

// drawLint draws a table of the findings, and the explanation of each broken rule.
func drawLint(p *term.Page, r misuse.Report) {
	if len(r.Findings) == 0 {
		p.Paragraph(term.Plain, fmt.Sprintf("no client misuses the cell, as far as its master (of epoch %d) has counted, for %s", r.Epoch, term.Roughly(r.Since)), "")
		return
	}
	var broken []misuse.Kind
	p.Table(func(t *term.Table) {
		for _, f := range r.Findings {
			session, rate, count := "all", fmt.Sprintf("%.1f", f.PerSecond()), fmt.Sprint(f.Count)
			if f.Who.Session != 0 {
				session = f.Who.Session.String()
			}
			if f.Share > 0 {
				count += fmt.Sprintf(" (%.0f %%)", 100*f.Share)
			}
			if f.Lease > 0 {
				count, rate = "lease "+f.Lease.String(), ""
			}
			t.Add(term.Paint(term.Waiting, f.Kind.String()), session, whoseProcess(f.Who), f.Path, count, rate, term.Roughly(f.Measured))
			if !slices.Contains(broken, f.Kind) {
				broken = append(broken, f.Kind)
			}
		}
	}, "RULE", "SESSION", "WHO", "PATH", "COUNT", "A SECOND", "IN?")
	p.Rest(r.More, "findings")
	for _, m := range broken {
		if !m.Known() {
			p.Line("\n%s: this chubbyctl is too old to know it", m)
			continue
		}
		p.Line("\n%s (docs/misuse.md#%s)", p.Paint(term.Heading, m.String()), m)
		for _, part := range []struct{ first, text string }{
			{"  what:    ", m.What()}, {"  why:     ", m.Why()}, {"  instead: ", m.Instead()}, {"  not seen: ", m.Unseen()},
		} {
			if part.text != "" {
				p.Paragraph(term.Plain, part.text, part.first)
			}
		}
	}
	p.Line("\ncounted by the master of epoch %d, which has counted for %s", r.Epoch, term.Roughly(r.Since))
}
