package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

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

// completeFlag makes shells complete a flag with its words.
func completeFlag(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is missing, or has a completion: a mistake in this program
	}
}
