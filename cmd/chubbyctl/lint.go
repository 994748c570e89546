package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/misuse"
)

type findingFields struct {
	Rule      string   `json:"rule"`
	Session   string   `json:"session,omitempty"` // empty if it is about all sessions of the principal
	Principal string   `json:"principal,omitempty"`
	Host      string   `json:"host,omitempty"`
	PID       int      `json:"pid,omitempty"`
	Path      string   `json:"path,omitempty"`
	Count     int      `json:"count"`
	PerS      float64  `json:"per_s"`
	Share     *float64 `json:"share"` // null if the count has no whole
	MeasuredS float64  `json:"measured_s"`
	LeaseS    *float64 `json:"lease_s"` // null if the lease is not the fault
	What      string   `json:"what"`
	Why       string   `json:"why"`
	Instead   string   `json:"instead"`
	Unseen    string   `json:"unseen,omitempty"`
}

type lintFields struct {
	Epoch    uint64          `json:"epoch"`
	SinceS   float64         `json:"since_s"` // how long the master has counted
	Findings []findingFields `json:"findings"`
	More     int             `json:"more,omitempty"`
}

func lintVerb(g *globals, cmd *cobra.Command) {
	var (
		o       misuse.Options
		session string
		rules   []string
	)
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) (err error) {
		if p.Name() != "" {
			o.Path = p.String()
		}
		if cmd.Flags().Changed("session") {
			if o.Session, _, err = g.sessionOf([]string{session}); err != nil {
				return err
			}
		}
		if o.Kinds, err = misusesOf(rules); err != nil {
			return err
		}
		if o.Most < 1 || o.Most > api.MaxListed {
			return usagef("--most %d: want 1 to %d", o.Most, api.MaxListed)
		}
		r, err := askCell(cmd.Context(), g, p.Cell(), func(c *client.Cell, ctx context.Context) (misuse.Report, error) { return c.Lint(ctx, o) })
		if err != nil {
			return err
		}
		return g.printLint(cmd.OutOrStdout(), r)
	})
	flags := cmd.Flags()
	flags.StringVar(&session, "session", "", "only of the session `ID`")
	flags.StringVar(&o.Principal, "principal", "", "only of sessions of this principal")
	flags.StringSliceVar(&rules, "rule", nil, "only by these rules, `RULE,...`")
	flags.IntVar(&o.Most, "most", 20, "how many findings to list at most")
	_ = cmd.RegisterFlagCompletionFunc("rule", g.complete(words(misuseNames()...))) // the flag exists
}

func misuseNames() (names []string) {
	for _, m := range misuse.Kinds() {
		names = append(names, m.String())
	}
	return names
}

func misusesOf(names []string) (list []misuse.Kind, err error) {
	for _, name := range names {
		var m misuse.Kind
		if err := m.UnmarshalText([]byte(name)); err != nil {
			return nil, usagef("--rule %s: there is no such rule; want some of %s", name, strings.Join(misuseNames(), ", "))
		}
		list = append(list, m)
	}
	return list, nil
}

// printLint prints a report. Its error has the exit code of findings.
func (g *globals) printLint(out io.Writer, r misuse.Report) (err error) {
	err = g.output.Show(out, newLintFields(r), func(p *term.Page) { drawLint(p, r) })
	if err == nil && len(r.Findings) > 0 {
		err = &exitError{code: exitMismatch}
	}
	return err
}

func newLintFields(r misuse.Report) lintFields {
	f := lintFields{Epoch: uint64(r.Epoch), SinceS: term.Seconds(r.Since), Findings: []findingFields{}, More: r.More}
	for _, one := range r.Findings {
		row := findingFields{
			Rule: one.Kind.String(), Principal: one.Who.Principal, Host: one.Who.Host, PID: one.Who.PID, Path: one.Path, Count: one.Count, PerS: one.PerSecond(),
			MeasuredS: term.Seconds(one.Measured), LeaseS: term.SecondsOrNull(one.Lease),
			What: one.Kind.What(), Why: one.Kind.Why(), Instead: one.Kind.Instead(), Unseen: one.Kind.Unseen(),
		}
		if one.Who.Session != 0 {
			row.Session = one.Who.Session.String()
		}
		if one.Share > 0 {
			row.Share = &one.Share
		}
		f.Findings = append(f.Findings, row)
	}
	return f
}

// drawLint draws a table of the findings, and the explanation of each broken rule.
func drawLint(p *term.Page, r misuse.Report) {
	if len(r.Findings) == 0 {
		p.Paragraph(term.Plain, fmt.Sprintf("no client misuses the cell, as far as its master (of epoch %d) has counted, for %s", r.Epoch, term.Roughly(r.Since)), "")
		return
	}
	var broken []misuse.Kind
	p.Table(func(t *term.Table) {
		for _, f := range r.Findings {
			session, rate, count := "all", fmt.Sprintf("%.1f", f.PerSecond()), fmt.Sprint(f.Count)
			if f.Who.Session != 0 {
				session = f.Who.Session.String()
			}
			if f.Share > 0 {
				count += fmt.Sprintf(" (%.0f %%)", 100*f.Share)
			}
			if f.Lease > 0 {
				count, rate = "lease "+f.Lease.String(), ""
			}
			t.Add(term.Paint(term.Waiting, f.Kind.String()), session, whoseProcess(f.Who), f.Path, count, rate, term.Roughly(f.Measured))
			if !slices.Contains(broken, f.Kind) {
				broken = append(broken, f.Kind)
			}
		}
	}, "RULE", "SESSION", "WHO", "PATH", "COUNT", "A SECOND", "IN?")
	p.Rest(r.More, "findings")
	for _, m := range broken {
		if !m.Known() {
			p.Line("\n%s: this chubbyctl is too old to know it", m)
			continue
		}
		p.Line("\n%s (docs/misuse.md#%s)", p.Paint(term.Heading, m.String()), m)
		for _, part := range []struct{ first, text string }{
			{"  what:    ", m.What()}, {"  why:     ", m.Why()}, {"  instead: ", m.Instead()}, {"  not seen: ", m.Unseen()},
		} {
			if part.text != "" {
				p.Paragraph(term.Plain, part.text, part.first)
			}
		}
	}
	p.Line("\ncounted by the master of epoch %d, which has counted for %s", r.Epoch, term.Roughly(r.Since))
}
