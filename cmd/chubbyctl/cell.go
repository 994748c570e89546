package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

type statusFields struct {
	Cell     string          `json:"cell"`
	CellID   api.CellID      `json:"cell_id"`
	Master   string          `json:"master"`
	Epoch    api.Epoch       `json:"epoch"`
	Replicas []replicaFields `json:"replicas"`
	Sessions uint64          `json:"sessions"`
	Nodes    uint64          `json:"nodes"`
	Locks    uint64          `json:"locks"`
}

type replicaFields struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	Client    string `json:"client"`
	Term      uint64 `json:"term"`
	Last      uint64 `json:"last"`
	Applied   uint64 `json:"applied"`
	Lag       uint64 `json:"lag"`
	Healthy   bool   `json:"healthy"`
	Version   string `json:"version"`
	DiskFree  int64  `json:"disk_free_bytes"`
	StateHash string `json:"state_hash"`
	LogStore  string `json:"log_store"`
	Error     string `json:"error,omitempty"`
}

func newStatusFields(s client.Status) statusFields {
	f := statusFields{
		Cell: s.Cell, CellID: s.CellID, Master: s.Master, Epoch: s.Epoch,
		Sessions: s.Sessions, Nodes: s.Nodes, Locks: s.Locks, Replicas: []replicaFields{},
	}
	for _, r := range s.Replicas {
		row := replicaFields{
			ID: r.ID, Role: r.Role, Client: r.Client, Term: r.Term, Last: r.Last, Applied: r.Applied, Lag: r.Lag,
			Healthy: r.Healthy, Version: r.Version, DiskFree: r.DiskFree, StateHash: r.StateHash, LogStore: r.LogStore,
		}
		if r.Err != nil {
			row.Error = r.Err.Error()
		}
		f.Replicas = append(f.Replicas, row)
	}
	return f
}

type memberFields struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Raft   string `json:"raft"`
	HTTP   string `json:"http"`
	Voter  bool   `json:"voter"`
}

func newCellCommand(g *globals) *cobra.Command {
	return newGroup("cell", "Look at the replicas of a cell",
		&cobra.Command{
			Use:   "status [CELL]",
			Short: "Show the replicas of a cell, its master and its size",
			Long: fmt.Sprintf(`status asks every replica of a cell about itself, and the master about the cell. It
exits with %d if no replica answers, or none of those that do knows a master.

LAG is how many entries of the log a replica is behind the furthest one.`, exitUnavailable),
			Example: "  chubbyctl cell status\n  chubbyctl cell status foo -o json",
			Args:    arguments(cobra.MaximumNArgs(1)),
			RunE: func(cmd *cobra.Command, args []string) error {
				return g.lookAtCell(cmd, args, func(ctx context.Context, c *client.Cell) error {
					status, err := c.Status(ctx)
					if err != nil {
						return err
					}
					return g.printStatus(cmd.OutOrStdout(), status)
				})
			},
		},
		&cobra.Command{
			Use:     "members [CELL]",
			Short:   "List the replicas that a cell is made of",
			Example: "  chubbyctl cell members",
			Args:    arguments(cobra.MaximumNArgs(1)),
			RunE: func(cmd *cobra.Command, args []string) error {
				return g.lookAtCell(cmd, args, func(ctx context.Context, c *client.Cell) error {
					members, err := c.Members(ctx)
					if err != nil {
						return err
					}
					return g.printMembers(cmd.OutOrStdout(), members)
				})
			},
		},
		newTransferCommand(g),
	)
}

// newTransferCommand makes another replica the master.
func newTransferCommand(g *globals) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "transfer [CELL]",
		Short: "Have the master hand over to another replica",
		Long: `transfer makes another replica of the cell the master: the one that --to names, or
the one whose log is furthest. Sessions and locks do not notice; calls wait for some
milliseconds. Do it before the master's machine is stopped; a replica that is
stopped by SIGTERM does it by itself.

It is for those who may change the ACL of the cell's root.`,
		Example: "  chubbyctl cell transfer\n  chubbyctl cell transfer foo --to r3",
		Args:    arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cell, err := cellOf(args)
			if err != nil {
				return err
			}
			return g.visit(cmd.Context(), cell, func(ctx context.Context, c *client.Client) error {
				master, err := c.Transfer(ctx, to)
				if err != nil {
					return err
				}
				if g.json() {
					return printJSON(cmd.OutOrStdout(), map[string]string{"master": master})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is the master\n", master)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the id of the replica that is to be the master")
	return cmd
}

func (g *globals) lookAtCell(cmd *cobra.Command, args []string, f func(context.Context, *client.Cell) error) error {
	cell, err := cellOf(args)
	if err != nil {
		return err
	}
	return g.look(cmd.Context(), cell, f)
}

func (g *globals) printStatus(out io.Writer, s client.Status) error {
	if g.json() {
		if err := printJSON(out, newStatusFields(s)); err != nil {
			return err
		}
	} else if err := writeStatus(out, s); err != nil {
		return err
	}
	if s.Master == "" {
		return &exitError{exitUnavailable, api.Errorf(api.Unavailable, "cell %s has no master; it needs a majority of its replicas", s.Cell)}
	}
	return nil
}

func writeStatus(out io.Writer, s client.Status) error {
	if _, err := fmt.Fprintf(out, "cell %s, master %s, epoch %d: %d sessions, %d nodes, %d locks\n\n",
		s.Cell, orDash(s.Master), s.Epoch, s.Sessions, s.Nodes, s.Locks); err != nil {
		return err
	}
	t := newTable(out, "ID", "ROLE", "HEALTHY", "CLIENT", "TERM", "APPLIED", "LAG", "DISK FREE", "STATE", "VERSION")
	for _, r := range s.Replicas {
		if r.Err != nil {
			t.add(r.ID, "no answer", "no", r.Client, "", "", "", "", "", r.Err)
			continue
		}
		healthy := "yes"
		if !r.Healthy {
			healthy = "NO"
		}
		t.add(r.ID, r.Role, healthy, r.Client, r.Term, r.Applied, r.Lag, fmt.Sprintf("%.1f GiB", float64(r.DiskFree)/(1<<30)), fmt.Sprintf("%.8s", r.StateHash), r.Version)
	}
	return t.flush()
}

func (g *globals) printMembers(out io.Writer, members []client.Member) error {
	if g.json() {
		for _, m := range members {
			if err := printJSON(out, memberFields(m)); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable(out, "ID", "CLIENT", "RAFT", "HTTP", "VOTER")
	for _, m := range members {
		t.add(m.ID, m.Client, m.Raft, m.HTTP, m.Voter)
	}
	return t.flush()
}
