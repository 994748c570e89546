package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func lockFields(l client.LockInfo) term.Fields {
	mode := "free"
	if l.Mode.Valid() {
		mode = l.Mode.String()
	}
	return term.Fields{
		"path", l.Path, "mode", mode, "token", uint64(l.Generation), "holders", term.Each(l.Holders, holderFields),
		"waiters", term.Each(l.Waiters, waiterFields), "delayed_s", term.Seconds(l.Delayed), "revoked", l.Revoked,
	}.With("more_holders", l.MoreHolders).With("more_waiters", l.MoreWaiters)
}

func waiterFields(w api.Waiter) term.Fields {
	return append(party(w.Holder), "waiting_s", term.Seconds(w.Waiting), "estimate_s", term.SecondsOrNull(w.Estimate), "place", w.Place,
		"mode", w.Mode.String(), "reason", w.Reason, "absent", w.Absent).With("owner", w.Owner)
}

func locksVerb(g *globals, cmd *cobra.Command) {
	var graph string
	var live bool
	var o repetition
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if cmd.Flags().Changed("graph") && graph != graphText && graph != graphDOT {
			return usagef("locks: --graph %q; want %s or %s", graph, graphText, graphDOT)
		}
		if err := o.validate(); err != nil {
			return err
		}
		if live {
			return watchLocks(g, cmd, p, o)
		}
		return g.withCell(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Cell) error {
			if graph != "" {
				waits, err := graphOf(c.EachLock(ctx, p.String()))
				if err != nil {
					return err
				}
				return g.output.Show(cmd.OutOrStdout(), waits.fields(), map[string]func(*term.Page){graphText: waits.drawText, graphDOT: waits.drawDOT}[graph])
			}
			return printLocks(g.output, cmd.OutOrStdout(), c.EachLock(ctx, p.String()))
		})
	})
	flags := cmd.Flags()
	flags.BoolVar(&live, "watch", false, "look again and again, until Ctrl-C")
	o.flags(cmd, "")
	flags.StringVar(&graph, "graph", "", "show who waits for whom, as `FORM`: text, or dot for Graphviz")
	chooseOne(flags, "the one is looked at once, and the other again and again", "graph", "watch")
	needsFlag(flags, "watch", "which looks again and again", "every", "times")
	flags.Lookup("graph").NoOptDefVal = graphText
}

func printLocks(as term.Format, out io.Writer, locks iter.Seq2[client.LockInfo, error]) error {
	list := term.List[client.LockInfo]{
		Fields:  lockFields,
		Add:     addLock,
		Columns: lockColumns(),
		None:    "no lock is held or waited for",
	}
	return list.Print(out, as, locks)
}

func lockColumns() []string {
	return []string{"PATH", "STATE", "TOKEN?", "SESSION?", "WHO", "FOR", "REASON"}
}

// addLock adds a row for each holder and waiter of a lock.
func addLock(t *term.Table, l client.LockInfo) {
	path := l.Path
	if l.Delayed > 0 {
		t.Add(path, term.Paint(term.Waiting, "delayed"), l.Generation, "", "a holder failed", term.Roughly(l.Delayed)+" more", "")
		path = ""
	}
	var mode any = l.Mode
	if l.Revoked != "" {
		mode = term.Paint(term.Waiting, l.Mode.String()+", being taken")
	}
	for _, h := range l.Holders {
		mode := mode
		if h.Cached && l.Revoked == "" {
			mode = l.Mode.String() + ", cached"
		}
		t.Add(path, mode, l.Generation, h.Session, whoseProcess(h), term.Roughly(since(h.SinceUnix)), h.Reason)
		path = ""
	}
	if l.MoreHolders > 0 {
		t.Add("", "", "", "", fmt.Sprintf("and %d more", l.MoreHolders), "", "")
	}
	if len(l.Holders) == 0 && l.Delayed == 0 {
		t.Add(path, term.Paint(term.Secondary, "free"), l.Generation, "", "", "", "")
	}
	for _, w := range l.Waiters {
		state := fmt.Sprintf("place %d", w.Place)
		if w.Absent {
			state += ", away"
		}
		waits := term.Roughly(w.Waiting)
		if w.Estimate > 0 {
			waits += ", perhaps " + term.Guess(w.Estimate) + " more"
		}
		t.Add("", term.Paint(term.Waiting, state), "", w.Session, whoseProcess(w.Holder), waits, w.Reason)
	}
	if l.MoreWaiters > 0 {
		t.Add("", term.Paint(term.Waiting, "behind them"), "", "", fmt.Sprintf("%d more wait", l.MoreWaiters), "", "")
	}
}

// maxWatched is the maximum of locks that --watch shows people.
const maxWatched = 200

func watchLocks(g *globals, cmd *cobra.Command, p api.Path, o repetition) error {
	out := cmd.OutOrStdout()
	eachLock := func(see func(client.LockInfo) (more bool)) error {
		return g.withCell(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Cell) error {
			for l, err := range c.EachLock(ctx, p.String()) {
				if err != nil || !see(l) {
					return err
				}
			}
			return nil
		})
	}
	if g.json() {
		changes := newLockChanges(func(f term.Fields) error { return g.output.Print(out, f) })
		look := func() error {
			changes.look++
			return eachLock(func(l client.LockInfo) bool { changes.see(l); return true })
		}
		return o.run(cmd, look, changes.finish)
	}
	var locks []client.LockInfo
	var more bool
	look := func() error {
		locks, more = nil, false
		return eachLock(func(l client.LockInfo) bool {
			if more = len(locks) == maxWatched; !more {
				locks = append(locks, l)
			}
			return !more
		})
	}
	return o.runScreens(cmd, look, func(style term.Style) string { return drawLocks(g.output, style, locks, more) })
}

// drawLocks returns a screen with as many locks as fit.
func drawLocks(as term.Format, style term.Style, locks []client.LockInfo, more bool) string {
	p := as.NewPage(style)
	if len(locks) == 0 {
		p.Line("no lock is held or waited for")
	} else {
		p.Table(func(t *term.Table) {
			for _, l := range locks {
				addLock(t, l)
			}
		}, lockColumns()...)
	}
	if more {
		p.Line("and more than these %d; a PATH shows those below it", maxWatched)
	}
	text := p.String()
	if !style.Terminal {
		return text
	}
	if lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"); style.Height > 2 && len(lines) >= style.Height {
		shown := style.Height - 2 // the cursor's line stays empty
		text = strings.Join(lines[:shown], "") + fmt.Sprintf("and %d more lines; a PATH shows the locks below it\n", len(lines)-shown)
	}
	return text
}

// lockChanges prints the locks that have changed since the last look. It keeps a few bytes for each held or
// awaited lock.
type lockChanges struct {
	show  func(term.Fields) error
	seed  maphash.Seed
	known map[string]lockMark // as last printed, by path
	look  int
	err   error // of printing
}

// lockMark is the memory of a lock.
type lockMark struct {
	sum   uint64
	token api.Generation
	look  int // that saw it last
}

func newLockChanges(show func(term.Fields) error) *lockChanges {
	return &lockChanges{show: show, seed: maphash.MakeSeed(), known: map[string]lockMark{}}
}

func (c *lockChanges) see(l client.LockInfo) {
	was, known := c.known[l.Path]
	mark := lockMark{maphash.String(c.seed, stateForWatch(l)), l.Generation, c.look}
	c.known[l.Path] = mark
	if !known || was.sum != mark.sum {
		c.print(lockFields(l))
	}
}

func (c *lockChanges) print(f term.Fields) {
	if c.err == nil {
		c.err = c.show(f)
	}
}

// finish ends a complete look: locks that it has not seen are free.
func (c *lockChanges) finish() error {
	for path, mark := range c.known {
		if mark.look != c.look {
			delete(c.known, path)
			c.print(lockFields(client.LockInfo{Path: path, Generation: mark.token}))
		}
	}
	return c.err
}

// stateForWatch returns what makes a lock a changed one: its holders and waiters, without durations.
func stateForWatch(l client.LockInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d %q %t %d %d", l.Mode, l.Generation, l.Revoked, l.Delayed > 0, l.MoreHolders, l.MoreWaiters)
	for _, h := range l.Holders {
		fmt.Fprintf(&b, " %v %t %q", h.Session, h.Cached, h.Reason)
	}
	for _, w := range l.Waiters {
		fmt.Fprintf(&b, " %v %d %v %t %q", w.Session, w.Place, w.Mode, w.Absent, w.Reason)
	}
	return b.String()
}

func explainVerb(g *globals, cmd *cobra.Command, p api.Path) error {
	return g.withCell(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Cell) error {
		e, err := c.Explain(ctx, p.String())
		if err != nil {
			return err
		}
		if err := printExplanation(g.output, cmd.OutOrStdout(), e); err != nil {
			return err
		}
		// Explain is about a name, History about a node; both need the same right.
		if _, err := c.History(ctx, p.String()); api.CodeOf(err) == api.NotFound {
			return &api.Error{Code: api.NotFound, Op: "explain", Path: p.String(), Message: "there is no such node; what was said is of one that would be created there"}
		}
		return nil
	})
}

func printExplanation(as term.Format, out io.Writer, e client.Explanation) error {
	cachers := term.Each(e.Cachers, func(c client.Cacher) term.Fields {
		return append(party(c.Holder), "waiting_s", term.Seconds(c.Waiting), "at_most_s", term.Seconds(c.AtMost))
	})
	f := append(lockFields(e.Lock), "explanation", e.Sentences, "cachers", cachers).With("more_cachers", e.MoreCachers)
	return as.Show(out, f, func(p *term.Page) {
		for _, sentence := range e.Sentences {
			p.Paragraph(term.Plain, term.Printable(sentence), "- ")
		}
		if len(e.Lock.Holders)+len(e.Lock.Waiters) > 0 {
			p.Line("")
			p.Table(func(t *term.Table) { addLock(t, e.Lock) }, lockColumns()...)
		}
		if len(e.Cachers) > 0 {
			p.Line("")
			p.Table(func(t *term.Table) { addCachers(t, e) }, "MAY CACHE IT", "WHO", "A CHANGE WAITS FOR IT", "AT MOST")
		}
	})
}

func addCachers(t *term.Table, e client.Explanation) {
	for _, c := range e.Cachers {
		waits := term.Paint(term.Plain, "-")
		if c.Waiting > 0 {
			waits = term.Paint(term.Waiting, term.Roughly(c.Waiting))
		}
		t.Add(c.Session, whoseProcess(c.Holder), waits, term.Roughly(c.AtMost))
	}
	if e.MoreCachers > 0 {
		t.Add("", fmt.Sprintf("and %d more", e.MoreCachers), "", "")
	}
}

func historyVerb(g *globals, cmd *cobra.Command, p api.Path) error {
	h, err := askNode(cmd.Context(), g, p, (*client.Cell).History)
	if err != nil {
		return err
	}
	return printHistory(g.output, cmd.OutOrStdout(), h)
}

func printHistory(as term.Format, out io.Writer, h api.History) error {
	list := term.List[api.Holding]{
		Fields:  func(one api.Holding) term.Fields { return holdingFields(h, one) },
		Add:     addHolding,
		Columns: []string{"TOKEN", "MODE", "WHO", "SESSION?", "FROM", "TO", "END", "LOCK-DELAY?", "REASON"},
		None:    "the cell remembers no holding of this lock",
	}
	if err := list.PrintAll(out, as, h.Holdings); err != nil {
		return err
	}
	if a, b, found := h.Overlap(); found {
		return fmt.Errorf("%s was held by two at once, with tokens %d and %d: the cell is at fault; keep the data directories of its replicas",
			h.Path, a.Generation, b.Generation)
	}
	if as.ForPrograms() || len(h.Holdings) == 0 {
		return nil
	}
	return as.Draw(out, func(p *term.Page) {
		p.Rest(h.MoreHolders, "hold it")
		sentence := "No two of these held it at once: each token is larger than the cell's counter was at the end of the holding before."
		if slices.ContainsFunc(h.Holdings, func(one api.Holding) bool { return one.Mode == api.Shared }) {
			sentence = "None of these held it while another held it exclusively: where one was exclusive, the later token is larger than the cell's counter was at the end of the earlier."
		}
		p.Line("")
		p.Paragraph(term.Plain, sentence, "")
	})
}

func holdingFields(h api.History, one api.Holding) term.Fields {
	var until *api.Generation // nil while it lasts
	if one.Until != 0 {
		until = &one.Until
	}
	return append(term.Fields{
		"path", h.Path, "token", one.Generation, "until_token", until, "mode", one.Mode.String(),
		"holder", append(party(one.Holder()), "reason", one.Reason), "from", timestamp(one.FromUnix), "to", timestamp(one.ToUnix),
		"end", howEnded(one.End),
	}.With("ended_by", one.EndedBy).With("ended_why", one.EndedWhy), "lock_delay_s", term.Seconds(one.Delay)).With("more_holders", h.MoreHolders)
}

func addHolding(t *term.Table, one api.Holding) {
	how, meaning := howEnded(one.End), term.Plain
	if one.EndedBy != "" {
		how += " by " + one.EndedBy + ": " + one.EndedWhy
	}
	if one.End != 0 && one.End != api.ByClose {
		meaning = term.Waiting
	}
	delay := ""
	if one.Delay > 0 {
		delay = one.Delay.String()
	}
	t.Add(one.Generation, one.Mode, whoseProcess(one.Holder()), one.Session, localTime(one.FromUnix), localTime(one.ToUnix), term.Paint(meaning, how), delay, one.Reason)
}

func howEnded(r api.EndReason) string {
	switch r {
	case 0:
		return "held"
	case api.ByClose:
		return "released"
	case api.ByFailOver:
		return "fail-over"
	}
	return r.String()
}
