package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
