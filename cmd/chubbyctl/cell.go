package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type statusFields struct {
	Cell     string          `json:"cell"`
	CellID   api.CellID      `json:"cell_id"`
	Master   string          `json:"master"`
	Epoch    *api.Epoch      `json:"epoch"` // null, like all of the master's data, without an answer
	Replicas []replicaFields `json:"replicas"`
	Sessions *uint64         `json:"sessions"`
	Nodes    *uint64         `json:"nodes"`
	Locks    *uint64         `json:"locks"`
	Level    *int            `json:"level"`

	Restored *restorationFields `json:"restored"` // null if it never was, or no master answers
	Acts     []actFields        `json:"acts"`     // in progress

	Divergence string `json:"divergence"` // which replicas differ; "" if none do
}

type replicaFields struct {
	client.ReplicaStatus
	Error string `json:"error,omitempty"`
}

func newStatusFields(s client.Status, fault string) statusFields {
	f := statusFields{Cell: s.Cell, CellID: s.CellID, Master: s.Master, Replicas: []replicaFields{}, Acts: []actFields{}, Divergence: fault}
	if s.Master != "" {
		f.Epoch, f.Sessions, f.Nodes, f.Locks, f.Level = &s.Epoch, &s.Sessions, &s.Nodes, &s.Locks, &s.Level
	}
	if r := s.Restored; r != nil {
		f.Restored = &restorationFields{timestamp(r.AtUnix), r.Counter, r.Index, timestamp(r.TakenUnix), r.Recovered}
	}
	for _, a := range s.Acts {
		f.Acts = append(f.Acts, actFields{a.Kind, a.Replica, a.Principal, a.Session, timestamp(a.SinceUnix), a.Sealed, a.Waits})
	}
	for _, r := range s.Replicas {
		row := replicaFields{ReplicaStatus: r}
		if r.Err != nil {
			row.Error = r.Err.Error()
		}
		f.Replicas = append(f.Replicas, row)
	}
	return f
}

func cellMembersVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = showCell(g, (*client.Cell).Members, g.printMembers)
}

func transferVerb(g *globals, cmd *cobra.Command) {
	var to string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cell, err := g.cellOf(args)
		if err != nil {
			return err
		}
		err = g.withSession(cmd.Context(), cell, func(ctx context.Context, c *client.Client) error {
			master, err := c.Transfer(ctx, to)
			if err != nil {
				return err
			}
			return g.output.Say(cmd.OutOrStdout(), map[string]string{"master": master}, "%s is the master", master)
		})
		if len(args) > 0 && to == "" && (errors.Is(err, client.NothingListens) || errors.Is(err, api.WrongCell)) {
			return fmt.Errorf("%w; if %s is a replica: 'chubbyctl cell transfer --to %s'", err, cell, cell)
		}
		return err
	}
	cmd.Flags().StringVar(&to, "to", "", "the id of the replica that is to be the master")
}

// confirmDivergence asks the replicas again, and returns the fault if it remains. During writes, a replica's
// state and index may be of two moments; but the same two do not differ twice alike by chance.
func confirmDivergence(ctx context.Context, c *client.Cell, fault string) string {
	if fault == "" {
		return ""
	}
	const while = 500 * time.Millisecond
	if !sleep(ctx, while) {
		return ""
	}
	if again, err := c.Status(ctx); err != nil || divergence(again.Replicas) != fault {
		return ""
	}
	return fault
}

func (g *globals) printStatus(out io.Writer, s client.Status, fault string) error {
	err := g.output.Show(out, newStatusFields(s, fault), func(p *term.Page) { drawStatus(p, s, fault) })
	if err == nil && s.Master == "" {
		return &exitError{exitUnavailable, api.Errorf(api.Unavailable, "%s", explainNoMaster(s))}
	}
	return err
}

// explainNoMaster returns why no master answered: the cell lacks one, or it is unreachable from here.
func explainNoMaster(s client.Status) string {
	silent, answer := false, 0
	for _, r := range s.Replicas {
		if silent = silent || r.Err != nil; r.Err == nil {
			answer++
		}
	}
	switch {
	case s.Named == "" && answer > len(s.Replicas)/2 && silent:
		return fmt.Sprintf("there is no master of %s; so enough of them run, and either an election goes on, which takes a second or two, or they do not reach each other: see peers_away in their logs, and the network between their raft ports", replicasOf(s))
	case s.Named == "" && silent:
		return fmt.Sprintf("there is no master of %s; the replicas that do not answer have to be started, or reached", replicasOf(s))
	case s.Named == "":
		return fmt.Sprintf("there is no master of %s; an election takes a second or two: ask again, and if there is still none, they do not reach each other: see peers_away in their logs, and the network between their raft ports", replicasOf(s))
	}
	where := "at an address that nobody knows"
	for _, r := range s.Replicas {
		if r.ID == s.Named {
			where = "at " + r.Client
		}
	}
	return fmt.Sprintf("%s %s is the master of cell %s, as other replicas say, and does not answer from here: look at the network between, or at its machine", s.Named, where, s.Cell)
}

func drawStatus(p *term.Page, s client.Status, fault string) {
	master := "master " + s.Master
	switch {
	case s.Master == "" && s.Named != "":
		master = p.Paint(term.Trouble, "master "+s.Named+" does not answer")
	case s.Master == "":
		master = p.Paint(term.Trouble, "no master")
	}
	about := fmt.Sprintf("epoch %d, feature level %d: %s, %s, %s",
		s.Epoch, s.Level, term.Counted(int(s.Sessions), "session"), term.Counted(int(s.Nodes), "node"), term.Counted(int(s.Locks), "lock"))
	switch {
	case s.Master == "" && s.Level > 0:
		about = fmt.Sprintf("feature level %d at least: its sessions, nodes and locks are not known", s.Level)
	case s.Master == "":
		about = "its feature level, sessions, nodes and locks are not known"
	}
	p.Paragraph(term.Plain, fmt.Sprintf("cell %s, %s, %s", s.Cell, master, about), "")
	p.Line("")
	p.Table(func(t *term.Table) {
		for _, r := range s.Replicas {
			switch {
			case r.Err != nil && r.ID == "": // others answer, and none names it
				t.Add("", term.Paint(term.Waiting, "no member"), "", r.Client, "", "", "", "", "", fmt.Sprintf("the cell has no replica here; see --servers: %v", r.Err))
			case r.Err != nil:
				t.Add(r.ID, term.Paint(term.Trouble, "no answer"), term.Paint(term.Trouble, "NO"), r.Client, "", "", "", "", "", r.Err)
			default:
				t.Add(replicaRow(r, s.Master)...)
			}
		}
	}, "ID", "ROLE", "OK", "CLIENT", "TERM?", "LAST?", "LAG", "DISK", "STATE?", "VERSION")
	say := func(m term.Meaning, text string) {
		if text != "" {
			p.Line("")
			p.Paragraph(m, text, "")
		}
	}
	for _, a := range s.Acts {
		say(term.Waiting, describeAct(a))
	}
	if s.Restored != nil {
		say(term.Plain, describeRestoration(*s.Restored))
	}
	say(term.Trouble, fault)
}

const (
	lagging = 1000    // entries behind; fewer are normal under load
	lowDisk = 1 << 30 // bytes
)

func replicaRow(r client.ReplicaStatus, master string) []any {
	row := []any{
		r.ID, r.Role, "yes", r.Client, r.Term, r.Last, r.Lag,
		freeSpace(r.DiskFree), term.Paint(term.Secondary, fmt.Sprintf("%.6s", r.StateHash)), r.Version,
	}
	if r.Role != "master" && r.Role != "replica" || r.ID == master && r.Role != "master" {
		row[1] = term.Paint(term.Waiting, r.Role)
	}
	if !r.Healthy {
		row[2] = term.Paint(term.Trouble, "NO")
	}
	if r.Lag >= lagging {
		row[6] = term.Paint(term.Waiting, r.Lag)
	}
	if r.DiskFree < lowDisk {
		row[7] = term.Paint(term.Trouble, freeSpace(r.DiskFree))
	}
	return row
}

func freeSpace(bytes int64) string {
	const gib = 1 << 30
	if bytes < 0 {
		return "unknown"
	}
	if bytes >= 10*gib {
		bytes -= bytes % gib
	}
	return term.RoughSize(bytes)
}

// divergence returns which replicas applied the same entries and differ, which must never happen (Chubby §2.1:
// replicas of one state); or "".
func divergence(replicas []client.ReplicaStatus) string {
	for i, a := range replicas {
		for _, b := range replicas[i+1:] {
			if a.Err == nil && b.Err == nil && a.Applied == b.Applied && a.StateHash != "" && b.StateHash != "" && a.StateHash != b.StateHash {
				return fmt.Sprintf("%s and %s have both applied %d entries, and their states (%.6s, %.6s) differ: one of them has lost entries or is damaged. Remove no data directory. %s",
					a.ID, b.ID, a.Applied, a.StateHash, b.StateHash, whichToStop(replicas, a, b))
			}
		}
	}
	return ""
}

// whichToStop returns which of two differing replicas to stop: the one that differs from a majority of the
// cell, if there is one. Mastership does not matter: the other may have the only copy of an acknowledged
// change.
func whichToStop(replicas []client.ReplicaStatus, a, b client.ReplicaStatus) string {
	agree := func(with client.ReplicaStatus) (n int) {
		for _, r := range replicas {
			if r.Err == nil && r.Applied == with.Applied && r.StateHash == with.StateHash {
				n++
			}
		}
		return n
	}
	const report = "if it does not stop by itself within a minute, and keep its data directory for a report"
	switch majority := len(replicas)/2 + 1; {
	case agree(a) >= majority:
		return fmt.Sprintf("Stop %s, which differs from most replicas, %s", b.ID, report)
	case agree(b) >= majority:
		return fmt.Sprintf("Stop %s, which differs from most replicas, %s", a.ID, report)
	}
	return "No majority agrees: stop all replicas, and keep every data directory for a report"
}

// adviseOnCell adds advice to an error if nothing listens where the cell should be: start one, or name its
// address.
func (g *globals) adviseOnCell(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	path, _ := api.ParsePath(e.Path) // the zero path if invalid
	advice := ""
	switch configured := client.ConfiguredCells(); {
	case errors.Is(err, client.NothingListens):
		advice = g.cellAdvice(path.Cell(), configured)
	case e.Code == api.WrongCell && len(g.servers) == 0 && len(configured) > 0 && !slices.Contains(configured, path.Cell()):
		advice = notConfigured(path.Cell(), configured)
	}
	if advice == "" {
		return err
	}
	if _, bare := err.(*api.Error); !bare && len(splitJoined(err)) == 1 { //nolint:errorlint // what the command says of it, and its exit code, stay
		return fmt.Errorf("%w; %s", err, advice)
	}
	told := *e
	told.Message, told.Err = e.Message+"; "+advice, nil
	return &told
}

// notConfigured names the configured cells in place of one that may be mistyped.
func notConfigured(cell string, configured []string) string {
	return fmt.Sprintf("%s is not configured; CHUBBY_CELLS and the file of cells name %s. A cell that is named nowhere is looked for on this machine, where 'chubbyd dev' starts one",
		cell, strings.Join(configured, ", "))
}

// cellAdvice advises about a cell whose servers refuse connections. configured are the cells in the user's
// configuration.
func (g *globals) cellAdvice(cell string, configured []string) string {
	switch {
	case len(g.servers) > 0:
		return "check --servers, or start the cell"
	case len(configured) == 0:
		return "start a cell on this machine with 'chubbyd dev', or say where it is with CHUBBY_CELLS or --servers"
	case slices.Contains(configured, cell):
		return "check CHUBBY_CELLS and the file of cells, or start the cell"
	}
	return notConfigured(cell, configured)
}
