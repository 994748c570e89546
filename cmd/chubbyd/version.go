package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this binary was built from",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd.OutOrStdout())
		},
	}
}

// printVersion tells what the Go tool recorded when it built the binary.
func printVersion(out io.Writer) error {
	version, commit, raft := "unknown", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		modified := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = " (with local changes)"
			}
		}
		commit += modified
		for _, dep := range info.Deps {
			if dep.Path == "github.com/hashicorp/raft" {
				raft = dep.Version
			}
		}
	}
	_, err := fmt.Fprintf(out, "chubbyd %s\ncommit  %s\nraft    %s\ngo      %s %s/%s\n",
		version, commit, raft, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
