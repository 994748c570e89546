package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// statFields is a node's metadata, for -o json. For a node that the caller may not read it is withheldFields.
type statFields struct {
	Path              string         `json:"path"`
	Kind              string         `json:"kind"`
	Ephemeral         bool           `json:"ephemeral"`
	Instance          api.Generation `json:"instance"`
	ContentGeneration api.Generation `json:"content_generation"`
	LockGeneration    api.Generation `json:"lock_generation"`
	ACLGeneration     api.Generation `json:"acl_generation"`
	Checksum          string         `json:"checksum"` // hexadecimal: a JSON number is inexact for 64 bits
	Size              int            `json:"size"`
	Children          int            `json:"children"`
	ACL               api.ACL        `json:"acl"`
	Modified          *time.Time     `json:"modified"` // null: unknown
}

// withheldFields is the visible part of an unreadable node. After the caller's own change it also has the
// written fields.
type withheldFields struct {
	Path              string         `json:"path"`
	Kind              string         `json:"kind"`
	Ephemeral         bool           `json:"ephemeral"`
	Withheld          bool           `json:"withheld"` // true
	Instance          api.Generation `json:"instance,omitempty"`
	ContentGeneration api.Generation `json:"content_generation,omitempty"`
	Checksum          string         `json:"checksum,omitempty"`
	Size              *int           `json:"size,omitempty"`
	Modified          *time.Time     `json:"modified,omitempty"`
	ACLGeneration     api.Generation `json:"acl_generation,omitempty"`
	ACL               *api.ACL       `json:"acl,omitempty"`
}

func newStatFields(s api.Stat) any {
	if s.Withheld {
		f := withheldFields{
			Path: s.Path.String(), Kind: s.Kind.String(), Ephemeral: s.Ephemeral, Withheld: true, Instance: s.Instance, ContentGeneration: s.Content, Modified: timestamp(s.ModifiedUnix),
		}
		if s.Content != 0 {
			f.Checksum, f.Size = fmt.Sprintf("%016x", s.Checksum), &s.Size
		}
		if s.ACLs != 0 {
			f.ACLGeneration, f.ACL = s.ACLs, &s.ACL
		}
		return f
	}
	return statFields{
		s.Path.String(), s.Kind.String(), s.Ephemeral, s.Instance, s.Content, s.Lock, s.ACLs,
		fmt.Sprintf("%016x", s.Checksum), s.Size, s.Children, s.ACL, timestamp(s.ModifiedUnix),
	}
}

// printChange prints a node after a change: for programs always, for people with -v.
func (g *globals) printChange(out, remarks io.Writer, did string, s api.Stat) error {
	text := fmt.Sprintf("%s %v", did, s.Path)
	if !s.Withheld {
		text += fmt.Sprintf(" (content generation %d, instance %d)", s.Content, s.Instance)
	}
	return g.did(out, remarks, newStatFields(s), "%s", text)
}

// printCreated is printChange for a node just opened with Create. If it existed before, it asks for the
// metadata, if they are printed.
func (g *globals) printCreated(ctx context.Context, out, remarks io.Writer, did string, h *client.Handle) error {
	if stat, created := h.CreatedStat(); created {
		return g.printChange(out, remarks, did, stat)
	}
	if !g.json() && !g.verbose {
		return nil
	}
	stat, err := h.Stat(ctx)
	if err != nil {
		return &exitError{exitFailed, fmt.Errorf("there is %s, but what it is like is not known: %w", h.Path(), err)}
	}
	return g.printChange(out, remarks, "there is", stat)
}

func newStatCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "stat PATH...",
		Short: "Show the metadata of nodes",
		Long: `stat shows a node's kind, size and the four numbers that only grow: of the
instance (greater than that of any node of that name before), of its contents and
of its ACL names (greater with each write), and of its lock (greater each time it
goes from free to held). All are drawn from one counter of the cell: they do not
count by one, and none ever stands for two contents of a name.

The time at which the contents were written is by the clock of the master at that
time: it is for people, and nothing depends on it. It is not known ("-", in JSON
null) of what was written before the cell was at feature level 2 (see "chubbyctl
cell upgrade").`,
		Example: "  chubbyctl stat -o json /ls/local/motd",
		RunE: func(cmd *cobra.Command, args []string) error {
			first := true
			return g.eachPath(args, func(p api.Path) error {
				if !first && !g.json() {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				first = false
				stat, err := readNode(cmd.Context(), g, p, (*client.Client).Stat)
				if err != nil {
					return err
				}
				return g.printStat(cmd.OutOrStdout(), stat)
			})
		},
	}
}

func (g *globals) printStat(out io.Writer, s api.Stat) error {
	kind, size, much := s.Kind.String(), "size", any(fmt.Sprintf("%d bytes, checksum %016x", s.Size, s.Checksum))
	if s.Ephemeral {
		kind = "ephemeral " + kind
	}
	if s.Kind == api.Directory {
		size, much = "children", s.Children
	}
	acl := fmt.Sprintf("read %s, write %s, change %s", term.OrDash(s.ACL.Read), term.OrDash(s.ACL.Write), term.OrDash(s.ACL.Change))
	return g.output.Show(out, newStatFields(s), func(p *term.Page) {
		p.Fields("path", s.Path, "kind", kind, size, much, "instance", s.Instance, "content generation", s.Content,
			"lock generation", s.Lock, "acl generation", s.ACLs, "modified", modifiedForPeople(s), "acl", acl)
	})
}

// modifiedForPeople says when contents were written: "2026-11-22 19:43:20 UTC (3m ago)".
func modifiedForPeople(s api.Stat) string {
	at := timestamp(s.ModifiedUnix)
	if at == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s ago)", at.Format("2006-01-02 15:04:05 MST"), term.Roughly(since(s.ModifiedUnix)))
}
