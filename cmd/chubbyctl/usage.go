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
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/sizing"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func printQuotas(as term.Format, out io.Writer, quotas []client.QuotaUse) error {
	list := term.List[client.QuotaUse]{
		Add: func(t *term.Table, q client.QuotaUse) {
			used, allowed := q.Used, q.Allowed
			nodes, bytes := ofLimit(used.Nodes, allowed.Nodes), term.RoughSize(used.Bytes)+"/no limit"
			if allowed.Bytes != 0 {
				bytes = term.RoughSize(used.Bytes) + "/" + term.RoughSize(allowed.Bytes)
			}
			if q.Path != "" {
				t.Add(q.Path, nodes, bytes, "", "", "")
				return
			}
			t.Add(q.Principal, nodes, bytes, ofLimit(used.Sessions, allowed.Sessions), ofLimit(used.Handles, allowed.Handles), ofLimit(used.Waiters, allowed.Waiters))
		},
		Columns: []string{"PRINCIPAL OR DIRECTORY", "NODES", "BYTES", "SESSIONS", "HANDLES", "WAITERS"},
		None:    "no principal uses anything, and no directory has a quota",
	}
	return list.PrintAll(out, as, quotas)
}

func ofLimit(used, allowed int) string {
	if allowed == 0 {
		return fmt.Sprintf("%d/no limit", used)
	}
	return fmt.Sprintf("%d/%d", used, allowed)
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
		err := g.withSession(cmd.Context(), o.cell, func(ctx context.Context, c *client.Client) error {
			if !o.path.IsZero() {
				return c.SetDirectoryQuota(ctx, o.path.String(), o.quota.Nodes, o.quota.Bytes)
			}
			if err := o.confirmSessions(ctx, c, o.principal, o.quota.Sessions); err != nil {
				return err
			}
			return c.SetPrincipalQuota(ctx, o.principal, o.quota)
		})
		if err != nil {
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

// printSet prints the whole quota: amounts that were not given have changed too.
func (o *quotaSetOptions) printSet(out io.Writer) error {
	q, of, none := o.quota, o.principal, "default"
	path := ""
	if !o.path.IsZero() {
		path, of, none = o.path.String(), o.path.String(), "no limit"
	}
	f := term.Fields{"principal", o.principal, "path", path, "quota", q} // 0 is the default, or no limit
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

func topVerb(g *globals, cmd *cobra.Command) {
	var o repetition
	var most int
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		if most < 1 || most > api.MaxListed {
			return usagef("--most %d: want 1 to %d", most, api.MaxListed)
		}
		if !cmd.Flags().Changed("times") && !term.StyleOf(cmd.OutOrStdout()).Terminal {
			o.times = 1
		}
		var before, now topLook
		look := func() error {
			now = topLook{}
			return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error { return now.take(ctx, c, most) })
		}
		if g.json() {
			return o.run(cmd, look, func() error {
				fields := topFields(&now, now.rates(&before))
				before = now
				return g.output.Print(cmd.OutOrStdout(), fields)
			})
		}
		return o.runScreens(cmd, look, func(style term.Style) string {
			page := g.output.NewPage(style)
			drawTop(page, &now, now.rates(&before))
			before = now
			return page.String()
		})
	}
	o.flags(cmd, " (default 0 on a terminal, else 1)")
	cmd.Flags().IntVar(&most, "most", 10, "how many locks and changes to list at most")
}

type topLook struct {
	clock    func() time.Duration // since the master's look
	status   client.Status
	overview api.Overview
}

func (l *topLook) take(ctx context.Context, c *client.Cell, most int) (err error) {
	if l.overview, err = c.Overview(ctx, most); err != nil {
		return err
	}
	l.clock = stopwatch()
	l.status, err = c.Status(ctx)
	return err
}

// rates returns counts a second since an earlier look; nil if unknown.
func (l *topLook) rates(before *topLook) map[string]float64 {
	if before.clock == nil || !l.overview.Whole || !before.overview.Whole || l.overview.Epoch != before.overview.Epoch {
		return nil
	}
	passed := (before.clock() - l.clock()).Seconds()
	if passed <= 0 {
		return nil
	}
	rates := map[string]float64{}
	for name, n := range l.overview.Counts {
		rates[name] = float64(n-min(n, before.overview.Counts[name])) / passed
	}
	return rates
}

func (l *topLook) healthy() (n int) {
	for _, r := range l.status.Replicas {
		if r.Healthy {
			n++
		}
	}
	return n
}

func topFields(l *topLook, rates map[string]float64) term.Fields {
	s, o := l.status, l.overview
	var sessions, nodes, locks *uint64 // null while the master is unknown
	if s.Master != "" {
		sessions, nodes, locks = &s.Sessions, &s.Nodes, &s.Locks
	}
	holdup := func(h api.Holdup) term.Fields {
		return term.Fields{"path", h.Path, "waiting_s", term.Seconds(h.Waiting), "slow", term.Each(h.Slow, holderFields)}.With("more_slow", h.MoreSlow)
	}
	var backlog *api.Backlog // null unless the caller is an operator
	if o.Whole {
		backlog = &o.Backlog
	}
	return term.Fields{
		"cell", s.Cell, "master", s.Master, "epoch", o.Epoch, "replicas", len(s.Replicas), "healthy", l.healthy(),
		"sessions", sessions, "nodes", nodes, "locks", locks, "backlog", backlog, "per_s", rates,
		"waits", term.Each(o.Waits, lockFields), "holdups", term.Each(o.Holdups, holdup),
	}.With("more_waits", o.MoreWaits).With("more_holdups", o.MoreHoldups)
}

func drawTop(p *term.Page, l *topLook, rates map[string]float64) {
	s, o := l.status, l.overview
	well := fmt.Sprintf("%d of %d replicas well", l.healthy(), len(s.Replicas))
	if l.healthy() < len(s.Replicas) {
		well = p.Paint(term.Trouble, well)
	}
	p.Line("cell %s: master %s, epoch %d, %s", s.Cell, term.OrDash(s.Master), o.Epoch, well)
	if s.Master != "" {
		p.Line("sessions %d, nodes %d, locks %d", s.Sessions, s.Nodes, s.Locks)
	}
	if b := o.Backlog; o.Whole {
		p.Line("waiting: %s, %s, %s", paintMany(p.Style, "requests for locks", b.Waiters), paintMany(p.Style, "changes", b.Changes), paintMany(p.Style, "locks in a lock-delay", b.Delays))
	}
	if rates != nil {
		var parts []string
		for _, r := range [][2]string{
			{"calls", "calls"}, {"commands", "changes"}, {"entries", "log entries"}, {"grants", "locks granted in turn"}, {"leases", "leases"},
			{"invalidations", "invalidations"},
		} {
			parts = append(parts, fmt.Sprintf("%.0f %s", rates[r[0]], r[1]))
		}
		p.Paragraph(term.Plain, strings.Join(parts, ", "), "a second: ")
	}
	p.Line("")
	if len(o.Waits) == 0 {
		p.Line("nobody waits for a lock")
	} else {
		p.Table(func(t *term.Table) {
			for _, w := range o.Waits {
				addWait(t, w)
			}
		}, "WAITED FOR LONGEST", "WAITING", "FOR", "FIRST IN THE QUEUE", "HELD FOR?", "HELD BY")
	}
	p.Rest(o.MoreWaits, "locks")
	p.Line("")
	if len(o.Holdups) == 0 {
		p.Line("no change waits for clients' caches")
	} else {
		p.Table(func(t *term.Table) {
			for _, h := range o.Holdups {
				slow := "clients that have not answered"
				if len(h.Slow) > 0 {
					slow = fmt.Sprintf("session %v, %s", h.Slow[0].Session, whoseProcess(h.Slow[0]))
				}
				t.Add(h.Path, term.Paint(term.Waiting, term.Roughly(h.Waiting)), max(len(h.Slow)-1, 0)+h.MoreSlow, slow)
			}
		}, "CHANGES THAT WAIT FOR CACHES", "FOR", "AND MORE?", "OF")
	}
	p.Rest(o.MoreHoldups, "changes")
}

func addWait(t *term.Table, l client.LockInfo) {
	var longest time.Duration
	first := ""
	for i, w := range l.Waiters {
		if longest = max(longest, w.Waiting); i == 0 {
			first = whoseProcess(w.Holder)
		}
	}
	holder, held := term.Paint(term.Waiting, "nobody"), ""
	switch {
	case len(l.Holders) > 0:
		holder, held = term.Paint(term.Plain, whoseProcess(l.Holders[0])), term.Roughly(since(l.Holders[0].SinceUnix))
		if more := len(l.Holders) - 1 + l.MoreHolders; more > 0 {
			holder = term.Paint(term.Plain, fmt.Sprintf("%s and %d more", whoseProcess(l.Holders[0]), more))
		}
	case l.Delayed > 0:
		holder = term.Paint(term.Waiting, "delayed, "+term.Roughly(l.Delayed)+" more")
	}
	t.Add(l.Path, len(l.Waiters)+l.MoreWaiters, term.Roughly(longest), first, held, holder)
}

// paintMany shows a number of waiters, in colour if not 0.
func paintMany(style term.Style, what string, n int) string {
	text := fmt.Sprintf("%s %d", what, n)
	if n > 0 {
		return style.Paint(term.Waiting, text)
	}
	return text
}

func sizingVerb(g *globals, cmd *cobra.Command) {
	var bytes term.Size = 256
	c := sizing.Cell{Replicas: 5, Sessions: 1000, Handles: 3, Nodes: 10_000, Locks: 100, Writes: 10, Reads: 100, Turns: 10}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.Bytes = int64(bytes); !cmd.Flags().Changed("programs") {
			c.Programs = c.Sessions
		}
		if fault := c.Validate(); fault != "" {
			return usagef("%s", fault)
		}
		costs, err := sizing.Measured()
		if err != nil {
			return err
		}
		return printSizing(g.output, cmd.OutOrStdout(), c.Need(costs))
	}
	flags := cmd.Flags()
	flags.IntVar(&c.Replicas, "replicas", c.Replicas, "replicas of the cell")
	flags.IntVar(&c.Sessions, "sessions", c.Sessions, "sessions that are open")
	flags.IntVar(&c.Programs, "programs", 0, "programs that have these sessions, each with two connections of its own (default: one program for each session)")
	flags.IntVar(&c.Handles, "handles", c.Handles, "handles that each session has open")
	flags.IntVar(&c.Cached, "cached", c.Cached, "nodes of which each session has something in its cache")
	flags.IntVar(&c.Nodes, "nodes", c.Nodes, "files and directories")
	flags.Var(&bytes, "bytes", "contents of a file, on average")
	flags.IntVar(&c.Locks, "locks", c.Locks, "locks that are held")
	flags.Float64Var(&c.Writes, "writes", c.Writes, "writes a second")
	flags.Float64Var(&c.Reads, "reads", c.Reads, "reads a second that no cache answers")
	flags.Float64Var(&c.Turns, "turns", c.Turns, "locks that are acquired and released a second")
	flags.IntVar(&c.Watchers, "watchers", c.Watchers, "clients that are told of a write, or have what it changes in their caches, on average")
}

func printSizing(as term.Format, out io.Writer, n sizing.Need) error {
	size := func(b sizing.Bytes) string { return term.RoughSize(int64(b)) }
	return as.Show(out, n, func(p *term.Page) {
		p.Table(func(t *term.Table) {
			t.Add("memory", size(n.Memory), size(n.Memory))
			t.Add("disk", size(n.Disk), size(n.Disk))
			t.Add("network", size(n.MasterNetwork)+"/s", size(n.FollowerNetwork)+"/s")
			t.Add("processors", fmt.Sprintf("%.3f", n.MasterCores), fmt.Sprintf("%.3f", n.FollowerCores))
		}, "EACH REPLICA NEEDS", "AS THE MASTER", "OTHERWISE")
		p.Line("")
		p.Table(func(t *term.Table) {
			shown := func(b sizing.Bytes) string { return map[bool]string{true: size(b)}[b >= 1] }
			for _, part := range n.Parts {
				t.Add(part.What, shown(part.Memory), shown(part.Disk), map[bool]string{true: fmt.Sprintf("%.3f", part.Cores)}[part.Cores >= 0.0005])
			}
		}, "OF WHICH", "MEMORY", "DISK", "PROCESSORS, MASTER")
		for _, note := range n.Notes {
			p.Line("note: %s", note)
		}
		shared := map[bool]string{false: ", beside other programs"}[n.Quiet]
		p.Line("")
		p.Sentence("Measured on %s with %s%s; docs/sizing.md has the machine. Your processors and disks are others: chubbyctl bench measures them.", n.Measured, n.Version, shared)
	})
}
