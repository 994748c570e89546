package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type lockFields struct {
	Path     string         `json:"path"`
	Mode     string         `json:"mode"`
	Token    uint64         `json:"token"`
	Holders  []holderFields `json:"holders"`
	Waiters  []waiterFields `json:"waiters"`
	DelayedS float64        `json:"delayed_s"`
	Revoked  string         `json:"revoked"`

	MoreHolders int `json:"more_holders,omitempty"`
	MoreWaiters int `json:"more_waiters,omitempty"`
}

type waiterFields struct {
	party
	WaitingS  float64  `json:"waiting_s"`
	EstimateS *float64 `json:"estimate_s"`
	Place     int      `json:"place"`
	Mode      string   `json:"mode"`
	Reason    string   `json:"reason"`
	Absent    bool     `json:"absent"`
	Owner     string   `json:"owner,omitempty"`
}

func newLockFields(l client.LockInfo) lockFields {
	f := lockFields{
		Path: l.Path, Mode: "free", Token: uint64(l.Generation), Holders: newHolderList(l.Holders), Waiters: []waiterFields{},
		DelayedS: term.Seconds(l.Delayed), Revoked: l.Revoked, MoreHolders: l.MoreHolders, MoreWaiters: l.MoreWaiters,
	}
	if l.Mode.Valid() {
		f.Mode = l.Mode.String()
	}
	for _, w := range l.Waiters {
		f.Waiters = append(f.Waiters, waiterFields{
			newParty(w.Holder), term.Seconds(w.Waiting), term.SecondsOrNull(w.Estimate), w.Place, w.Mode.String(),
			w.Reason, w.Absent, w.Owner,
		})
	}
	return f
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
			return g.watchLocks(cmd, p, o)
		}
		return g.withCell(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Cell) error {
			if graph != "" {
				return g.printLockGraph(cmd.OutOrStdout(), graph, c.EachLock(ctx, p.String()))
			}
			return g.printLocks(cmd.OutOrStdout(), c.EachLock(ctx, p.String()))
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

func (g *globals) printLocks(out io.Writer, locks iter.Seq2[client.LockInfo, error]) error {
	list := term.List[client.LockInfo, lockFields]{
		Fields:  newLockFields,
		Add:     addLock,
		Columns: lockColumns(),
		None:    "no lock is held or waited for",
	}
	return list.Print(out, g.output, locks)
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

func (g *globals) watchLocks(cmd *cobra.Command, p api.Path, o repetition) error {
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
		changes := newLockChanges(func(f lockFields) error { return g.output.Print(out, f) })
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
	return o.runScreens(cmd, look, func(style term.Style) string { return g.drawLocks(style, locks, more) })
}

// drawLocks returns a screen with as many locks as fit.
func (g *globals) drawLocks(style term.Style, locks []client.LockInfo, more bool) string {
	p := g.output.NewPage(style)
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
	show  func(lockFields) error
	seed  maphash.Seed
	known map[string]lockMark // as last printed, by path
	look  int
	err   error // of printing
}

// lockMark is the memory of a lock.
type lockMark struct {
	sum, token uint64
	look       int // that saw it last
}

func newLockChanges(show func(lockFields) error) *lockChanges {
	return &lockChanges{show: show, seed: maphash.MakeSeed(), known: map[string]lockMark{}}
}

func (c *lockChanges) see(l client.LockInfo) {
	was, known := c.known[l.Path]
	mark := lockMark{maphash.String(c.seed, stateForWatch(l)), uint64(l.Generation), c.look}
	c.known[l.Path] = mark
	if !known || was.sum != mark.sum {
		c.print(newLockFields(l))
	}
}

func (c *lockChanges) print(f lockFields) {
	if c.err == nil {
		c.err = c.show(f)
	}
}

// finish ends a complete look: locks that it has not seen are free.
func (c *lockChanges) finish() error {
	for path, mark := range c.known {
		if mark.look != c.look {
			delete(c.known, path)
			c.print(lockFields{Path: path, Mode: "free", Token: mark.token, Holders: newHolderList(nil), Waiters: []waiterFields{}})
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
