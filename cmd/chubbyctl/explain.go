package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

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

func explainVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
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
	})
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

type holdingFields struct {
	Path       string        `json:"path"`
	Token      uint64        `json:"token"`
	UntilToken *uint64       `json:"until_token"` // null while it lasts
	Mode       string        `json:"mode"`
	Holder     holdingHolder `json:"holder"`
	From       *time.Time    `json:"from"`
	To         *time.Time    `json:"to"` // null while it lasts
	End        string        `json:"end"`
	EndedBy    string        `json:"ended_by,omitempty"`  // who broke the lock or ended the session
	EndedWhy   string        `json:"ended_why,omitempty"` // and why
	LockDelayS float64       `json:"lock_delay_s"`

	MoreHolders int `json:"more_holders,omitempty"` // current holders that are not listed
}

type holdingHolder struct {
	party
	Reason string `json:"reason"`
}

func historyVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		h, err := askNode(cmd.Context(), g, p, (*client.Cell).History)
		if err != nil {
			return err
		}
		return g.printHistory(cmd.OutOrStdout(), h)
	})
}

func (g *globals) printHistory(out io.Writer, h api.History) error {
	list := term.List[api.Holding, holdingFields]{
		Fields:  func(one api.Holding) holdingFields { return newHoldingFields(h, one) },
		Add:     addHolding,
		Columns: []string{"TOKEN", "MODE", "WHO", "SESSION?", "FROM", "TO", "END", "LOCK-DELAY?", "REASON"},
		None:    "the cell remembers no holding of this lock",
	}
	if err := list.PrintAll(out, g.output, h.Holdings); err != nil {
		return err
	}
	if a, b, found := h.Overlap(); found {
		return fmt.Errorf("%s was held by two at once, with tokens %d and %d: the cell is at fault; keep the data directories of its replicas",
			h.Path, a.Generation, b.Generation)
	}
	if g.json() || len(h.Holdings) == 0 {
		return nil
	}
	return g.output.Draw(out, func(p *term.Page) {
		p.Rest(h.MoreHolders, "hold it")
		sentence := "No two of these held it at once: each token is larger than the cell's counter was at the end of the holding before."
		if slices.ContainsFunc(h.Holdings, func(one api.Holding) bool { return one.Mode == api.Shared }) {
			sentence = "None of these held it while another held it exclusively: where one was exclusive, the later token is larger than the cell's counter was at the end of the earlier."
		}
		p.Line("")
		p.Paragraph(term.Plain, sentence, "")
	})
}

func newHoldingFields(h api.History, one api.Holding) holdingFields {
	f := holdingFields{
		Path: h.Path, Token: uint64(one.Generation), Mode: one.Mode.String(),
		Holder: holdingHolder{newParty(one.Holder()), one.Reason}, From: timestamp(one.FromUnix), To: timestamp(one.ToUnix),
		End: howEnded(one.End), EndedBy: one.EndedBy, EndedWhy: one.EndedWhy, LockDelayS: term.Seconds(one.Delay),
		MoreHolders: h.MoreHolders,
	}
	if until := uint64(one.Until); until != 0 {
		f.UntilToken = &until
	}
	return f
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
