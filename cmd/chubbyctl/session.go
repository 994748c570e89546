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
