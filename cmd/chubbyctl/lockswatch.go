package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

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
