package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// completionBound is how long the cell may take to answer Tab. After it there are no offers and no message.
const completionBound = time.Second

// completeBelow adds completion to a command, its flags, and all commands below it: from the cell, or a list of words; local
// files only where a file is expected. The usage line also sets the number of arguments, unless the command checks it itself.
func completeBelow(g *globals, cmd *cobra.Command) {
	if cmd.Args == nil && !cmd.Hidden {
		words, repeated := argumentsIn(cmd.Use)
		least := len(slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word[0] == '[' }))
		if cmd.Args = arguments(cobra.RangeArgs(least, len(words))); repeated {
			cmd.Args = arguments(cobra.MinimumNArgs(least))
		}
	}
	if cmd.ValidArgsFunction == nil && !cmd.Hidden {
		cmd.ValidArgsFunction = completeArguments(g, cmd)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, set := cmd.GetFlagCompletionFunc(f.Name); set {
			return
		}
		if complete := completeFlag(g, cmd, f); complete != nil {
			// Fails for a flag with a completion or a missing one; both were checked.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		}
	})
	for _, child := range cmd.Commands() {
		completeBelow(g, child)
	}
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

// source returns what may be offered, each with its meaning behind a tab.
type source = func(ctx context.Context, g *globals) []string

func words(list ...string) source {
	return func(context.Context, *globals) []string { return slices.Clone(list) }
}

// fromCell is a source of what the default cell has.
func fromCell[T any](ask func(*client.Cell, context.Context) ([]T, error), word func(T) string) source {
	return func(ctx context.Context, g *globals) []string {
		cell, err := g.defaultCell()
		if err != nil {
			return nil
		}
		all, _ := askCell(ctx, g, cell, ask) // without an answer nothing is offered
		return term.Each(all, word)
	}
}

// sources returns what is offered for the words of usage lines, and for the values of flags.
func sources() map[string]source {
	cells := func(_ context.Context, g *globals) []string { return g.knownCells() }
	sessions := fromCell((*client.Cell).Sessions, func(s client.SessionInfo) string {
		return s.Session.String() + "\t" + term.Printable(fmt.Sprintf("%s on %s, pid %d", s.Principal, s.Host, s.PID))
	})
	signals := words("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH")
	none := words()
	return map[string]source{
		"CELL": cells, "cell": cells, "ID": sessions, "session": sessions, "ACT": words(actWords()...), "NAME": lists,
		"SEQ": ownSequencer, "if-sequencer": ownSequencer, "jeopardy-signal": signals, "safe-signal": signals,
		"output":    words("text\tfor people", "wide\tfor people, nothing left out", "json\tone object per line", "yaml\tthe fields of json"),
		"to":        fromCell((*client.Cell).Members, func(m client.Member) string { return m.ID + "\t" + m.Client }),
		"principal": fromCell((*client.Cell).Quotas, func(q client.QuotaUse) string { return q.Principal }),
		"servers":   none, "as": none, "reason": none, "value": none, "name": none,
	}
}

// ownSequencer is the sequencer of the lock of this shell.
func ownSequencer(context.Context, *globals) []string { return []string{os.Getenv("CHUBBY_SEQUENCER")} }

// lists are the access control lists of the default cell.
func lists(ctx context.Context, g *globals) []string {
	cell, err := g.defaultCell()
	if err != nil {
		return nil
	}
	all, _ := readNode(ctx, g, listsOf(cell), (*client.Client).List) // without an answer nothing is offered
	return term.Each(all, func(s api.Stat) string { return s.Path.Base() })
}

// complete offers what a source has that begins with the half-written word.
func (g *globals) complete(from source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
		return withPrefix(half, from(cmd.Context(), forCompletion(g))), cobra.ShellCompDirectiveNoFileComp
	}
}

func completeArguments(g *globals, cmd *cobra.Command) cobra.CompletionFunc {
	if strings.Contains(cmd.Use, "CMD") {
		return g.completePath
	}
	var each []cobra.CompletionFunc
	words, repeated := argumentsIn(cmd.Use)
	for _, word := range words {
		word = strings.Trim(word, "[]")
		from, known := sources()[word]
		switch {
		case slices.Contains([]string{"PATH", "PREFIX", "SRC", "DST"}, word):
			each = append(each, g.completePath)
		case known:
			each = append(each, g.complete(from))
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
func completeFlag(g *globals, cmd *cobra.Command, f *pflag.Flag) cobra.CompletionFunc {
	from, known := sources()[f.Name]
	isText := slices.Contains([]string{"string", "stringSlice", "bool"}, f.Value.Type())
	switch {
	case f.Name == "events":
		return completeKinds
	case f.Name == "dir", f.Name == "prefix":
		return g.completeNode
	case cmd.Name() == "set" && slices.Contains([]string{"read", "write", "change"}, f.Name):
		return g.complete(lists)
	case known:
		return g.complete(from)
	case isText:
		return nil
	}
	return cobra.NoFileCompletions // a number or a duration
}

// forCompletion returns options with a short timeout and without output.
func forCompletion(g *globals) *globals {
	h := *g
	h.timeout = min(g.timeout, completionBound)
	h.stderr = nil
	return &h
}

// completePath offers the children of the directory of a half-written path, from the live cell. Directories end
// with a slash, so that the user can go on.
func (g *globals) completePath(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
	const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		switch {
		case strings.Contains(cmd.Use, "PATH... ") && strings.HasPrefix(half, "/"+api.Root+"/"): // another path, as there is no program
		case strings.Contains(cmd.Use, "CMD"):
			return nil, cobra.ShellCompDirectiveDefault // a program and its arguments
		case cmd.Args != nil && cmd.Args(cmd, append(slices.Clone(args), half)) != nil:
			return nil, cobra.ShellCompDirectiveNoFileComp // it takes one path
		}
	}
	var roots []string
	for _, cell := range g.knownCells() {
		if root := "/" + api.Root + "/" + cell + "/"; root != half && strings.HasPrefix(root, half) {
			roots = append(roots, root)
		}
	}
	if len(roots) > 0 {
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
	children, err := readNode(cmd.Context(), forCompletion(g), directory, (*client.Client).List)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := withPrefix(half, term.Each(children, func(s api.Stat) string { return half[:cut+1] + label(s) }))
	if len(names) == 1 && !strings.HasSuffix(names[0], "/") {
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return names, more
}

func (g *globals) completeNode(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completePath(cmd, nil, half)
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

func withPrefix(half string, words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return word == "" || !strings.HasPrefix(word, half) })
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
