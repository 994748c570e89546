package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// cellOf is the cell named by the one optional argument of commands about a
// whole cell, as its name or as a path in it.
func cellOf(args []string) (string, error) {
	if len(args) == 0 {
		return api.LocalCell, nil
	}
	if api.ValidCell(args[0]) {
		return args[0], nil
	}
	p, err := api.ParsePath(args[0])
	if err != nil {
		return "", usagef("%q is not a cell's name: want letters, digits, '-', '_' and '.', as in %s", args[0], api.LocalCell)
	}
	return p.Cell(), nil
}

type sessionFields struct {
	Session    string  `json:"session"`
	Principal  string  `json:"principal"`
	Host       string  `json:"host"`
	PID        int     `json:"pid"`
	LeaseS     float64 `json:"lease_s"`
	LeftLeastS float64 `json:"left_least_s"`
	LeftMostS  float64 `json:"left_most_s"`
	Handles    int     `json:"handles"`
	Locks      int     `json:"locks"`
	MayCache   bool    `json:"may_cache"`
}

func newSessionFields(s client.SessionInfo) sessionFields {
	return sessionFields{
		Session: s.Session.String(), Principal: s.Principal, Host: s.Host, PID: s.PID,
		LeaseS: seconds(s.Lease), LeftLeastS: seconds(s.LeftLeast), LeftMostS: seconds(s.LeftMost),
		Handles: s.Handles, Locks: s.Locks, MayCache: s.MayCache,
	}
}

func newSessionCommand(g *globals) *cobra.Command {
	return newGroup("session", "Look at the sessions of a cell",
		&cobra.Command{
			Use:   "ls [CELL]",
			Short: "List the sessions of a cell",
			Long: `ls lists the sessions of a cell: whose they are, the length of their lease, and
how much of it is left. A session that is not extended lives at least as long as the
first figure says, and is ended at the latest after the second.`,
			Example: "  chubbyctl session ls -o json",
			Args:    arguments(cobra.MaximumNArgs(1)),
			RunE: func(cmd *cobra.Command, args []string) error {
				cell, err := cellOf(args)
				if err != nil {
					return err
				}
				return g.look(cmd.Context(), cell, func(ctx context.Context, c *client.Cell) error {
					sessions, err := c.Sessions(ctx)
					if err != nil {
						return err
					}
					return g.printSessions(cmd.OutOrStdout(), sessions)
				})
			},
		},
	)
}

func (g *globals) printSessions(out io.Writer, sessions []client.SessionInfo) error {
	if g.json() {
		for _, s := range sessions {
			if err := printJSON(out, newSessionFields(s)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(sessions) == 0 {
		_, err := fmt.Fprintln(out, "the cell has no sessions")
		return err
	}
	t := newTable(out, "SESSION", "PRINCIPAL", "HOST", "PID", "LEASE", "LEFT", "HANDLES", "LOCKS")
	for _, s := range sessions {
		left := roughly(s.LeftLeast) + " to " + roughly(s.LeftMost)
		t.add(s.Session, s.Principal, s.Host, s.PID, s.Lease, left, s.Handles, s.Locks)
	}
	return t.flush()
}
