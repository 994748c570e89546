package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/sizing"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// sizingFields is what each replica needs. Rates are of a second.
type sizingFields struct {
	Memory          int64        `json:"memory_bytes"`
	Disk            int64        `json:"disk_bytes"`
	MasterCores     float64      `json:"master_cores"`
	FollowerCores   float64      `json:"follower_cores"`
	MasterNetwork   int64        `json:"master_network_bytes"`
	FollowerNetwork int64        `json:"follower_network_bytes"`
	Connections     int          `json:"connections"`
	KeepAlives      float64      `json:"keepalives"`
	Lease           float64      `json:"lease_s"`
	Parts           []partFields `json:"parts"`
	Notes           []string     `json:"notes"`
	Measured        string       `json:"measured"`
	Machine         string       `json:"machine"`
	Version         string       `json:"version"`
	Quiet           bool         `json:"quiet"`
}

type partFields struct {
	What   string  `json:"what"`
	Memory int64   `json:"memory_bytes"`
	Disk   int64   `json:"disk_bytes"`
	Cores  float64 `json:"master_cores"`
}

func newSizingCommand(g *globals) *cobra.Command {
	var bytes term.Size = 256
	c := sizing.Cell{Replicas: 5, Sessions: 1000, Handles: 3, Nodes: 10_000, Locks: 100, Writes: 10, Reads: 100, Turns: 10}
	cmd := &cobra.Command{
		Use:   "sizing",
		Short: "Reckon what machines a cell needs, without a cell",
		Long: `sizing reckons what each replica of a cell needs of memory, disk, network and
processors, from what is to be in the cell and what is to be done with it. It asks
no cell: the costs of one session, one program, one node, one write were measured
(docs/sizing.md says on which machine), and it adds them up. Rates are of a second,
and of all clients together.

A program has two connections to the master, with buffers for TLS, which take far
more memory than its session. As many programs as sessions are reckoned with; if one
program has several sessions, as a server that opens one for each of its users has,
say how many programs there are (--programs).

Every replica may become the master, so give all of them what the master needs; and
twice the disk, because a snapshot is written beside those that are kept, and half
the memory again for what comes unexpectedly.`,
		Example: `  chubbyctl sizing --sessions 20000 --nodes 100000 --writes 200
  chubbyctl sizing --sessions 5000 --cached 50 --watchers 20 --writes 5 -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Bytes = int64(bytes)
			if !cmd.Flags().Changed("programs") {
				c.Programs = c.Sessions
			}
			if fault := c.Validate(); fault != "" {
				return usagef("%s", fault)
			}
			costs, err := sizing.Measured()
			if err != nil {
				return err
			}
			return g.printSizing(cmd.OutOrStdout(), c.Need(costs), costs)
		},
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
	return cmd
}

func (g *globals) printSizing(out io.Writer, n sizing.Need, costs sizing.Costs) error {
	if g.json() {
		fields := sizingFields{
			Memory: int64(n.Memory), Disk: int64(n.Disk), MasterCores: n.MasterCores, FollowerCores: n.FollowerCores,
			MasterNetwork: int64(n.MasterNetwork), FollowerNetwork: int64(n.FollowerNetwork), Connections: n.Connections, KeepAlives: n.KeepAlives, Lease: n.Lease,
			Parts: []partFields{}, Notes: append([]string{}, n.Notes...),
			Measured: costs.Date, Machine: costs.Machine, Version: costs.Version, Quiet: costs.Quiet,
		}
		for _, p := range n.Parts {
			fields.Parts = append(fields.Parts, partFields{p.What, int64(p.Memory), int64(p.Disk), p.Cores})
		}
		return g.output.Print(out, fields)
	}
	t := g.output.NewTable(out, "EACH REPLICA NEEDS", "AS THE MASTER", "OTHERWISE")
	memory, disk := term.RoughSize(int64(n.Memory)), term.RoughSize(int64(n.Disk))
	t.Add("memory", memory, memory)
	t.Add("disk", disk, disk)
	t.Add("network", term.RoughSize(int64(n.MasterNetwork))+"/s", term.RoughSize(int64(n.FollowerNetwork))+"/s")
	t.Add("processors", cores(n.MasterCores), cores(n.FollowerCores))
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	parts := g.output.NewTable(out, "OF WHICH", "MEMORY", "DISK", "PROCESSORS, MASTER")
	for _, p := range n.Parts {
		parts.Add(p.What, sizeOf(p.Memory), sizeOf(p.Disk), coresOf(p.Cores))
	}
	if err := parts.Flush(); err != nil {
		return err
	}
	for _, note := range n.Notes {
		if _, err := fmt.Fprintf(out, "note: %s\n", note); err != nil {
			return err
		}
	}
	shared := ""
	if !costs.Quiet {
		shared = ", beside other programs"
	}
	measured := fmt.Sprintf("Measured on %s with %s%s; docs/sizing.md has the machine. Your processors and disks are others: chubbyctl bench measures them.", costs.Date, costs.Version, shared)
	_, err := fmt.Fprintf(out, "\n%s\n", term.StyleOf(out).Wrap(measured, ""))
	return err
}

func cores(n float64) string { return fmt.Sprintf("%.3f", n) }

// sizeOf and coresOf leave out what there is nothing of.
func sizeOf(n float64) string {
	if n < 1 {
		return ""
	}
	return term.RoughSize(int64(n))
}

func coresOf(n float64) string {
	if n < 0.0005 {
		return ""
	}
	return cores(n)
}
