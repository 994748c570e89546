package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
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

func (g *globals) printFile(cmd *cobra.Command, p api.Path) error {
	contents, stat, err := g.readContents(cmd.Context(), p)
	if err != nil {
		return err
	}
	return g.printContents(cmd.OutOrStdout(), contents, stat)
}

type contentsFields struct {
	Path string `json:"path"`
	*watchedContents
}

func (g *globals) printContents(out io.Writer, contents []byte, stat api.Stat) error {
	if g.json() {
		return g.output.Print(out, contentsFields{stat.Path.String(), newWatchedContents(contents, stat)})
	}
	_, err := out.Write(contents)
	return err
}
