package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func membersLsVerb(g *globals, cmd *cobra.Command) {
	var watch bool
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if watch {
			return watchMembers(cmd.Context(), g, p, cmd.OutOrStdout())
		}
		return g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
			members, err := recipe.Members(ctx, c, p.String())
			if err == nil && len(members) == 0 && !g.json() {
				term.Remark(g.stderr, "%v has no members", p)
			}
			if err != nil || len(members) == 0 {
				return err
			}
			list := term.List[recipe.Member]{
				Fields: memberFields,
				Add: func(t *term.Table, m recipe.Member) {
					t.Add(m.Name, sessionOfMember(m), m.Host, m.PID, string(m.Value))
				},
				Columns: []string{"MEMBER", "SESSION", "HOST", "PID", "VALUE"},
			}
			return list.PrintAll(cmd.OutOrStdout(), g.output, members)
		})
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "print who joins, changes and leaves, until Ctrl-C")
}

// memberFields returns a member for -o json; an unknown session is empty.
func memberFields(m recipe.Member) term.Fields {
	return append(term.Fields{"name", m.Name, "session", sessionOfMember(m), "host", m.Host, "pid", m.PID}, valueFields(m.Value)...)
}

func sessionOfMember(m recipe.Member) string {
	if m.Session == 0 {
		return ""
	}
	return m.Session.String()
}

func watchMembers(ctx context.Context, g *globals, p api.Path, out io.Writer) error {
	var before []recipe.Member
	return followEach(ctx, g, p, recipe.WatchMembers, func(members []recipe.Member) error {
		for _, one := range memberChanges(before, members) {
			if err := one.print(g.output, out); err != nil {
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
func memberChanges(before, now []recipe.Member) (changes []memberChange) {
	byName := func(list []recipe.Member) map[string]recipe.Member {
		index := map[string]recipe.Member{}
		for _, m := range list {
			index[m.Name] = m
		}
		return index
	}
	in := func(index map[string]recipe.Member, m recipe.Member) bool { // not another of that name
		other, there := index[m.Name]
		return there && other.Session == m.Session && other.Host == m.Host && other.PID == m.PID
	}
	was, is := byName(before), byName(now)
	for _, m := range before {
		if !in(is, m) {
			changes = append(changes, memberChange{"left", m})
		}
	}
	for _, m := range now {
		if !in(was, m) {
			changes = append(changes, memberChange{"joined", m})
		} else if !bytes.Equal(was[m.Name].Value, m.Value) {
			changes = append(changes, memberChange{"changed", m})
		}
	}
	return changes
}

func (one memberChange) print(as term.Format, out io.Writer) error {
	m := one.member
	line := fmt.Sprintf("%s  %-7s  %s", now().Local().Format("2006-01-02 15:04:05.000"), one.kind, m.Name)
	if m.Host != "" {
		line += fmt.Sprintf("  %s (pid %d, %s)", m.Host, m.PID, sessionOfMember(m))
	}
	if len(m.Value) > 0 {
		line += "  " + string(bytes.TrimRight(m.Value, "\n"))
	}
	color := term.Plain
	if one.kind == "left" {
		color = term.Waiting
	}
	return as.SayIn(out, append(term.Fields{"change", one.kind}, memberFields(m)...), color, line)
}

type joinOptions struct {
	workOptions
	name        string
	value       string
	waitForName bool
}

func membersJoinVerb(g *globals, cmd *cobra.Command) {
	o := &joinOptions{workOptions: workOptions{globals: g, noun: "directory"}}
	cmd.Args = o.takeArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.takeStreams(cmd)
		if err := o.validate(cmd.Flags().Changed); err != nil {
			return err
		}
		return o.runWork(cmd.Context(), o.join)
	}
	flags := cmd.Flags()
	o.addCommandFlags(flags)
	flags.StringVar(&o.name, "name", "", "what the member is called, one component of a path (default: host and process)")
	flags.StringVar(&o.value, "value", "", "what the member says of itself, as its address")
	flags.BoolVar(&o.waitForName, "wait-for-name", false, "wait for the name, a minute at the most, if another has it")
}

// validate checks the flags together. The grace period replaces a lock-delay: CMD may run while the session can
// be saved.
func (o *joinOptions) validate(given func(flag string) bool) error {
	o.terms.LockDelay = api.DefaultGrace
	switch {
	case given("name") && o.name == "":
		return usagef("--name is empty: what is the member to be called?")
	case len(o.value) > api.MaxContents:
		return usagef("--value has %d bytes; a file holds at most %d", len(o.value), api.MaxContents)
	}
	if o.name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.name = fmt.Sprintf("%s-%d", url.PathEscape(host), os.Getpid())
	}
	if p, err := o.path.Join(o.name); err != nil || p.Parent() != o.path {
		return usagef("--name: %q cannot be the name of a member; want one component of a path", abridged(o.name))
	}
	return o.workOptions.validate()
}

func (o *joinOptions) join(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	var options []recipe.AnnounceOption
	if o.waitForName {
		options = append(options, recipe.WaitForName())
	}
	early := fmt.Sprintf("its name %s is still that of another session, or the cell does not answer", o.name)
	return o.waitFor(ctx, 0, early, func(ctx context.Context, _ *lockWait) (*heldLock, error) {
		p, err := recipe.Announce(ctx, c, o.path.String(), o.name, []byte(o.value), options...)
		if err != nil {
			return nil, withAdvice(err, o.path, client.Directory)
		}
		return &heldLock{lock: membership{p, c}, member: p.Path(), giveUp: func(ctx context.Context) error {
			if err := p.Withdraw(ctx); !errors.Is(err, api.LockHeld) {
				return err
			}
			return nil // another holds the file's lock, and closing that removes the file; an ended session has removed it
		}}, nil
	})
}

// membership is a member's state: the end of its session is its loss at the latest.
type membership struct {
	*recipe.Presence
	c *client.Client
}

// ExclusiveUntil lasts until the session is given up: CMD harms nobody until then.
func (m membership) ExclusiveUntil() time.Duration {
	if m.Err() != nil {
		return 0
	}
	return max(0, m.c.Left()+api.DefaultGrace)
}
