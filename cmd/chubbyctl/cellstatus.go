package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func statusVerb(g *globals, cmd *cobra.Command) {
	var check bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
	}
	cmd.Flags().BoolVar(&check, "check", false, "fail if not all is well")
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

func describeAct(a api.Act) string {
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

func describeRestoration(r api.Restoration) string {
	from := "a backup of " + localTime(r.TakenUnix)
	if r.Recovered != "" {
		from = fmt.Sprintf("what replica %s had when the cell had lost its majority (chubbyctl cell recover); changes that only the lost replicas had are missing", r.Recovered)
	}
	return fmt.Sprintf("Restored on %s, up to entry %d, from %s. No token up to %d is valid.", localTime(r.AtUnix), r.Index, from, r.Counter)
}

type upgradeFields struct {
	Cell     string           `json:"cell"`
	Level    int              `json:"level"`  // 0 if unknown
	Newest   int              `json:"newest"` // highest feature level of any replica
	Replicas []upgradeReplica `json:"replicas"`
	Next     string           `json:"next"` // what to do, for people

	masterless bool // no master answers, and the others may be behind
}

type upgradeReplica struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	MaxLevel int    `json:"max_level"`
	Error    string `json:"error,omitempty"`
}

func upgradeStatusVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
			status, err := c.Status(ctx)
			if err != nil {
				return err
			}
			f := newUpgradeFields(status)
			if id, err := client.Identify(ctx, c); err == nil && id.Principal != "" && f.Next == nothingToDo && g.lacksOperators(ctx, f.Cell) {
				f.Next = "Next: " + noOperators(f.Cell)
			}
			return g.printUpgrade(cmd.OutOrStdout(), f)
		})
	}
}

func upgradeFinishVerb(g *globals, cmd *cobra.Command) {
	var without []string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cell, err := g.cellOf(args)
		if err != nil {
			return err
		}
		return g.withSession(cmd.Context(), cell, func(ctx context.Context, c *client.Client) error {
			u, err := c.FinishUpgrade(ctx, without...)
			if err != nil {
				return err
			}
			fields := map[string]int{"level": u.Level, "newest": u.Newest}
			err = g.output.Say(cmd.OutOrStdout(), fields, "cell %s is at feature level %d, the newest that its replicas know", cell, u.Level)
			if err == nil && !g.json() && g.lacksOperators(ctx, cell) {
				g.notice(cmd.ErrOrStderr(), noOperators(cell))
			}
			return err
		})
	}
	cmd.Flags().StringSliceVar(&without, "without", nil, "ids of replicas that are lost for good, and need not answer")
}

func newUpgradeFields(s client.Status) upgradeFields {
	f := upgradeFields{Cell: s.Cell, Level: s.Level, Replicas: []upgradeReplica{}, masterless: s.Master == ""}
	for _, r := range s.Replicas {
		row := upgradeReplica{ID: r.ID, Version: r.Version, MaxLevel: r.MaxLevel}
		if r.Err != nil {
			row.Error = r.Err.Error()
		}
		if r.Err == nil || r.ID != "" { // else the cell has no replica at this address
			f.Newest = max(f.Newest, r.MaxLevel)
			f.Replicas = append(f.Replicas, row)
		}
	}
	f.Next = f.nextStep()
	return f
}

func (f upgradeFields) nextStep() string {
	var silent, older, steps []string
	versions := map[string]bool{}
	for _, r := range f.Replicas {
		switch {
		case r.Error != "":
			silent = append(silent, r.ID)
			continue
		case r.MaxLevel < f.Newest:
			older = append(older, r.ID)
		}
		versions[r.Version] = true
	}
	if len(older) > 0 && !f.masterless {
		steps = append(steps, "start "+enumerate(older)+" with the new version, one after the other")
	}
	if len(silent) > 0 {
		steps = append(steps, "see why "+enumerate(silent)+" does not answer")
	}
	after := ""
	switch {
	case f.masterless:
		steps = append(steps, "ask again when the master answers: until then it is not known what the cell has finished")
	case f.Newest > f.Level && len(steps) > 0:
		after = " Until the upgrade is finished every replica can go back to the old version."
	case f.Newest > f.Level:
		steps = []string{fmt.Sprintf("'chubbyctl cell upgrade finish' raises the cell to feature level %d", f.Newest)}
		after = " After that no replica can go back to the old version."
	case len(steps) == 0 && len(versions) > 1:
		steps = []string{"start the other replicas with the new version, one after the other"}
		after = " It has no new feature level."
	case len(steps) == 0:
		return nothingToDo
	}
	return "Next: " + strings.Join(steps, "; ") + "." + after
}

const nothingToDo = "There is nothing to do."

func (g *globals) lacksOperators(ctx context.Context, cell string) bool {
	_, err := readNode(ctx, g, listsOf(cell), func(c *client.Client, ctx context.Context, lists string) (api.Stat, error) {
		return c.Stat(ctx, lists+"/"+operatorsList)
	})
	return api.CodeOf(err) == api.NotFound
}

// noOperators describes what a cell from before operators lacks.
func noOperators(cell string) string {
	list := listsOf(cell).String() + "/" + operatorsList
	return fmt.Sprintf("cell %[1]s has no list of operators: all clients that it lets in are operators, and may write its access control lists. 'chubbyctl acl file put %[2]s PRINCIPAL' names the operators, and closes the lists to others.", cell, list)
}

func enumerate(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func (g *globals) printUpgrade(out io.Writer, f upgradeFields) error {
	level := fmt.Sprintf("cell %s is at feature level %d", f.Cell, f.Level)
	switch {
	case f.masterless && f.Level == 0:
		level = fmt.Sprintf("the feature level of cell %s is not known: no master answers", f.Cell)
	case f.masterless:
		level += " at least: no master answers"
	}
	return g.output.Show(out, f, func(p *term.Page) {
		p.Line("%s\n", level)
		p.Table(func(t *term.Table) {
			for _, r := range f.Replicas {
				switch {
				case r.Error != "":
					t.Add(r.ID, term.Paint(term.Trouble, "no answer"), "")
				case r.MaxLevel < f.Newest:
					t.Add(r.ID, r.Version, term.Paint(term.Waiting, r.MaxLevel))
				default:
					t.Add(r.ID, r.Version, r.MaxLevel)
				}
			}
		}, "ID", "VERSION", "KNOWS")
		p.Line("\n%s", f.Next)
	})
}
