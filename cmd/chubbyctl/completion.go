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

// completionBound is how long the cell may take to answer Tab. After it there are no offers and no message.
const completionBound = time.Second

// completeBelow adds completion to every command and flag below root: from the cell, or a list of words; local
// files only where a file is expected.
func (g *globals) completeBelow(root *cobra.Command) {
	g.completeCommand(root)
	for _, cmd := range root.Commands() {
		g.completeBelow(cmd)
	}
}

// completeCommand also lets the usage line set the number of arguments, unless the command checks it itself.
func (g *globals) completeCommand(cmd *cobra.Command) {
	if cmd.Args == nil && !cmd.Hidden {
		cmd.Args = arguments(argumentCount(cmd.Use))
	}
	if cmd.ValidArgsFunction == nil && !cmd.Hidden {
		cmd.ValidArgsFunction = g.completeArguments(cmd)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, set := cmd.GetFlagCompletionFunc(f.Name); set {
			return
		}
		if complete := g.completeFlag(cmd, f); complete != nil {
			// Fails for a flag with a completion or a missing one; both were checked.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		}
	})
}

// argumentsIn returns the arguments in a usage line, "[CELL]" if optional, and whether the last may repeat.
func argumentsIn(use string) (words []string, repeated bool) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(strings.TrimLeft(word, "[("), "-") || word == "[flags]" || repeated {
			break
		}
		word, repeated = strings.CutSuffix(word, "...")
		words = append(words, word)
	}
	return words, repeated
}

// argumentCount returns the check of the number of arguments, by a usage line.
func argumentCount(use string) cobra.PositionalArgs {
	words, repeated := argumentsIn(use)
	least := 0
	for _, word := range words {
		if word[0] != '[' {
			least++
		}
	}
	if repeated {
		return cobra.MinimumNArgs(least)
	}
	return cobra.RangeArgs(least, len(words))
}

func (g *globals) completeArguments(cmd *cobra.Command) cobra.CompletionFunc {
	if strings.Contains(cmd.Use, "CMD") {
		return g.completePath
	}
	var each []cobra.CompletionFunc
	words, repeated := argumentsIn(cmd.Use)
	for _, word := range words {
		switch strings.Trim(word, "[]") {
		case "PATH", "PREFIX", "SRC", "DST":
			each = append(each, g.completePath)
		case "CELL":
			each = append(each, g.completeCell)
		case "ID":
			each = append(each, g.completeSession)
		case "SEQ":
			each = append(each, completeSequencer)
		case "NAME":
			each = append(each, g.completeList)
		case "ACT":
			each = append(each, completeWords(actWords()...))
		default:
			each = append(each, cobra.NoFileCompletions)
		}
	}
	return func(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
		at := len(args)
		if repeated {
			at = min(at, len(each)-1)
		}
		if at >= len(each) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[at](cmd, args, half)
	}
}

// completeFlag returns the completion of a flag's value; nil for local files.
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
		return g.completeNode
	case "session":
		return g.completeSession
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

func completeWords(list ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
		return offer(half, slices.Clone(list), nil)
	}
}

// forCompletion returns options with a short timeout and without output.
func (g *globals) forCompletion() *globals {
	h := *g
	h.timeout = min(g.timeout, completionBound)
	h.stderr = nil
	return &h
}

// offer offers the words that begin with half, unless there is an error.
func offer(half string, words []string, err error) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		words = nil
	}
	return withPrefix(half, words), cobra.ShellCompDirectiveNoFileComp
}

// completePath offers the children of the directory of a half-written path, from the live cell. Directories end
// with a slash, so that the user can go on.
func (g *globals) completePath(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
	const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		switch {
		case strings.Contains(cmd.Use, "PATH... ") && strings.HasPrefix(half, "/"+api.Root+"/"): // another path, as there is no program
		case strings.Contains(cmd.Use, "CMD"):
			if len(args) == 1 {
				return programs(half), cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveDefault // its arguments
		case cmd.Args != nil && cmd.Args(cmd, append(slices.Clone(args), half)) != nil:
			return nil, cobra.ShellCompDirectiveNoFileComp // it takes one path
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
	children, err := readNode(cmd.Context(), g.forCompletion(), directory, (*client.Client).List)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range children {
		names = append(names, half[:cut+1]+label(s))
	}
	names = withPrefix(half, names)
	if len(names) == 1 && !strings.HasSuffix(names[0], "/") {
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return names, more
}

// maxPrograms is the maximum of offered programs.
const maxPrograms = 500

// programs returns the programs in PATH that begin with half. The shell completes paths.
func programs(half string) []string {
	var names []string
	if half == "" || strings.Contains(half, "/") {
		return nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // PATH may name missing directories
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

// knownCells returns the cells known without a call: the default, the configured ones, and local.
func (g *globals) knownCells() []string {
	cells := slices.DeleteFunc(client.ConfiguredCells(), func(name string) bool { return !api.ValidCell(name) })
	if chosen, err := g.defaultCell(); err == nil {
		cells = append(cells, chosen)
	}
	cells = append(cells, api.LocalCell)
	slices.Sort(cells)
	return slices.Compact(cells)
}

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
	return offer(half, g.knownCells(), nil)
}

func withPrefix(half string, words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, half) })
}

// completeSequencer offers the sequencer of the lock of this shell.
func completeSequencer(_ *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	var list []string
	if own := os.Getenv("CHUBBY_SEQUENCER"); own != "" {
		list = append(list, own)
	}
	return offer(half, list, nil)
}

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

// askDefault asks the default cell for offers.
func askDefault[T any](
	ctx context.Context, g *globals, ask func(*client.Cell, context.Context) ([]T, error), word func(T) string,
) (words []string, err error) {
	cell, err := g.defaultCell()
	if err != nil {
		return nil, err
	}
	list, err := askCell(ctx, g.forCompletion(), cell, ask)
	for _, one := range list {
		words = append(words, word(one))
	}
	return words, err
}

func (g *globals) completeSession(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	words, err := askDefault(cmd.Context(), g, (*client.Cell).Sessions, func(s client.SessionInfo) string {
		return s.Session.String() + "\t" + term.Printable(fmt.Sprintf("%s on %s, pid %d", s.Principal, s.Host, s.PID))
	})
	return offer(half, words, err)
}

func (g *globals) completeReplica(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	words, err := askDefault(cmd.Context(), g, (*client.Cell).Members, func(m client.Member) string { return m.ID + "\t" + m.Client })
	return offer(half, words, err)
}

func (g *globals) completePrincipal(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	words, err := askDefault(cmd.Context(), g, (*client.Cell).Quotas, func(q client.QuotaUse) string { return q.Principal })
	return offer(half, slices.DeleteFunc(words, func(principal string) bool { return principal == "" }), err)
}

func (g *globals) completeList(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	var words []string
	cell, err := g.defaultCell()
	if err == nil {
		var lists []api.Stat
		lists, err = readNode(cmd.Context(), g.forCompletion(), listsOf(cell), (*client.Client).List)
		for _, s := range lists {
			words = append(words, s.Path.Base())
		}
	}
	return offer(half, words, err)
}
