package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// explainFlagError explains the fault of a flag, and the alternative.
func explainFlagError(cmd *cobra.Command, err error) error {
	var (
		value   *pflag.InvalidValueError
		unknown *pflag.NotExistError
	)
	advice := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	switch {
	case errors.As(err, &value):
		if wanted := wantedOf(value.GetFlag().Value.Type()); wanted != "" {
			return usagef("--%s %q: want %s; %s", value.GetFlag().Name, value.GetValue(), wanted, advice)
		}
		return usagef("--%s %q: %v; %s", value.GetFlag().Name, value.GetValue(), errors.Unwrap(value), advice)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		if meant := meaningOfShorthand(cmd.Name(), unknown.GetSpecifiedName()); meant != "" {
			advice = meant
		}
	case errors.As(err, &unknown):
		if near := flagsLike(cmd, unknown.GetSpecifiedName()); len(near) > 0 {
			advice = "did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	return usagef("%v; %s", err, advice)
}

// formatAskedFor returns the value of -o in an invalid command line, or "": programs read that error too.
func formatAskedFor(args []string) (asked term.Format) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.SetOutput(io.Discard)
	flags.StringVarP((*string)(&asked), "output", "o", "", "")
	_ = flags.Parse(args) // there is an error already
	return asked
}

// meaningOfShorthand returns the alternative to a flag that the same command has in another program.
func meaningOfShorthand(command, letter string) string {
	switch command + " -" + letter {
	case "rm -R":
		return "'chubbyctl rm -r PATH' deletes a directory with everything below it"
	case "rm -f":
		return "'chubbyctl rm --yes' asks for nothing more"
	case "ls -r":
		return "'chubbyctl ls -R PATH' lists everything below a directory"
	case "ls -a", "ls -A":
		return "ls hides nothing"
	case "cat -n":
		return "cat writes the bytes as they are; pipe them into 'cat -n'"
	case "cp -R", "cp -a":
		return "'chubbyctl cp -r SRC DST' copies a directory with everything below it"
	}
	return ""
}

// wantedOf says how to write a value of a type, or "" if the type's own error says it.
func wantedOf(kind string) string {
	switch kind {
	case "duration":
		return "a duration with its unit, as in 500ms, 10s or 2m"
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number, not below 0"
	case "float64":
		return "a number"
	}
	return ""
}

// flagsLike returns a command's flags similar to a name, as cobra finds similar commands.
func flagsLike(cmd *cobra.Command, name string) []string {
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	near := names.SuggestionsFor(name)
	for i, one := range near {
		near[i] = "--" + one
	}
	return near
}
