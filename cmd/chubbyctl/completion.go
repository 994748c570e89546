package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// completionBound is how long the cell may take to answer when the user presses Tab. If it
// takes longer, nothing is offered, and no message is printed.
const completionBound = time.Second

// completeBelow gives every command and flag below root its completion: what the cell has, or
// a list of words; the files of this machine only where a file is wanted.
func (g *globals) completeBelow(root *cobra.Command) {
	g.completeCommand(root)
	for _, cmd := range root.Commands() {
		g.completeBelow(cmd)
	}
}

func (g *globals) completeCommand(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !cmd.Hidden {
		cmd.ValidArgsFunction = g.completeArguments(cmd)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, set := cmd.GetFlagCompletionFunc(f.Name); set {
			return
		}
		if complete := g.completeFlag(cmd, f); complete != nil {
			// It fails for a flag that has a completion, or does not exist; both were checked.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		}
	})
}

// completeArguments returns the completion of a command's arguments that are not paths, by
// their names in its usage line.
func (g *globals) completeArguments(cmd *cobra.Command) cobra.CompletionFunc {
	var each []cobra.CompletionFunc
	for _, word := range strings.Fields(cmd.Use)[1:] {
		switch strings.Trim(word, "[]") {
		case "CELL":
			each = append(each, g.completeCell)
		case "ID":
			each = append(each, g.completeSession)
		case "SEQ":
			each = append(each, completeSequencer)
		case "NAME":
			each = append(each, g.completeList)
		default:
			each = append(each, cobra.NoFileCompletions)
		}
	}
	return func(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(each) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[len(args)](cmd, args, half)
	}
}

// completeFlag returns the completion of a flag's value; nil for the files of this machine.
func (g *globals) completeFlag(cmd *cobra.Command, f *pflag.Flag) cobra.CompletionFunc {
	switch f.Name {
	case "output":
		return completeWords("text\tfor people", "wide\tfor people, nothing left out", "json\tone object per line", "yaml\tthe fields of json")
	case "events":
		return completeKinds
	case "jeopardy-signal", "safe-signal":
		return completeWords("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH")
	case "if-sequencer":
		return completeSequencer
	case "to":
		return g.completeReplica
	case "principal":
		return g.completePrincipal
	case "read", "write", "change":
		if cmd.Name() == "set" {
			return g.completeList
		}
	case "dir", "prefix":
		return func(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
			return g.completePath(cmd, nil, half)
		}
	case "cell":
		return g.completeCell
	case "servers", "as", "reason", "value", "name":
		return cobra.NoFileCompletions
	}
	switch f.Value.Type() {
	case "string", "stringSlice", "bool":
		return nil
	}
	return cobra.NoFileCompletions // a number or a duration
}

// completeWords offers a fixed list of words.
func completeWords(list ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
		return withPrefix(half, slices.Clone(list)), cobra.ShellCompDirectiveNoFileComp
	}
}

// forCompletion returns options that wait for a short time only, and print nothing.
func (g *globals) forCompletion() *globals {
	h := *g
	h.timeout = min(g.timeout, completionBound)
	h.stderr = nil
	return &h
}

// completePath offers the children of the directory that a half-written path is in, from the
// live cell. Directories have a slash behind, after which the user can go on.
func (g *globals) completePath(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
	const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		switch {
		case strings.Contains(cmd.Use, "PATH... ") && strings.HasPrefix(half, "/"+api.Root+"/"): // one more, as no program is there
		case strings.Contains(cmd.Use, "CMD"):
			if len(args) == 1 {
				return programs(half), cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveDefault // its arguments
		case cmd.Args != nil && cmd.Args(cmd, append(slices.Clone(args), half)) != nil:
			return nil, cobra.ShellCompDirectiveNoFileComp // one path was all it takes
		}
	}
	if roots := g.rootsLike(half); len(roots) > 0 {
		return roots, more
	}
	cut := strings.LastIndexByte(half, '/')
	directory, err := g.pathOf(nil) // of a half-written name in the default cell
	if cut >= 0 {
		directory, err = g.parsePath(half[:cut+1])
	}
	if err != nil {
		return nil, more
	}
	var names []string
	err = g.forCompletion().withHandle(cmd.Context(), directory, client.OpenOptions{Read: true, Kind: api.Directory}, func(ctx context.Context, h *client.Handle) error {
		children, err := h.ReadDir(ctx)
		for _, s := range children {
			if strings.HasPrefix(s.Path.Base(), half[cut+1:]) {
				names = append(names, half[:cut+1]+label(s))
			}
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if len(names) == 1 && !strings.HasSuffix(names[0], "/") {
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return names, more
}

// maxPrograms is how many programs are offered at most.
const maxPrograms = 500

// programs returns the names of programs in PATH that begin with half. Half-written paths are
// left to the shell.
func programs(half string) []string {
	var names []string
	if half == "" || strings.Contains(half, "/") {
		return nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // PATH may name directories that do not exist
		}
		for _, e := range entries {
			if len(names) >= maxPrograms {
				return names
			}
			if name := e.Name(); strings.HasPrefix(name, half) && !slices.Contains(names, name) && supervise.Runnable(filepath.Join(dir, name)) {
				names = append(names, name)
			}
		}
	}
	return names
}

// onlyFirst completes the first argument alone.
func onlyFirst(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, half)
	}
}

// knownCells returns the cells that can be offered without asking: the default one, those
// that are configured, and local.
func (g *globals) knownCells() []string {
	cells := slices.DeleteFunc(client.ConfiguredCells(), func(name string) bool { return !api.ValidCell(name) })
	if chosen, err := g.defaultCell(); err == nil {
		cells = append(cells, chosen)
	}
	cells = append(cells, api.LocalCell)
	slices.Sort(cells)
	return slices.Compact(cells)
}

// rootsLike returns the root directories of known cells whose paths begin with half.
func (g *globals) rootsLike(half string) []string {
	var roots []string
	for _, cell := range g.knownCells() {
		if root := "/" + api.Root + "/" + cell + "/"; root != half && strings.HasPrefix(root, half) {
			roots = append(roots, root)
		}
	}
	return roots
}

func (g *globals) completeCell(_ *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return withPrefix(half, g.knownCells()), cobra.ShellCompDirectiveNoFileComp
}

// withPrefix returns the words that begin with half.
func withPrefix(half string, words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, half) })
}

// completeSequencer offers the sequencer of the lock that this shell runs under.
func completeSequencer(_ *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	var list []string
	if own := os.Getenv("CHUBBY_SEQUENCER"); own != "" {
		list = append(list, own)
	}
	return withPrefix(half, list), cobra.ShellCompDirectiveNoFileComp
}

// completeKinds offers kinds of events; several are separated by commas.
func completeKinds(_ *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	given := half[:strings.LastIndexByte(half, ',')+1]
	var list []string
	for _, kind := range kindNames(subscribable()) {
		if !slices.Contains(strings.Split(given, ","), kind) {
			list = append(list, given+kind)
		}
	}
	return withPrefix(half, list), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeFromCell offers what the default cell answers without a session.
func (g *globals) completeFromCell(cmd *cobra.Command, half string, list func(context.Context, *client.Cell) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	var found []string
	cell, err := g.defaultCell()
	if err == nil {
		err = g.forCompletion().withCell(cmd.Context(), cell, func(ctx context.Context, c *client.Cell) (err error) {
			found, err = list(ctx, c)
			return err
		})
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return withPrefix(half, found), cobra.ShellCompDirectiveNoFileComp
}

func (g *globals) completeSession(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completeFromCell(cmd, half, func(ctx context.Context, c *client.Cell) ([]string, error) {
		sessions, err := c.Sessions(ctx)
		var list []string
		for _, s := range sessions {
			list = append(list, s.Session.String()+"\t"+term.Printable(fmt.Sprintf("%s on %s, pid %d", s.Principal, s.Host, s.PID)))
		}
		return list, err
	})
}

func (g *globals) completeReplica(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completeFromCell(cmd, half, func(ctx context.Context, c *client.Cell) ([]string, error) {
		members, err := c.Members(ctx)
		var list []string
		for _, m := range members {
			list = append(list, m.ID+"\t"+m.Client)
		}
		return list, err
	})
}

func (g *globals) completePrincipal(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completeFromCell(cmd, half, func(ctx context.Context, c *client.Cell) ([]string, error) {
		quotas, err := c.Quotas(ctx)
		var list []string
		for _, q := range quotas {
			if q.Principal != "" {
				list = append(list, q.Principal)
			}
		}
		return list, err
	})
}

// completeList offers the names of access control lists of the default cell.
func (g *globals) completeList(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	var list []string
	cell, err := g.defaultCell()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	err = g.forCompletion().withHandle(cmd.Context(), listsOf(cell), client.OpenOptions{Read: true, Kind: api.Directory}, func(ctx context.Context, h *client.Handle) error {
		children, err := h.ReadDir(ctx)
		for _, s := range children {
			list = append(list, s.Path.Base())
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return withPrefix(half, list), cobra.ShellCompDirectiveNoFileComp
}
