package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}

// arguments turns the error of a cobra check into a usageError.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%s: %v; see '%s --help'", cmd.CommandPath(), err, cmd.CommandPath())
		}
		return nil
	}
}

// groupOf makes a command a group of others.
func groupOf(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, needsVerb, 2
	cmd.AddCommand(verbs...)
	return cmd
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

// completeFlag makes shells complete a flag with its words.
func completeFlag(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is missing, or has a completion: a mistake in this program
	}
}
