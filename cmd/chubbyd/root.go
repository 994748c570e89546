package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

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
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see '%s --help'", err, cmd.CommandPath())
	})
	root.Version = builtFrom().Version // for --version, which prints what version prints
	root.SetVersionTemplate(builtFrom().String())
	helptext.Install(root, helptext.TerminalWidth)
	return groupOf(root, newDevCommand(), newServeCommand(), newConfigCommand(), newCertsCommand(), newVersionCommand())
}

type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Raft    string `json:"raft"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func (b build) String() string {
	return fmt.Sprintf("chubbyd %s\ncommit  %s\nraft    %s\ngo      %s %s\n", b.Version, b.Commit, b.Raft, b.Go, b.System)
}

func newVersionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this binary was built from",
		Example: "  chubbyd version -o json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			switch format {
			case "text":
				_, err = fmt.Fprint(cmd.OutOrStdout(), builtFrom())
			case "json":
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(builtFrom())
			default:
				err = usagef("--output: %q is neither text nor json", format)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	completeFlag(cmd, "output", "text", "json")
	return cmd
}

func builtFrom() build {
	b := build{
		Version: "unknown",
		Commit:  "unknown",
		Raft:    "unknown",
		Go:      runtime.Version(),
		System:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (with local changes)"
		}
	}
	b.Commit += modified
	for _, dep := range info.Deps {
		if dep.Path == "github.com/hashicorp/raft" {
			b.Raft = dep.Version
		}
	}
	return b
}
