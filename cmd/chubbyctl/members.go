package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func newMembersCommand(g *globals) *cobra.Command {
	group := newGroup("members", "Say which processes are up: join a list, and read it",
		newMembersLsCommand(g), newMembersJoinCommand(g))
	group.Long = `A list of members is a directory with an ephemeral file for each: its value, session, host
and process. A member is on it until it leaves or the cell has ended its session: at most
a lease and two seconds after it was last heard of. So one that is listed may be dead, and
two of different names do not exclude each other; for that there are locks.

The replicas of a cell are listed by 'chubbyctl cell members'.`
	return group
}

type membersOptions struct {
	*globals
	watch bool
	path  api.Path
	out   io.Writer
}

func newMembersLsCommand(g *globals) *cobra.Command {
	o := &membersOptions{globals: g}
	cmd := &cobra.Command{
		Use:     "ls PATH",
		Aliases: []string{"list"},
		Short:   "List who is up",
		Long: `ls lists the members of PATH, a directory, with their values: those of 'chubbyctl members
join', of recipe.Announce, and every other ephemeral file (its contents are the value).

With --watch it prints a line for each member at first, and then for each that joins,
changes its value or leaves, until Ctrl-C; a directory that does not exist has no members,
and is waited for. Changes that come together may be one: it ends with the newest value of
each, and does not show every value before. When its session ends, it goes on in another,
and prints what has become of those that it had shown.`,
		Example: `  chubbyctl members ls /ls/local/up
  chubbyctl -o json members ls /ls/local/up | jq -r .value
  chubbyctl members ls /ls/local/up --watch | while read -r line; do ./re; done`,
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			o.path, o.out = p, cmd.OutOrStdout()
			if o.watch {
				return o.watchMembers(cmd.Context())
			}
			return o.listMembers(cmd.Context())
		}),
	}
	cmd.Flags().BoolVar(&o.watch, "watch", false, "print who joins, changes and leaves, until Ctrl-C")
	return cmd
}

type upFields struct {
	Change  string `json:"change,omitempty"` // with --watch
	Name    string `json:"name"`
	Session string `json:"session"` // empty if unknown
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	valueFields
}

func newUpFields(m recipe.Member) upFields {
	f := upFields{Name: m.Name, Host: m.Host, PID: m.PID, valueFields: newValueFields(m.Value)}
	if m.Session != 0 {
		f.Session = m.Session.String()
	}
	return f
}

func (o *membersOptions) listMembers(ctx context.Context) error {
	return o.withSessionAt(ctx, o.path.Cell(), o.path, func(ctx context.Context, c *client.Client) error {
		members, err := recipe.Members(ctx, c, o.path.String())
		if err == nil && len(members) == 0 && !o.json() {
			term.Remark(o.stderr, "%v has no members", o.path)
		}
		if err != nil || len(members) == 0 {
			return err
		}
		list := term.List[recipe.Member, upFields]{
			Fields: newUpFields,
			Add: func(t *term.Table, m recipe.Member) {
				t.Add(m.Name, newUpFields(m).Session, m.Host, m.PID, string(m.Value))
			},
			Columns: []string{"MEMBER", "SESSION", "HOST", "PID", "VALUE"},
		}
		return list.PrintAll(o.out, o.output, members)
	})
}

func (o *membersOptions) watchMembers(ctx context.Context) error {
	var before []recipe.Member
	return followEach(ctx, o.globals, o.path, recipe.WatchMembers, func(members []recipe.Member) error {
		for _, one := range memberChanges(before, members) {
			if err := o.printMemberChange(one); err != nil {
				return err
			}
		}
		before = members
		return nil
	})
}

type memberChange struct {
	kind   string // joined, changed or left
	member recipe.Member
}

// memberChanges returns the changes between two sets of members, by name. Members that left come first, so that
// a reader that keeps a set of names never sees one twice.
func memberChanges(before, now []recipe.Member) []memberChange {
	was := map[string]recipe.Member{}
	for _, m := range before {
		was[m.Name] = m
	}
	var left, others []memberChange
	for _, m := range now {
		old, there := was[m.Name]
		delete(was, m.Name)
		switch {
		case there && (old.Session != m.Session || old.Host != m.Host || old.PID != m.PID): // another of the same name
			left = append(left, memberChange{"left", old})
			others = append(others, memberChange{"joined", m})
		case !there:
			others = append(others, memberChange{"joined", m})
		case !bytes.Equal(old.Value, m.Value):
			others = append(others, memberChange{"changed", m})
		}
	}
	for _, m := range before {
		if gone, there := was[m.Name]; there {
			left = append(left, memberChange{"left", gone})
		}
	}
	return append(left, others...)
}

func (o *membersOptions) printMemberChange(one memberChange) error {
	f := newUpFields(one.member)
	f.Change = one.kind
	line := fmt.Sprintf("%s  %-7s  %s", now().Local().Format("2006-01-02 15:04:05.000"), one.kind, f.Name)
	if f.Host != "" {
		line += fmt.Sprintf("  %s (pid %d, %s)", f.Host, f.PID, f.Session)
	}
	if len(one.member.Value) > 0 {
		line += "  " + string(bytes.TrimRight(one.member.Value, "\n"))
	}
	color := term.Plain
	if one.kind == "left" {
		color = term.Waiting
	}
	return o.output.SayIn(o.out, f, color, line)
}
