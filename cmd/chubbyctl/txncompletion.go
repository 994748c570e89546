package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func (g *globals) completeNode(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completePath(cmd, nil, half)
}

// stepCompletion completes flags of the form PATH=REST: paths with their =, and then REST.
func (g *globals) stepCompletion(flag string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
		const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		if path, rest, found := cutAssignment(half); found {
			before := half[:len(half)-len(rest)]
			switch flag {
			case stepPutFile, stepCreateFile:
				return filesLike(before, rest), more
			case stepIfGeneration:
				return g.presentNumber(cmd, before, half, path, func(s api.Stat) api.Generation { return s.Content })
			case stepIfInstance:
				return g.presentNumber(cmd, before, half, path, func(s api.Stat) api.Generation { return s.Instance })
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := g.completePath(cmd, nil, unescapedPath(half))
		for i, name := range names {
			if names[i] = escapedPath(name); !strings.HasSuffix(name, "/") {
				names[i] += "="
			}
		}
		return names, more
	}
}

func (g *globals) presentNumber(cmd *cobra.Command, before, half, path string, number func(api.Stat) api.Generation) ([]string, cobra.ShellCompDirective) {
	p, err := g.parsePath(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	stat, err := readNode(cmd.Context(), g.forCompletion(), p, (*client.Client).Stat)
	return offer(half, []string{before + strconv.FormatUint(uint64(number(stat)), 10)}, err)
}

// maxFiles is the maximum of offered local files.
const maxFiles = 500

// filesLike offers local files that begin with half, each after before: the shell completes only whole words.
func filesLike(before, half string) []string {
	dir, base := filepath.Split(half)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if len(names) >= maxFiles {
			break
		}
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		names = append(names, before+dir+name)
	}
	return names
}
