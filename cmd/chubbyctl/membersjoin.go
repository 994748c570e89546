package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

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
	o.lockDelay = api.DefaultGrace
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
