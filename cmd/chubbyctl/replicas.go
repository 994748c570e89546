package main

import (
	"context"
	"errors"
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
			if err := printStatus(g.output, cmd.OutOrStdout(), status, fault); err != nil || !check {
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

func upgradeStatusVerb(g *globals, cmd *cobra.Command, args []string) error {
	return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		f := newUpgradeFields(status)
		if id, err := client.Identify(ctx, c); err == nil && id.Principal != "" && f.Next == nothingToDo && lacksOperators(ctx, g, f.Cell) {
			f.Next = "Next: " + noOperators(f.Cell)
		}
		return printUpgrade(g.output, cmd.OutOrStdout(), f)
	})
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
			if err == nil && !g.json() && lacksOperators(ctx, g, cell) {
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

func lacksOperators(ctx context.Context, g *globals, cell string) bool {
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

func printUpgrade(as term.Format, out io.Writer, f upgradeFields) error {
	level := fmt.Sprintf("cell %s is at feature level %d", f.Cell, f.Level)
	switch {
	case f.masterless && f.Level == 0:
		level = fmt.Sprintf("the feature level of cell %s is not known: no master answers", f.Cell)
	case f.masterless:
		level += " at least: no master answers"
	}
	return as.Show(out, f, func(p *term.Page) {
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

func transferVerb(g *globals, cmd *cobra.Command) {
	var to string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cell, err := g.cellOf(args)
		if err != nil {
			return err
		}
		err = g.withSession(cmd.Context(), cell, func(ctx context.Context, c *client.Client) error {
			master, err := c.Transfer(ctx, to)
			if err != nil {
				return err
			}
			return g.output.Say(cmd.OutOrStdout(), map[string]string{"master": master}, "%s is the master", master)
		})
		if len(args) > 0 && to == "" && (errors.Is(err, client.NothingListens) || errors.Is(err, api.WrongCell)) {
			return fmt.Errorf("%w; if %s is a replica: 'chubbyctl cell transfer --to %s'", err, cell, cell)
		}
		return err
	}
	cmd.Flags().StringVar(&to, "to", "", "the id of the replica that is to be the master")
}

func memberAddVerb(g *globals, cmd *cobra.Command) {
	var spare bool
	changesMembers(g, cmd, func(args []string) (client.MemberChange, []string) {
		return client.MemberChange{Add: args[0], Raft: args[1], Spare: spare}, args[2:]
	})
	cmd.Flags().BoolVar(&spare, "spare", false, "have it stand by until another replica is dead")
}

func memberRemoveVerb(g *globals, cmd *cobra.Command) {
	var cancel bool
	changesMembers(g, cmd, func(args []string) (client.MemberChange, []string) {
		if cancel {
			return client.MemberChange{Keep: args[0]}, args[1:]
		}
		return client.MemberChange{Remove: args[0]}, args[1:]
	})
	cmd.Flags().BoolVar(&cancel, "cancel", false, "have a replica stay that is leaving")
}

func memberReplaceVerb(g *globals, cmd *cobra.Command) {
	changesMembers(g, cmd, func(args []string) (client.MemberChange, []string) {
		return client.MemberChange{Remove: args[0], Add: args[1], Raft: args[2]}, args[3:]
	})
}

// changesMembers has a command change a cell's replicas. read parses its arguments.
func changesMembers(g *globals, cmd *cobra.Command, read func(args []string) (client.MemberChange, []string)) {
	var noWait bool
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the change has been decided")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, rest := read(args)
		cell, err := g.cellOf(rest)
		if err != nil {
			return err
		}
		return changeMembers(g, cmd, cell, change, noWait)
	}
}

// changeMembers changes a cell's replicas, and follows the change. --timeout limits the decision, and then the
// cell's silence; the change itself takes as long as the new replica needs to catch up.
func changeMembers(g *globals, cmd *cobra.Command, cell string, change client.MemberChange, noWait bool) error {
	ctx, step, cancel := g.withSteps(cmd.Context())
	defer cancel()
	report, decided := g.reportWaitUntil(ctx, cell, api.Path{}, "--timeout", g.timeout), false
	var now []client.Member
	tell := memberProgress(cmd.ErrOrStderr(), &now, stopwatch())
	err := func() error {
		c, err := client.New(ctx, g.config(cell))
		if err != nil {
			return err
		}
		defer g.closeSession(ctx, c)
		if err := client.ChangeMembers(ctx, c, change, nil); err != nil {
			return err
		}
		decided = true
		if noWait {
			now, err = c.Cell().Members(ctx)
			return err
		}
		return client.AwaitMembers(ctx, c, change, func(list []client.Member) {
			report.stop() // from now on it reports the steps
			step()
			tell(list)
		})
	}()
	takenBack := errors.Is(err, api.Cancelled) && ctx.Err() == nil
	if err = report.explain(err); err != nil && decided && !takenBack {
		return fmt.Errorf("%w; the change was decided, and goes on: 'chubbyctl cell members' says how far it is", afterSteps(true, err))
	}
	if err != nil {
		return err
	}
	return printMembers(g.output, cmd.OutOrStdout(), now)
}

// tellWait is how long a step takes before chubbyctl says what it waits for, and the interval after that.
const tellWait = 5 * time.Second

// memberProgress returns a function that reports a replica's progress, or what it waits for, and stores the
// last list in now. watch is the clock.
func memberProgress(out io.Writer, now *[]client.Member, watch func() time.Duration) func([]client.Member) {
	told, at := "", time.Duration(0)
	return func(list []client.Member) {
		*now = list
		var words []string
		waits := ""
		for _, m := range list {
			switch {
			case m.Phase == "joining" && m.Voter:
				words = append(words, m.ID+" has a vote")
			case m.Phase == "joining":
				words = append(words, m.ID+" catches up")
			case m.Phase != "" && m.Phase != client.SpareMember:
				words = append(words, m.ID+" leaves")
			}
			if m.Waits != "" {
				waits = m.ID + " waits: " + m.Waits
			}
		}
		switch text := strings.Join(words, ", "); {
		case text != told && text != "":
			told, at = text, watch()
			fmt.Fprintf(out, "chubbyctl: %s\n", text)
		case waits != "" && watch()-at >= tellWait:
			at = watch()
			fmt.Fprintf(out, "chubbyctl: %s\n", waits)
		}
	}
}

func printMembers(as term.Format, out io.Writer, members []client.Member) error {
	list := term.List[client.Member]{
		Add: func(t *term.Table, m client.Member) {
			voter := map[bool]string{true: "yes", false: "no"}[m.Voter]
			if m.Phase != "" {
				voter += ", " + m.Phase
			}
			t.Add(m.ID, m.Client, m.Raft, m.HTTP, voter)
		},
		Columns: []string{"ID", "CLIENT", "RAFT", "HTTP", "VOTER"},
	}
	err := list.PrintAll(out, as, members)
	if err != nil || as.ForPrograms() {
		return err
	}
	return as.Draw(out, func(p *term.Page) {
		for _, m := range members {
			if m.Waits != "" {
				p.Line("%s is %s, and waits: %s", m.ID, m.Phase, m.Waits)
			}
		}
	})
}
