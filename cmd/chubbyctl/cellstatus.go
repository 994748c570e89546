package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func newStatusCommand(g *globals) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "status [CELL]",
		Short: "Show the replicas of a cell, its master and its size",
		Long: fmt.Sprintf(`status asks every replica of a cell about itself, and the master about the cell. It
exits with %d if no replica answers, or none of those that do is the master; what only
the master knows is not known then (null with -o json).

OK is whether a replica serves, LAST the last entry of its log, LAG how many it is
behind the furthest one, DISK what is free where its data is, and STATE the beginning
of a checksum of what it has applied: two that have applied the same are the same.

Below it stands what is under way, which keeps others from something until it ends: a
restore, a replica that joins or leaves, an outage for a drill; whose it is, and how it
ends.

--check is for scripts and monitors: it exits with %d if the cell has a master, and not
all is well: a replica does not answer or is not OK, is %d entries behind, has less than
1 GiB free, or has another state than the others.`, exitUnavailable, exitFailed, lagging),
		Example: "  chubbyctl cell status\n  chubbyctl cell status foo -o json\n  chubbyctl cell status foo --check >/dev/null || page-somebody",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
				status, err := c.Status(ctx)
				if err != nil {
					return err
				}
				fault := confirmDivergence(ctx, c, divergence(status.Replicas))
				if err := g.printStatus(cmd.OutOrStdout(), status, fault); err != nil || !check {
					return err
				}
				return checkStatus(status, fault)
			})
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "fail if not all is well")
	return cmd
}

// checkStatus returns an error with the faults of a cell that has a master.
func checkStatus(s client.Status, fault string) error {
	var faults []string
	for _, r := range s.Replicas {
		switch {
		case r.Err != nil && r.ID == "":
			// no replica of the cell
		case r.Err != nil:
			faults = append(faults, r.ID+" does not answer")
		case !r.Healthy:
			faults = append(faults, r.ID+" is not OK")
		case r.Lag >= lagging:
			faults = append(faults, fmt.Sprintf("%s is %d entries behind", r.ID, r.Lag))
		case r.DiskFree >= 0 && r.DiskFree < lowDisk:
			faults = append(faults, r.ID+" has less than 1 GiB of disk")
		}
	}
	if fault != "" {
		faults = append(faults, fault)
	}
	if len(faults) == 0 {
		return nil
	}
	return &exitError{exitFailed, api.Errorf(api.Unavailable, "cell %s is not well: %s", s.Cell, strings.Join(faults, "; "))}
}

type restorationFields struct {
	At        *time.Time `json:"at"`
	Counter   uint64     `json:"counter"`
	Index     uint64     `json:"index"`
	Taken     *time.Time `json:"taken"`
	Recovered string     `json:"recovered_from"` // the surviving replica, if the cell had lost its majority; else ""
}

// actFields is an act in progress.
type actFields struct {
	Kind      string        `json:"kind"`      // restore, joining, leaving, outage
	Replica   string        `json:"replica"`   // that joins or leaves, or was the master
	Principal string        `json:"principal"` // "" for the master's own
	Session   api.SessionID `json:"session,omitempty"`
	Since     *time.Time    `json:"since"`
	Sealed    bool          `json:"sealed"` // no session can begin before it ends
	Waits     string        `json:"waits"`
}

func describeAct(a client.Act) string {
	what, ends := "A restore from a backup", "It ends by itself a minute after its author's last step; 'chubbyctl cell restore --give-up' ends it at once."
	switch a.Kind {
	case "joining":
		what, ends = "Replica "+a.Replica+" is joining", "'chubbyctl cell remove "+a.Replica+"' gives it up."
	case "outage":
		what, ends = "A drill goes on: outage, begun at "+a.Replica, fmt.Sprintf("It ends with its author's chubbyctl, or by itself within %v of that.", api.MaxOutage)
	case "leaving":
		what, ends = "Replica "+a.Replica+" is leaving", "'chubbyctl cell remove "+a.Replica+" --cancel' has it stay."
	default:
		if a.Sealed {
			ends = "No session can begin meanwhile. " + ends
		}
	}
	by := "by the cell itself"
	if a.Principal != "" {
		by = "by " + term.Printable(a.Principal)
	}
	if a.Session != 0 {
		by += " in session " + a.Session.String()
	}
	waits := ""
	if a.Waits != "" {
		waits = " It waits: " + term.Printable(a.Waits) + "."
	}
	return fmt.Sprintf("%s, %s, since %s.%s %s", what, by, localTime(a.SinceUnix), waits, ends)
}

func describeRestoration(r client.Restoration) string {
	from := "a backup of " + localTime(r.TakenUnix)
	if r.Recovered != "" {
		from = fmt.Sprintf("what replica %s had when the cell had lost its majority (chubbyctl cell recover); changes that only the lost replicas had are missing", r.Recovered)
	}
	return fmt.Sprintf("Restored on %s, up to entry %d, from %s. No token up to %d is valid.", localTime(r.AtUnix), r.Index, from, r.Counter)
}
