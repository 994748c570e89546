package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/helptext"
)

// verbs are those of the commands, by their paths. The others of help.txt only group commands.
func verbs() map[string]verb {
	return map[string]verb{
		"acquire": acquireVerb, "elect": electVerb, "semaphore": semaphoreVerb,
		"locks": locksVerb, "lock break": lockBreakVerb, "history": onPath(historyVerb), "explain": onPath(explainVerb),
		"sequencer check": onArgs(sequencerCheckVerb), "sequencer show": onArgs(sequencerShowVerb),

		"ls": lsVerb, "tree": treeVerb, "cat": onArgs(catVerb), "put": putVerb, "txn": txnVerb, "mkdir": mkdirVerb, "rm": rmVerb, "stat": onArgs(statVerb),
		"touch": onArgs(touchVerb), "cp": copyVerb, "export": onPath(exportVerb), "import": importVerb, "watch": watchVerb,

		"members ls": membersLsVerb, "members join": membersJoinVerb,

		"cell status": statusVerb, "cell members": showCell((*client.Cell).Members, printMembers), "cell transfer": transferVerb,
		"cell add": memberAddVerb, "cell remove": memberRemoveVerb, "cell replace": memberReplaceVerb,
		"cell upgrade status": onArgs(upgradeStatusVerb), "cell upgrade finish": upgradeFinishVerb,
		"cell backup": onArgs(backupVerb), "cell backup verify": onArgs(backupVerifyVerb), "cell backup show": backupShowVerb,
		"cell restore": restoreVerb, "cell recover": recoverVerb, "cell debug": onArgs(debugVerb),
		"session ls": onArgs(sessionLsVerb), "session show": onArgs(sessionShowVerb), "session end": sessionEndVerb,
		"acl get": onPath(aclGetVerb), "acl set": aclSetVerb, "acl can": onArgs(aclCanVerb),
		"acl file ls": onCell(aclFileLsVerb), "acl file cat": onArgs(aclFileCatVerb), "acl file put": aclFilePutVerb, "acl file rm": aclFileRmVerb,
		"quota ls": showCell((*client.Cell).Quotas, printQuotas), "quota set": quotaSetVerb, "top": topVerb, "lint": lintVerb,
		"drill failover": drillVerb(drillFailOver), "drill outage": drillVerb(drillOutage),
		"drill session-loss": drillVerb(drillSessionLoss), "drill slow-client": drillVerb(drillSlowClient),
		"bench locks": benchVerb("locks"), "bench writes": benchVerb("writes"), "bench reads": benchVerb("reads"),
		"bench cached": benchVerb("cached"), "bench sessions": benchVerb("sessions"), "sizing": sizingVerb,

		"config use-cell": onArgs(useCellVerb), "config current": onArgs(currentCellVerb), "config cells": onArgs(cellsVerb),
		"config add-cell": addCellVerb, "config remove-cell": onArgs(removeCellVerb),
		"completion bash": shellVerb(generateBash), "completion zsh": shellVerb((*cobra.Command).GenZshCompletion),
		"completion fish":       shellVerb(func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }),
		"completion powershell": shellVerb((*cobra.Command).GenPowerShellCompletionWithDesc),
		"version":               onArgs(versionVerb), "whoami": onCell(whoamiVerb),
	}
}

// onArgs returns the verb that runs with its arguments, and has no flags.
func onArgs(run func(g *globals, cmd *cobra.Command, args []string) error) verb {
	return func(g *globals, cmd *cobra.Command) {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(g, cmd, args) }
	}
}

// onPath returns the verb that runs on a path.
func onPath(run func(g *globals, cmd *cobra.Command, p api.Path) error) verb {
	return func(g *globals, cmd *cobra.Command) {
		cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error { return run(g, cmd, p) })
	}
}

// onCell returns the verb that runs on a cell.
func onCell(run func(g *globals, cmd *cobra.Command, cell string) error) verb {
	return func(g *globals, cmd *cobra.Command) {
		cmd.RunE = g.onCell(func(cmd *cobra.Command, cell string) error { return run(g, cmd, cell) })
	}
}

// showCell returns the verb that asks a cell, and shows the answer.
func showCell[T any](ask func(*client.Cell, context.Context) (T, error), show func(term.Format, io.Writer, T) error) verb {
	return onCell(func(g *globals, cmd *cobra.Command, cell string) error {
		answer, err := askCell(cmd.Context(), g, cell, ask)
		if err != nil {
			return err
		}
		return show(g.output, cmd.OutOrStdout(), answer)
	})
}

// commandTree returns the root of the commands in help.txt. The section of a command begins with "## " and its usage: its path, with
// other names of the last word behind bars, and its arguments. Then come one line of summary, its description and its examples. The
// title of a group of commands is behind "# ". A name in %[] stands for one of helpValues.
func commandTree(g *globals) (root *cobra.Command) {
	at, known, title := map[string]*cobra.Command{}, verbs(), ""
	sections, _, _ := strings.Cut(helpText, "\n### ")
	for _, section := range strings.Split("\n"+strings.NewReplacer(helpValues()...).Replace(sections), "\n## ")[1:] {
		section, next, titled := strings.Cut(section, "\n# ")
		usage, section, _ := strings.Cut(section, "\n")
		short, section, _ := strings.Cut(section, "\n")
		long, example, _ := strings.Cut(section, "\nExamples:\n")
		words := strings.Fields(usage)
		n := slices.IndexFunc(words, func(word string) bool { return !unicode.IsLower(rune(word[0])) })
		if n < 0 {
			n = len(words)
		}
		above, names := strings.Join(words[:n-1], " "), strings.Split(words[n-1], "|")
		path := strings.TrimPrefix(above+" "+names[0], " ")
		cmd := &cobra.Command{
			Use: strings.Join(append(names[:1:1], words[n:]...), " "), Aliases: names[1:],
			Short: short, Long: strings.TrimSpace(long), Example: strings.TrimRight(example, "\n"),
		}
		if do := known[path]; do != nil {
			do(g, cmd)
		} else {
			cmd.Args, cmd.RunE, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, needsVerb, 2
		}
		switch {
		case root == nil:
			root = cmd
		case above == "":
			cmd.GroupID = title
			root.AddCommand(cmd)
		default:
			at[above].AddCommand(cmd)
		}
		at[path] = cmd
		if titled {
			title = strings.TrimSpace(next)
			root.AddGroup(&cobra.Group{ID: title, Title: title})
		}
	}
	return root
}

func newRootCommand() (*cobra.Command, *globals) {
	g := &globals{}
	root := commandTree(g)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		g.stderr = term.NewSpeaker(term.Bare(cmd.ErrOrStderr()))
		if err := g.validate(); err != nil {
			return err
		}
		if err := checkFlags(cmd); err != nil {
			return err
		}
		ctx, err := g.trace.begin(cmd.Context(), cmd)
		cmd.SetContext(ctx)
		if g.trace.span != nil && g.verbose {
			g.notice(g.stderr, "trace "+g.trace.span.SpanContext().TraceID().String())
		}
		return err
	}
	root.SetFlagErrorFunc(explainFlagError)
	g.addFlags(root.PersistentFlags())
	root.AddCommand(newGuardianCommand())
	root.Version = builtFrom().Version // for --version, which prints what version prints
	root.SetVersionTemplate(builtFrom().String())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCommand(root))
	root.SetHelpCommandGroupID("Set up")
	helptext.Install(root, func(w io.Writer) int { return term.StyleOf(w).Width })
	completeBelow(g, root)
	return root, g
}
