package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// Relations between flags are stored with them, and checked in one place before a command runs: a meaningless
// flag is rejected, not ignored. Each prefix is followed by the other flag's name; the value is the reason.
const (
	apartFrom   = "chubbyctl-apart-from "
	onlyWith    = "chubbyctl-only-with "
	onlyCommand = "chubbyctl-only-with-a-command"
	offIsZero   = "chubbyctl-off-if-zero"
)

// keepApart rejects a flag together with each of others. why is about the flag.
func keepApart(flags *pflag.FlagSet, flag, why string, others ...string) {
	for _, other := range others {
		annotate(flags, flag, apartFrom+other, why)
	}
}

// chooseOne rejects any two of some flags together.
func chooseOne(flags *pflag.FlagSet, why string, names ...string) {
	for i, name := range names {
		keepApart(flags, name, why+"; choose one", names[i+1:]...)
	}
}

// needsFlag rejects flags without another one. why is about that one.
func needsFlag(flags *pflag.FlagSet, other, why string, names ...string) {
	for _, name := range names {
		annotate(flags, name, onlyWith+other, why)
	}
}

// needsCommand rejects flags without a CMD after --.
func needsCommand(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(flags, name, onlyCommand, "")
	}
}

// zeroIsOff treats flags with zero values, their default, as not given: a script may always pass them.
func zeroIsOff(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(flags, name, offIsZero, "")
	}
}

// annotate stores something with a flag, which must exist.
func annotate(flags *pflag.FlagSet, name, key, why string) {
	if err := flags.SetAnnotation(name, key, []string{why}); err != nil {
		panic(err) // the name is misspelt in this program
	}
}

// checkFlags returns a usage error for a flag that is meaningless with or without another one.
func checkFlags(cmd *cobra.Command) error {
	verb := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	for _, kind := range []string{apartFrom, onlyWith, onlyCommand} {
		var found error
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !isOn(f) {
				return
			}
			for _, key := range slices.Sorted(maps.Keys(f.Annotations)) {
				other, is := strings.CutPrefix(key, kind)
				switch why := f.Annotations[key][0]; {
				case !is || found != nil:
				case kind == apartFrom && isOn(cmd.Flags().Lookup(other)):
					found = usagef("%s: --%s and --%s do not go together: %s", verb, f.Name, other, why)
				case kind == onlyWith && !isOn(cmd.Flags().Lookup(other)):
					found = usagef("%s: --%s is for --%s, %s", verb, f.Name, other, why)
				case kind == onlyCommand && cmd.ArgsLenAtDash() < 0:
					found = usagef("%s: --%s is for a command, and there is none behind --", verb, f.Name)
				}
			}
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// isOn reports whether a flag was given, and not to turn it off.
func isOn(f *pflag.Flag) bool {
	_, zero := f.Annotations[offIsZero]
	return f.Changed && !(f.Value.Type() == "bool" && f.Value.String() == "false") && !(zero && f.Value.String() == f.DefValue)
}

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
