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

func memberAddVerb(g *globals, cmd *cobra.Command) {
	var spare bool
	g.changesMembers(cmd, func(args []string) (client.MemberChange, []string) {
		return client.MemberChange{Add: args[0], Raft: args[1], Spare: spare}, args[2:]
	})
	cmd.Flags().BoolVar(&spare, "spare", false, "have it stand by until another replica is dead")
}

func memberRemoveVerb(g *globals, cmd *cobra.Command) {
	var cancel bool
	g.changesMembers(cmd, func(args []string) (client.MemberChange, []string) {
		if cancel {
			return client.MemberChange{Keep: args[0]}, args[1:]
		}
		return client.MemberChange{Remove: args[0]}, args[1:]
	})
	cmd.Flags().BoolVar(&cancel, "cancel", false, "have a replica stay that is leaving")
}

func memberReplaceVerb(g *globals, cmd *cobra.Command) {
	g.changesMembers(cmd, func(args []string) (client.MemberChange, []string) {
		return client.MemberChange{Remove: args[0], Add: args[1], Raft: args[2]}, args[3:]
	})
}

// changesMembers has a command change a cell's replicas. read parses its arguments.
func (g *globals) changesMembers(cmd *cobra.Command, read func(args []string) (client.MemberChange, []string)) {
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
