package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type explainFields struct {
	lockFields
	Explanation []string       `json:"explanation"`
	Cachers     []cacherFields `json:"cachers"`
	MoreCachers int            `json:"more_cachers,omitempty"`
}

type cacherFields struct {
	party
	WaitingS float64 `json:"waiting_s"`
	AtMostS  float64 `json:"at_most_s"`
}

func newExplainCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "explain PATH",
		Short: "Say what an operation on a node would wait for, and until when",
		Long: fmt.Sprintf(`explain says who holds the lock of a node and who waits for it, and whose caches a
change of the node would wait for: a change is made when every client that may
have the node in its cache has dropped it, which takes a round trip, or its
cache lease is over.

A path without a node is explained too, since what creates the node may have to wait; the
exit code is %d then.

A client that does not answer is named, with how long a change has waited for it,
and how long it can go on; chubbyctl session end takes its session away sooner.`, exitFailed),
		Example: `  chubbyctl explain /ls/local/service/config
  chubbyctl explain /ls/local/service/config -o json`,
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			return g.withCell(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Cell) error {
				e, err := c.Explain(ctx, p.String())
				if err != nil {
					return err
				}
				if err := g.printExplanation(cmd.OutOrStdout(), e); err != nil {
					return err
				}
				// Explain is about a name, History about a node; both need the same right.
				if _, err := c.History(ctx, p.String()); api.CodeOf(err) == api.NotFound {
					return &api.Error{Code: api.NotFound, Op: "explain", Path: p.String(), Message: "there is no such node; what was said is of one that would be created there"}
				}
				return nil
			})
		}),
	}
}

func (g *globals) printExplanation(out io.Writer, e client.Explanation) error {
	f := explainFields{lockFields: newLockFields(e.Lock), Explanation: e.Sentences, Cachers: []cacherFields{}, MoreCachers: e.MoreCachers}
	for _, c := range e.Cachers {
		f.Cachers = append(f.Cachers, cacherFields{newParty(c.Holder), term.Seconds(c.Waiting), term.Seconds(c.AtMost)})
	}
	return g.output.Show(out, f, func(p *term.Page) {
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
