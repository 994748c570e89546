package main

import (
	"context"
	"encoding/base64"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func newCatCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cat PATH...",
		Short: "Write the contents of files to standard output",
		Long: `cat writes the bytes of files exactly, with nothing added. With -o json it prints
an object per file instead, with contents (if they are UTF-8), contents_base64 and
the content generation.`,
		Example: "  chubbyctl cat /ls/local/svc/primary",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.eachPath(args, func(p api.Path) error { return g.printFile(cmd, p) })
		},
	}
}

// printFile writes the contents of one file to standard output.
func (g *globals) printFile(cmd *cobra.Command, p api.Path) error {
	return g.withHandle(cmd.Context(), p, client.OpenOptions{Read: true, Kind: api.File}, func(ctx context.Context, h *client.Handle) error {
		contents, stat, err := h.Contents(ctx)
		if err != nil {
			return err
		}
		return g.printContents(cmd.OutOrStdout(), contents, stat)
	})
}

type contentsFields struct {
	Path              string         `json:"path"`
	ContentGeneration api.Generation `json:"content_generation"`
	Contents          *string        `json:"contents,omitempty"`
	ContentsBase64    string         `json:"contents_base64"`
}

func (g *globals) printContents(out io.Writer, contents []byte, stat api.Stat) error {
	if !g.json() {
		_, err := out.Write(contents)
		return err
	}
	f := contentsFields{Path: stat.Path.String(), ContentGeneration: stat.Content, ContentsBase64: base64.StdEncoding.EncodeToString(contents)}
	if utf8.Valid(contents) {
		text := string(contents)
		f.Contents = &text
	}
	return g.output.Print(out, f)
}
