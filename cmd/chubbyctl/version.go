package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

type versionFields struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

func newVersionCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what this binary was built from",
		Example: "  chubbyctl version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := builtFrom()
			return g.output.Say(cmd.OutOrStdout(), v, "%s", strings.TrimSuffix(v.String(), "\n"))
		},
	}
}

func (v versionFields) String() string {
	return fmt.Sprintf("chubbyctl %s\ncommit    %s\ngo        %s %s/%s\n", v.Version, v.Commit, v.Go, runtime.GOOS, runtime.GOARCH)
}

// builtFrom returns what the Go tool recorded at build time.
func builtFrom() versionFields {
	v := versionFields{Version: "unknown", Commit: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (with local changes)"
		}
	}
	v.Commit += modified
	return v
}
