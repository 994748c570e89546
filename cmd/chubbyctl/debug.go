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
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func debugVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return g.withCellOf(cmd, args[1:], func(ctx context.Context, c *client.Cell) error {
			status, err := c.Status(ctx)
			if err != nil {
				return err
			}
			parts, err := client.Debug(ctx, c)
			if err != nil {
				return err
			}
			if err := writeDebug(args[0], newStatusFields(status, divergence(status.Replicas)), parts); err != nil {
				return fmt.Errorf("write %s: %w", args[0], err)
			}
			return g.tellDebug(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], parts)
		})
	}
}

type debugFields struct {
	File    string   `json:"file"`
	Parts   int      `json:"parts"`   // complete
	Missing []string `json:"missing"` // the others
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

func (g *globals) tellDebug(out, complaints io.Writer, file string, parts []client.DebugPart) error {
	f := debugFields{File: file, Missing: []string{}}
	for _, p := range parts {
		why := missingOf(p)
		if why == "" {
			f.Parts++
			continue
		}
		f.Missing = append(f.Missing, p.Replica+"/"+p.Name)
		if _, err := fmt.Fprintf(complaints, "chubbyctl: %s of %s is missing: %s\n", p.Name, p.Replica, term.Printable(why)); err != nil {
			return err
		}
	}
	err := g.output.Say(out, f, "%s: the cell's status, and %d of %d parts of what its replicas know", file, f.Parts, len(parts))
	if err != nil || len(f.Missing) == 0 {
		return err
	}
	return api.Errorf(api.Unavailable, "%d of %d parts are missing in %s", len(f.Missing), len(parts), file)
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
