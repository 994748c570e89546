package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// statusFields returns a status for -o json. Without an answer of the master, all that only the master knows is null.
func statusFields(s client.Status, fault string) term.Fields {
	var epoch *api.Epoch
	var sessions, nodes, locks *uint64
	var level *int
	if s.Master != "" {
		epoch, sessions, nodes, locks, level = &s.Epoch, &s.Sessions, &s.Nodes, &s.Locks, &s.Level
	}
	var restored any
	if r := s.Restored; r != nil {
		restored = term.Fields{"at", timestamp(r.AtUnix), "counter", r.Counter, "index", r.Index, "taken", timestamp(r.TakenUnix), "recovered_from", r.Recovered}
	}
	type replica struct {
		client.ReplicaStatus
		Error string `json:"error,omitempty"`
	}
	replicas := []replica{}
	for _, r := range s.Replicas {
		row := replica{ReplicaStatus: r}
		if r.Err != nil {
			row.Error = r.Err.Error()
		}
		replicas = append(replicas, row)
	}
	return term.Fields{
		"cell", s.Cell, "cell_id", s.CellID, "master", s.Master, "epoch", epoch, "replicas", replicas,
		"sessions", sessions, "nodes", nodes, "locks", locks, "level", level, "restored", restored,
		"acts", term.Each(s.Acts, actFields), "divergence", fault,
	}
}

func actFields(a api.Act) term.Fields {
	return append(term.Fields{"kind", a.Kind, "replica", a.Replica, "principal", a.Principal}.With("session", a.Session),
		"since", timestamp(a.SinceUnix), "sealed", a.Sealed, "waits", a.Waits)
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

func printStatus(as term.Format, out io.Writer, s client.Status, fault string) error {
	err := as.Show(out, statusFields(s, fault), func(p *term.Page) { drawStatus(p, s, fault) })
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

func describeAct(a api.Act) string {
	what, ends := "A restore from a backup", "It ends by itself a minute after its author's last step; 'chubbyctl cell restore --give-up' ends it at once."
	switch a.Kind {
	case "joining":
		what, ends = "Replica "+a.Replica+" is joining", "'chubbyctl cell remove "+a.Replica+"' gives it up."
	case "outage":
		what, ends = "A drill goes on: outage, begun at "+a.Replica, fmt.Sprintf("It ends with its author's chubbyctl, or by itself within %v of that.", api.MaxOutage)
	case "leaving":
		what, ends = "Replica "+a.Replica+" is leaving", "'chubbyctl cell remove "+a.Replica+" --cancel' has it stay."
	default:
		if a.Sealed {
			ends = "No session can begin meanwhile. " + ends
		}
	}
	by := "by the cell itself"
	if a.Principal != "" {
		by = "by " + term.Printable(a.Principal)
	}
	if a.Session != 0 {
		by += " in session " + a.Session.String()
	}
	waits := ""
	if a.Waits != "" {
		waits = " It waits: " + term.Printable(a.Waits) + "."
	}
	return fmt.Sprintf("%s, %s, since %s.%s %s", what, by, localTime(a.SinceUnix), waits, ends)
}

func describeRestoration(r api.Restoration) string {
	from := "a backup of " + localTime(r.TakenUnix)
	if r.Recovered != "" {
		from = fmt.Sprintf("what replica %s had when the cell had lost its majority (chubbyctl cell recover); changes that only the lost replicas had are missing", r.Recovered)
	}
	return fmt.Sprintf("Restored on %s, up to entry %d, from %s. No token up to %d is valid.", localTime(r.AtUnix), r.Index, from, r.Counter)
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
func adviseOnCell(g *globals, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	path, _ := api.ParsePath(e.Path) // the zero path if invalid
	advice := ""
	switch configured := client.ConfiguredCells(); {
	case errors.Is(err, client.NothingListens):
		advice = cellAdvice(g, path.Cell(), configured)
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
func cellAdvice(g *globals, cell string, configured []string) string {
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

func debugVerb(g *globals, cmd *cobra.Command, args []string) error {
	return g.withCellOf(cmd, args[1:], func(ctx context.Context, c *client.Cell) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		parts, err := client.Debug(ctx, c)
		if err != nil {
			return err
		}
		if err := writeDebug(args[0], statusFields(status, divergence(status.Replicas)), parts); err != nil {
			return fmt.Errorf("write %s: %w", args[0], err)
		}
		return tellDebug(g.output, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], parts)
	})
}

func missingOf(p client.DebugPart) string {
	switch {
	case p.Err != nil:
		return p.Err.Error()
	case p.Cut:
		return "the beginning, which did not fit"
	}
	return ""
}

func tellDebug(as term.Format, out, complaints io.Writer, file string, parts []client.DebugPart) error {
	missing := []string{}
	for _, p := range parts {
		why := missingOf(p)
		if why == "" {
			continue
		}
		missing = append(missing, p.Replica+"/"+p.Name)
		if _, err := fmt.Fprintf(complaints, "chubbyctl: %s of %s is missing: %s\n", p.Name, p.Replica, term.Printable(why)); err != nil {
			return err
		}
	}
	complete := len(parts) - len(missing)
	f := term.Fields{"file", file, "parts", complete, "missing", missing}
	err := as.Say(out, f, "%s: the cell's status, and %d of %d parts of what its replicas know", file, complete, len(parts))
	if err != nil || len(missing) == 0 {
		return err
	}
	return api.Errorf(api.Unavailable, "%d of %d parts are missing in %s", len(missing), len(parts), file)
}

func writeDebug(name string, status any, parts []client.DebugPart) (err error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	packed := gzip.NewWriter(file)
	archive, at := tar.NewWriter(packed), now()
	add := func(name string, text []byte) {
		err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: "chubby-debug/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: at}))
		_, failed := archive.Write(text)
		err = errors.Join(err, failed)
	}
	text, err := json.MarshalIndent(status, "", "  ")
	add("status.json", text)
	var missing strings.Builder
	for _, p := range parts {
		if why := missingOf(p); why != "" {
			fmt.Fprintf(&missing, "%s of %s: %s\n", p.Name, p.Replica, why)
		}
		if p.Err == nil {
			add(strings.NewReplacer("/", "_", ":", "_").Replace(p.Replica)+"/"+p.Name+".txt", p.Text)
		}
	}
	add("missing.txt", []byte(missing.String()))
	return errors.Join(err, archive.Close(), packed.Close())
}
