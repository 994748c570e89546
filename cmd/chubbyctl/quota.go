package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func quotaLsVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = showCell(g, (*client.Cell).Quotas, g.printQuotas)
}

func (g *globals) printQuotas(out io.Writer, quotas []client.QuotaUse) error {
	list := term.List[client.QuotaUse, client.QuotaUse]{
		Fields: term.Itself[client.QuotaUse],
		Add: func(t *term.Table, q client.QuotaUse) {
			used, allowed := q.Used, q.Allowed
			nodes, bytes := share(used.Nodes, allowed.Nodes), term.RoughSize(used.Bytes)+"/"+sizeLimit(allowed.Bytes)
			if q.Path != "" {
				t.Add(q.Path, nodes, bytes, "", "", "")
				return
			}
			t.Add(q.Principal, nodes, bytes, share(used.Sessions, allowed.Sessions), share(used.Handles, allowed.Handles), share(used.Waiters, allowed.Waiters))
		},
		Columns: []string{"PRINCIPAL OR DIRECTORY", "NODES", "BYTES", "SESSIONS", "HANDLES", "WAITERS"},
		None:    "no principal uses anything, and no directory has a quota",
	}
	return list.PrintAll(out, g.output, quotas)
}

func share(used, allowed int) string {
	if allowed == 0 {
		return fmt.Sprintf("%d/no limit", used)
	}
	return fmt.Sprintf("%d/%d", used, allowed)
}

func sizeLimit(bytes int64) string {
	if bytes == 0 {
		return "no limit"
	}
	return term.RoughSize(bytes)
}

type quotaSetOptions struct {
	*globals
	consent
	principal, dir string
	quota          api.Quota
	bytes          term.Size

	path api.Path // of --dir; else zero
	cell string
}

func quotaSetVerb(g *globals, cmd *cobra.Command) {
	o := &quotaSetOptions{globals: g}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.validate(cmd, args); err != nil {
			return err
		}
		if err := o.setQuota(cmd.Context()); err != nil {
			return err
		}
		return o.printSet(cmd.OutOrStdout())
	}
	flags := cmd.Flags()
	flags.StringVar(&o.principal, "principal", "", "the quota of the principal `NAME`")
	flags.StringVar(&o.dir, "dir", "", "the quota of the directory `PATH`")
	flags.IntVar(&o.quota.Nodes, "nodes", 0, "at most `N` nodes, those it created or those below it")
	flags.Var(&o.bytes, "bytes", "at most so many bytes of contents of these")
	flags.IntVar(&o.quota.Sessions, "sessions", 0, "at most `N` sessions; of a principal only")
	flags.IntVar(&o.quota.Handles, "handles", 0, "at most `N` open handles; of a principal only")
	flags.IntVar(&o.quota.Waiters, "waiters", 0, "at most `N` Acquires that wait; of a principal only")
	o.flag(cmd)
	keepApart(flags, "dir", "a directory has a quota of nodes and bytes only", "sessions", "handles", "waiters")
}

func (o *quotaSetOptions) validate(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	amounts := false
	for _, flag := range []string{"nodes", "bytes", "sessions", "handles", "waiters"} {
		amounts = amounts || given(flag)
	}
	switch {
	case given("principal") == given("dir"):
		return usagef("quota set: want --principal or --dir, one of them")
	case given("principal") && (o.principal == "" || len(o.principal) > api.MaxPrincipal):
		return usagef("--principal has %d bytes; want 1 to %d", len(o.principal), api.MaxPrincipal)
	case given("dir") && len(args) > 0:
		return usagef("quota set: the path of --dir names its cell; %q is not expected", args[0])
	case !amounts:
		return usagef("quota set: which amount? Give one or more; what is not given goes back to its default, or of a directory to no limit, which --nodes 0 alone does with all")
	}
	o.quota.Bytes = int64(o.bytes)
	if err := o.quota.Validate(); err != nil {
		return usagef("quota set: an amount is negative; 0 stands for the default of a principal, and for no limit of a directory")
	}
	var err error
	if o.dir == "" && !given("dir") {
		o.cell, err = o.cellOf(args)
		return err
	}
	if o.path, err = o.parsePath(o.dir); err == nil {
		o.cell = o.path.Cell()
	}
	return err
}

func (o *quotaSetOptions) setQuota(ctx context.Context) error {
	return o.withSession(ctx, o.cell, func(ctx context.Context, c *client.Client) error {
		if !o.path.IsZero() {
			return c.SetDirectoryQuota(ctx, o.path.String(), o.quota.Nodes, o.quota.Bytes)
		}
		if err := o.confirmSessions(ctx, c, o.principal, o.quota.Sessions); err != nil {
			return err
		}
		return c.SetPrincipalQuota(ctx, o.principal, o.quota)
	})
}

// printSet prints the whole quota: amounts that were not given have changed too.
func (o *quotaSetOptions) printSet(out io.Writer) error {
	q, of, none := o.quota, o.principal, "default"
	f := struct { // 0 is the default, or no limit
		Principal string    `json:"principal"`
		Path      string    `json:"path"`
		Quota     api.Quota `json:"quota"`
	}{Principal: o.principal, Quota: q}
	if !o.path.IsZero() {
		f.Path, of, none = o.path.String(), o.path.String(), "no limit"
	}
	amount := func(name string, n int) string {
		if n == 0 {
			return name + " " + none
		}
		return fmt.Sprintf("%s %d", name, n)
	}
	bytes := none
	if q.Bytes != 0 {
		bytes = o.bytes.String()
	}
	parts := []string{amount("nodes", q.Nodes), "bytes " + bytes}
	if o.path.IsZero() {
		parts = append(parts, amount("sessions", q.Sessions), amount("handles", q.Handles), amount("waiters", q.Waiters))
	}
	return o.output.Say(out, f, "quota of %s: %s", of, strings.Join(parts, ", "))
}
