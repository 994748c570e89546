package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/sizing"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func sizingVerb(g *globals, cmd *cobra.Command) {
	var bytes term.Size = 256
	c := sizing.Cell{Replicas: 5, Sessions: 1000, Handles: 3, Nodes: 10_000, Locks: 100, Writes: 10, Reads: 100, Turns: 10}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.Bytes = int64(bytes); !cmd.Flags().Changed("programs") {
			c.Programs = c.Sessions
		}
		if fault := c.Validate(); fault != "" {
			return usagef("%s", fault)
		}
		costs, err := sizing.Measured()
		if err != nil {
			return err
		}
		return g.printSizing(cmd.OutOrStdout(), c.Need(costs))
	}
	flags := cmd.Flags()
	flags.IntVar(&c.Replicas, "replicas", c.Replicas, "replicas of the cell")
	flags.IntVar(&c.Sessions, "sessions", c.Sessions, "sessions that are open")
	flags.IntVar(&c.Programs, "programs", 0, "programs that have these sessions, each with two connections of its own (default: one program for each session)")
	flags.IntVar(&c.Handles, "handles", c.Handles, "handles that each session has open")
	flags.IntVar(&c.Cached, "cached", c.Cached, "nodes of which each session has something in its cache")
	flags.IntVar(&c.Nodes, "nodes", c.Nodes, "files and directories")
	flags.Var(&bytes, "bytes", "contents of a file, on average")
	flags.IntVar(&c.Locks, "locks", c.Locks, "locks that are held")
	flags.Float64Var(&c.Writes, "writes", c.Writes, "writes a second")
	flags.Float64Var(&c.Reads, "reads", c.Reads, "reads a second that no cache answers")
	flags.Float64Var(&c.Turns, "turns", c.Turns, "locks that are acquired and released a second")
	flags.IntVar(&c.Watchers, "watchers", c.Watchers, "clients that are told of a write, or have what it changes in their caches, on average")
}

func (g *globals) printSizing(out io.Writer, n sizing.Need) error {
	size := func(b sizing.Bytes) string { return term.RoughSize(int64(b)) }
	return g.output.Show(out, n, func(p *term.Page) {
		p.Table(func(t *term.Table) {
			t.Add("memory", size(n.Memory), size(n.Memory))
			t.Add("disk", size(n.Disk), size(n.Disk))
			t.Add("network", size(n.MasterNetwork)+"/s", size(n.FollowerNetwork)+"/s")
			t.Add("processors", fmt.Sprintf("%.3f", n.MasterCores), fmt.Sprintf("%.3f", n.FollowerCores))
		}, "EACH REPLICA NEEDS", "AS THE MASTER", "OTHERWISE")
		p.Line("")
		p.Table(func(t *term.Table) {
			shown := func(b sizing.Bytes) string { return map[bool]string{true: size(b)}[b >= 1] }
			for _, part := range n.Parts {
				t.Add(part.What, shown(part.Memory), shown(part.Disk), map[bool]string{true: fmt.Sprintf("%.3f", part.Cores)}[part.Cores >= 0.0005])
			}
		}, "OF WHICH", "MEMORY", "DISK", "PROCESSORS, MASTER")
		for _, note := range n.Notes {
			p.Line("note: %s", note)
		}
		shared := map[bool]string{false: ", beside other programs"}[n.Quiet]
		p.Line("")
		p.Sentence("Measured on %s with %s%s; docs/sizing.md has the machine. Your processors and disks are others: chubbyctl bench measures them.", n.Measured, n.Version, shared)
	})
}
