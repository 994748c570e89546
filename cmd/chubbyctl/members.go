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

type joinOptions struct {
	workOptions
	name        string
	value       string
	waitForName bool
}

func newMembersJoinCommand(g *globals) *cobra.Command {
	o := &joinOptions{workOptions: workOptions{globals: g, noun: "directory"}}
	cmd := &cobra.Command{
		Use:   "join PATH [flags] [-- CMD ARG...]",
		Short: "Be on a list of members while a command runs",
		Long: fmt.Sprintf(`join puts a member on the list PATH, a directory, which it creates if absent (the
directory above has to exist), and runs CMD while the member is listed. Without CMD it
prints the path of the member's file, and is a member until SIGINT or SIGTERM. The member
leaves when CMD and everything it started have ended.

CMD runs as under acquire; signals are passed on to it (see 'chubbyctl acquire --help').
It has in its environment
  CHUBBY_MEMBER   the path of the member's file
  CHUBBY_SESSION  the session that the member belongs to

The file is made again if somebody deletes it. If the cell cannot be reached any more, CMD
rides it out for as long as the session can be saved. If the membership is lost, CMD gets
SIGTERM, and SIGKILL %v later or as --kill-after says, and join ends with %d. With --retry
it joins again, under a new session, and runs CMD again; also if the session ended while
it waited.

A --name that another member has is refused at once (exit code %d). One that a process of
this host had, which has ended, is waited for until its session has ended. With
--wait-for-name a name is waited for, a minute at the most, whoever has it: for names that
belong to one program, whichever host it runs on.

Exit codes: as acquire.`, defaultKillAfter, exitLost, exitFailed),
		Example: `  chubbyctl members join /ls/local/up --name web1 --value 10.0.0.1:80 -- ./serve
  chubbyctl members join /ls/local/up --value "$HOSTNAME:80" --retry -- ./serve
  chubbyctl members join /ls/local/up --name $POD --wait-for-name -- ./worker`,
		Args: o.takeArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.takeStreams(cmd)
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}
			return o.runWork(cmd.Context(), o.join)
		},
	}
	flags := cmd.Flags()
	o.addCommandFlags(flags)
	flags.StringVar(&o.name, "name", "", "what the member is called, one component of a path (default: host and process)")
	flags.StringVar(&o.value, "value", "", "what the member says of itself, as its address")
	flags.BoolVar(&o.waitForName, "wait-for-name", false, "wait for the name, a minute at the most, if another has it")
	return cmd
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
		return &heldLock{lock: membership{p, c}, member: p.Path(), giveUp: leaving(p)}, nil
	})
}

// leaving returns how a member leaves. An ended session has removed it.
func leaving(p *recipe.Presence) func(context.Context) error {
	return func(ctx context.Context) error {
		err := p.Withdraw(ctx)
		if errors.Is(err, api.LockHeld) {
			return nil // another holds the file's lock, and closing that removes the file
		}
		return err
	}
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
