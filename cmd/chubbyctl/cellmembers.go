package main

import (
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

// changeText is the common help of three commands.
const changeText = `

It waits until the change is complete, and says how far it is, and what it waits for. An
interrupt does not stop the change. One change is under way at a time. With --no-wait it
returns when the change has been decided. --timeout bounds that decision, and how long the
cell may not answer afterwards, but not the change. If another operator takes the change
back meanwhile, it fails.

It is for operators of the cell (/ls/CELL/acl/operators).`

func newMemberAddCommand(g *globals) *cobra.Command {
	var spare bool
	cmd := g.newMemberCommand(&cobra.Command{
		Use:   "add ID RAFT-ADDRESS [CELL]",
		Short: "Add a replica to a cell",
		Long: `add lets a replica into a cell. The replica waits for that on its own machine, where
'chubbyd serve --join' was started with an empty data directory and a new id. It is sent
what the cell has, and is given a vote when it has caught up.

With --spare the replica stands by: it goes on waiting, and takes the place of one that
does not answer for the time replace-after of chubbyd (4 hours). Start it with 'chubbyd
serve --spare'. 'chubbyctl cell remove' takes it away.

RAFT-ADDRESS is where the other replicas reach it. An id is never used twice in a cell.
Keep the number of replicas odd: an even one more survives no more failures.` + changeText,
		Example: "  chubbyctl cell add r6 chubby6.example.org:7431",
	}, func(args []string) (client.MemberChange, []string) {
		return client.MemberChange{Add: args[0], Raft: args[1], Spare: spare}, args[2:]
	})
	cmd.Flags().BoolVar(&spare, "spare", false, "have it stand by until another replica is dead")
	return cmd
}

func newMemberRemoveCommand(g *globals) *cobra.Command {
	var cancel bool
	cmd := g.newMemberCommand(&cobra.Command{
		Use:   "remove ID [CELL]",
		Short: "Remove a replica from a cell",
		Long: `remove takes a replica out of a cell, dead or alive. One that runs stops by itself, with
exit code 78, and its data directory can be deleted. One that is still joining is given
up.

It is refused if no majority of those that would stay answers: replace the dead ones
first. If one dies afterwards, the removal waits until it answers; --cancel takes the
removal back, as long as it waits.` + changeText,
		Example: "  chubbyctl cell remove r2\n  chubbyctl cell remove r2 --cancel",
	}, func(args []string) (client.MemberChange, []string) {
		if cancel {
			return client.MemberChange{Keep: args[0]}, args[1:]
		}
		return client.MemberChange{Remove: args[0]}, args[1:]
	})
	cmd.Flags().BoolVar(&cancel, "cancel", false, "have a replica stay that is leaving")
	return cmd
}

func newMemberReplaceCommand(g *globals) *cobra.Command {
	return g.newMemberCommand(&cobra.Command{
		Use:   "replace OLD NEW RAFT-ADDRESS [CELL]",
		Short: "Put a new replica in the place of another, dead or alive",
		Long: `replace adds the replica NEW, as 'chubbyctl cell add' does, and removes OLD when NEW has
caught up and has a vote. It is what to do about a replica whose disk or machine is lost.` + changeText,
		Example: "  chubbyctl cell replace r2 r6 chubby6.example.org:7431",
	}, func(args []string) (client.MemberChange, []string) {
		return client.MemberChange{Remove: args[0], Add: args[1], Raft: args[2]}, args[3:]
	})
}

// newMemberCommand completes a command that changes a cell's replicas. read parses its arguments.
func (g *globals) newMemberCommand(cmd *cobra.Command, read func(args []string) (client.MemberChange, []string)) *cobra.Command {
	var noWait bool
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the change has been decided")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, rest := read(args)
		cell, err := g.cellOf(rest)
		if err != nil {
			return err
		}
		return g.changeMembers(cmd, cell, change, noWait)
	}
	return cmd
}

// changeMembers changes a cell's replicas, and follows the change. --timeout limits the decision, and then the
// cell's silence; the change itself takes as long as the new replica needs to catch up.
func (g *globals) changeMembers(cmd *cobra.Command, cell string, change client.MemberChange, noWait bool) error {
	ctx, step, cancel := g.withSteps(cmd.Context())
	defer cancel()
	report, decided := g.reportWait(ctx, cell, api.Path{}), false
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
	return g.printMembers(cmd.OutOrStdout(), now)
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

func (g *globals) printMembers(out io.Writer, members []client.Member) error {
	list := term.List[client.Member, client.Member]{
		Fields: term.Itself[client.Member],
		Add: func(t *term.Table, m client.Member) {
			voter := map[bool]string{true: "yes", false: "no"}[m.Voter]
			if m.Phase != "" {
				voter += ", " + m.Phase
			}
			t.Add(m.ID, m.Client, m.Raft, m.HTTP, voter)
		},
		Columns: []string{"ID", "CLIENT", "RAFT", "HTTP", "VOTER"},
	}
	err := list.PrintAll(out, g.output, members)
	if err != nil || g.json() {
		return err
	}
	return g.output.Draw(out, func(p *term.Page) {
		for _, m := range members {
			if m.Waits != "" {
				p.Line("%s is %s, and waits: %s", m.ID, m.Phase, m.Waits)
			}
		}
	})
}
