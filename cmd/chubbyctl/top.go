package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type topFields struct {
	Cell     string             `json:"cell"`
	Master   string             `json:"master"`
	Epoch    uint64             `json:"epoch"`
	Replicas int                `json:"replicas"`
	Healthy  int                `json:"healthy"`
	Sessions *uint64            `json:"sessions"` // null while the master is unknown
	Nodes    *uint64            `json:"nodes"`
	Locks    *uint64            `json:"locks"`
	Backlog  *api.Backlog       `json:"backlog"` // null unless the caller is an operator
	PerS     map[string]float64 `json:"per_s"`   // null at first, after a fail-over, and unless the caller is an operator
	Waits    []lockFields       `json:"waits"`
	Holdups  []holdupFields     `json:"holdups"`

	MoreWaits   int `json:"more_waits,omitempty"`
	MoreHoldups int `json:"more_holdups,omitempty"`
}

type holdupFields struct {
	Path     string         `json:"path"`
	WaitingS float64        `json:"waiting_s"`
	Slow     []holderFields `json:"slow"`
	MoreSlow int            `json:"more_slow,omitempty"`
}

type topOptions struct {
	repetition
	most int
}

func topVerb(g *globals, cmd *cobra.Command) {
	o := topOptions{most: 10}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		if o.most < 1 || o.most > api.MaxListed {
			return usagef("--most %d: want 1 to %d", o.most, api.MaxListed)
		}
		if !cmd.Flags().Changed("times") && !term.StyleOf(cmd.OutOrStdout()).Terminal {
			o.times = 1
		}
		return g.top(cmd, args, o)
	}
	o.flags(cmd, " (default 0 on a terminal, else 1)")
	cmd.Flags().IntVar(&o.most, "most", o.most, "how many locks and changes to list at most")
}

func (g *globals) top(cmd *cobra.Command, args []string, o topOptions) error {
	var before, now topLook
	look := func() error {
		now = topLook{}
		return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error { return now.take(ctx, c, o.most) })
	}
	if g.json() {
		return o.run(cmd, look, func() error {
			fields := newTopFields(&now, now.rates(&before))
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

func newTopFields(l *topLook, rates map[string]float64) topFields {
	s, o := l.status, l.overview
	f := topFields{
		Cell: s.Cell, Master: s.Master, Epoch: uint64(o.Epoch), Replicas: len(s.Replicas), Healthy: l.healthy(), PerS: rates,
		Waits: []lockFields{}, Holdups: []holdupFields{}, MoreWaits: o.MoreWaits, MoreHoldups: o.MoreHoldups,
	}
	if s.Master != "" {
		f.Sessions, f.Nodes, f.Locks = &s.Sessions, &s.Nodes, &s.Locks
	}
	if o.Whole {
		f.Backlog = &o.Backlog
	}
	for _, w := range o.Waits {
		f.Waits = append(f.Waits, newLockFields(w))
	}
	for _, h := range o.Holdups {
		f.Holdups = append(f.Holdups, holdupFields{h.Path, term.Seconds(h.Waiting), newHolderList(h.Slow), h.MoreSlow})
	}
	return f
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
		p.Paragraph(term.Plain, ratesText(rates), "a second: ")
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
	holder, since := term.Paint(term.Waiting, "nobody"), ""
	switch {
	case len(l.Holders) > 0:
		holder, since = term.Paint(term.Plain, whoseProcess(l.Holders[0])), heldFor(l.Holders[0])
		if more := len(l.Holders) - 1 + l.MoreHolders; more > 0 {
			holder = term.Paint(term.Plain, fmt.Sprintf("%s and %d more", whoseProcess(l.Holders[0]), more))
		}
	case l.Delayed > 0:
		holder = term.Paint(term.Waiting, "delayed, "+term.Roughly(l.Delayed)+" more")
	}
	t.Add(l.Path, len(l.Waiters)+l.MoreWaiters, term.Roughly(longest), first, since, holder)
}

func heldFor(h api.Holder) string { return term.Roughly(since(h.SinceUnix)) }

// paintMany shows a number of waiters, in colour if not 0.
func paintMany(style term.Style, what string, n int) string {
	text := fmt.Sprintf("%s %d", what, n)
	if n > 0 {
		return style.Paint(term.Waiting, text)
	}
	return text
}

func ratesText(rates map[string]float64) string {
	var parts []string
	for _, r := range []struct{ name, what string }{
		{"calls", "calls"}, {"commands", "changes"}, {"entries", "log entries"}, {"grants", "locks granted in turn"}, {"leases", "leases"},
		{"invalidations", "invalidations"},
	} {
		parts = append(parts, fmt.Sprintf("%.0f %s", rates[r.name], r.what))
	}
	return strings.Join(parts, ", ")
}
