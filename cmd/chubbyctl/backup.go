package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/backup"
	"github.com/chubbylock/chubby/internal/backupstore"
)

type backupFields struct {
	backup.About
	Bytes    int64  `json:"bytes"`
	Checksum string `json:"checksum"`
}

func backupVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cell, err := g.cellOf(args[1:])
		if err != nil {
			return err
		}
		return g.takeBackup(cmd, args[0], cell)
	}
}

func (g *globals) takeBackup(cmd *cobra.Command, name, cell string) error {
	if name == "-" {
		f, err := g.writeBackup(cmd.Context(), cell, cmd.OutOrStdout())
		if err == nil {
			term.Remark(g.stderr, "%s", describeBackup(f))
		}
		return err
	}
	var f backupFields
	err := g.writeNewFile(cmd.Context(), name, func(w io.Writer) (err error) {
		f, err = g.writeBackup(cmd.Context(), cell, w)
		return err
	})
	if err != nil {
		return err
	}
	return g.printBackup(cmd.OutOrStdout(), name, f)
}

// mustBeNew rejects the name of an existing file.
func mustBeNew(name string) error {
	if backupstore.IsRemote(name) {
		return nil // checked when it is written
	}
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return taken(name)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

func taken(name string) error { return usagef("%s is there already: nothing is replaced", name) }

// fileAt finds the place of a file on the command line, and warns if others may read or change the way to it.
func (g *globals) fileAt(name string) (backupstore.Place, string, error) {
	place, base, err := backupstore.FileAt(name)
	if err != nil {
		return nil, "", usagef("%v", err)
	}
	if text := backupstore.Warning(place); text != "" {
		term.Remark(g.stderr, "%s", text)
	}
	return place, base, nil
}

// writeNewFile creates a backup's file, which appears when it is complete.
func (g *globals) writeNewFile(ctx context.Context, name string, write func(io.Writer) error) error {
	place, base, err := g.fileAt(name)
	if err != nil {
		return err
	}
	err = place.Create(ctx, base, write)
	if errors.Is(err, fs.ErrExist) {
		return taken(name)
	}
	return err
}

// writeBackup takes a backup, each part within --timeout, and checks its sum.
func (g *globals) writeBackup(ctx context.Context, cell string, w io.Writer) (f backupFields, err error) {
	follower := backup.NewFollower()
	c, err := client.Dial(ctx, g.config(cell))
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, step, cancel := g.withSteps(ctx)
	defer cancel()
	show := term.NewProgress(func(n int64) string { return fmt.Sprint(n >> 24) }, func(n int64) { term.Remark(g.stderr, "%s so far", term.RoughSize(n)) })
	defer show.Stop()
	var n int64
	err = c.Backup(ctx, writerFunc(func(p []byte) (int, error) {
		step()
		n += int64(len(p))
		show.Update(n)
		_, _ = follower.Write(p) // never fails
		return w.Write(p)
	}))
	if err != nil {
		return f, err
	}
	f.About, f.Bytes, f.Checksum, err = follower.Finish()
	return f, err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (g *globals) printBackup(out io.Writer, name string, f backupFields) error {
	return g.output.Say(out, f, "%s: %s", name, describeBackup(f))
}

// describeBackup summarizes a backup in one line.
func describeBackup(f backupFields) string {
	of := ""
	if f.Recovered != "" {
		of = ", recovered from replica " + f.Recovered
	}
	return fmt.Sprintf("cell %s (%.12s)%s at entry %d, of %s: %d nodes with %s, %d sessions, %d locks held; %s, sha256 %s",
		f.Cell, f.CellID, of, f.Index, time.Unix(f.TakenUnix, 0).UTC().Format(time.DateTime), f.Nodes, term.RoughSize(f.Contents), f.Sessions, f.Locks, term.RoughSize(f.Bytes), f.Checksum)
}

// readBackup reads a whole backup; - is standard input. Until that ends, one interrupt ends the process.
func (g *globals) readBackup(cmd *cobra.Command, name string) (*backup.Backup, error) {
	if in := cmd.InOrStdin(); name == "-" {
		if term.IsTerminal(in) {
			return nil, usagef("- is a backup from standard input, as in 'gunzip <FILE | %s -'", cmd.CommandPath())
		}
		b, err := untilInterrupt(cmd.Context(), func() (*backup.Backup, error) { return backup.Read(in) })
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return b, nil
	}
	place, base, err := g.fileAt(name)
	if err != nil {
		return nil, err
	}
	file, err := place.Open(cmd.Context(), base)
	if err != nil {
		return nil, err
	}
	defer file.Close() // only read
	b, err := backup.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

func backupVerifyVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := g.readBackup(cmd, args[0])
		if err != nil {
			return err
		}
		return g.printBackup(cmd.OutOrStdout(), args[0], backupFields{b.About, b.Bytes, b.Checksum})
	}
}

type backupNode struct {
	Path    string   `json:"path"`
	Kind    string   `json:"kind"`
	Size    int      `json:"size"`
	Lock    string   `json:"lock"` // "" if free
	Holders []string `json:"holders"`
}

func backupShowVerb(g *globals, cmd *cobra.Command) {
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := g.readBackup(cmd, args[0])
		if err != nil {
			return err
		}
		var below api.Name
		if len(args) == 2 {
			p, err := api.ParsePath(args[1])
			if err != nil {
				return err
			}
			below = p.Name()
			node, ok := b.State.Tree.Get(below)
			switch {
			case !ok || p.Cell() != b.Cell:
				return &api.Error{Code: api.NotFound, Op: "show", Path: args[1], Message: "it is not in this backup, which is one of cell " + b.Cell}
			case node.Kind == api.File:
				_, err := cmd.OutOrStdout().Write(node.Contents)
				return err
			}
		}
		return g.printBackupNodes(cmd.OutOrStdout(), b, below)
	}
}

func (g *globals) printBackupNodes(out io.Writer, b *backup.Backup, below api.Name) error {
	list := term.List[backupNode, backupNode]{
		Fields: term.Itself[backupNode],
		Add: func(t *term.Table, one backupNode) {
			t.Add(one.Path, one.Kind, one.Size, one.Lock, strings.Join(one.Holders, " "))
		},
		Columns: []string{"PATH", "KIND", "BYTES", "LOCK", "HOLDERS"},
	}
	return list.Print(out, g.output, func(yield func(backupNode, error) bool) {
		for _, node := range b.State.Tree.Below(below, nil) {
			path, err := node.Name.In(b.Cell)
			one := backupNode{Path: path.String(), Kind: node.Kind.String(), Size: len(node.Contents), Holders: []string{}}
			if len(node.Holders) > 0 {
				one.Lock = node.Mode.String()
			}
			for _, h := range node.Holders {
				if s, ok := b.State.Sessions.Get(h.Session); ok {
					one.Holders = append(one.Holders, s.Principal)
				}
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
	})
}
