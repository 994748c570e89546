package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/internal/helptext"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "chubbyd",
		Short: "Run the replicas of a Chubby cell",
		Long: `chubbyd runs the replicas of a Chubby cell: an open lock service with a small
file system, after Burrows (OSDI 2006).

  chubbyd dev                      a whole cell on this machine, for trying
  chubbyd serve --config FILE      one replica of a cell
  chubbyd config example           a configuration file to begin with
  chubbyd certs init               certificates, if there is no authority yet`,
		Args:                       cobra.ArbitraryArgs,
		RunE:                       needsVerb,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see '%s --help'", err, cmd.CommandPath())
	})
	root.Version = builtFrom().Version // for --version, which prints what version prints
	root.SetVersionTemplate(builtFrom().String())
	root.AddCommand(newDevCommand(), newServeCommand(), newConfigCommand(), newCertsCommand(), newVersionCommand())
	helptext.Install(root, helptext.TerminalWidth)
	return root
}

// needsVerb is the action of a command that only groups others.
func needsVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("%s needs one of the commands above", cmd.CommandPath())
	}
	advice := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s has no command %q; %s", cmd.CommandPath(), args[0], advice)
}
