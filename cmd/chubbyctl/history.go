package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

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

func holderOf(one api.Holding) api.Holder {
	return api.Holder{Session: one.Session, Principal: one.Principal, Host: one.Host, PID: one.PID}
}

func newHistoryCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "history PATH",
		Short: "Show who held a lock, from when to when, and why each holding ended",
		Long: `history shows how the lock of a node was held: the last 16 holdings that have ended,
the latest last, and then those that go on. The cell keeps them with the node, and
its replicas agree on them; they go when the node is deleted, and when the cell
is restored from a backup.

END says why a holding ended: it was released; it expired, because the client was not
heard of for the length of its lease; fail-over, because the client did not return
to a new master in that time; ended, because an operator ended the session; or broken
(chubbyctl lock break), also if the holder then released the lock by itself; of these
two it says by whom, and why. LOCK-DELAY is for how long nobody could have the lock then.

The last line says whether two ever held the lock at once. Fencing tokens decide that,
and no clock: FROM and TO are by the clocks of the masters of that time, and for people.
If two held it, the exit code is 1.`,
		Example: `  chubbyctl history /ls/local/service/primary
  chubbyctl history /ls/local/service/primary -o json`,
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			h, err := askNode(cmd.Context(), g, p, (*client.Cell).History)
			if err != nil {
				return err
			}
			return g.printHistory(cmd.OutOrStdout(), h)
		}),
	}
}

func (g *globals) printHistory(out io.Writer, h client.History) error {
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

func newHoldingFields(h client.History, one api.Holding) holdingFields {
	f := holdingFields{
		Path: h.Path, Token: uint64(one.Generation), Mode: one.Mode.String(),
		Holder: holdingHolder{newParty(holderOf(one)), one.Reason}, From: timestamp(one.FromUnix), To: timestamp(one.ToUnix),
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
	t.Add(one.Generation, one.Mode, whoseProcess(holderOf(one)), one.Session, localTime(one.FromUnix), localTime(one.ToUnix), term.Paint(meaning, how), delay, one.Reason)
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

// timestamp returns a time of the master's clock for -o json: null if unknown.
func timestamp(unix int64) *time.Time {
	if unix == 0 {
		return nil
	}
	at := time.Unix(unix, 0).UTC()
	return &at
}

// localTime returns a time of the master's clock for people.
func localTime(unix int64) string {
	if unix == 0 {
		return ""
	}
	return time.Unix(unix, 0).Format(time.DateTime)
}
