package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What flags say of each other is kept with them, and checked in one place before a command runs: a flag that would have no
// meaning is refused, and not ignored. Each prefix is followed by the name of the other flag; the value is why.
const (
	apartFrom   = "chubbyctl-apart-from "
	onlyWith    = "chubbyctl-only-with "
	onlyCommand = "chubbyctl-only-with-a-command"
	offIsZero   = "chubbyctl-off-if-zero"
)

// keepApart has a flag refused together with each of others. why is about the flag.
func keepApart(flags *pflag.FlagSet, flag, why string, others ...string) {
	for _, other := range others {
		annotate(flags, flag, apartFrom+other, why)
	}
}

// chooseOne has each two of some flags refused together.
func chooseOne(flags *pflag.FlagSet, why string, names ...string) {
	for i, name := range names {
		keepApart(flags, name, why+"; choose one", names[i+1:]...)
	}
}

// needsFlag has flags refused without another one. why is about that one.
func needsFlag(flags *pflag.FlagSet, other, why string, names ...string) {
	for _, name := range names {
		annotate(flags, name, onlyWith+other, why)
	}
}

// needsCommand has flags refused where no CMD is given behind --.
func needsCommand(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(flags, name, onlyCommand, "")
	}
}

// zeroIsOff has flags count as not given if they are given zero or nothing, their default: a script may always give them.
func zeroIsOff(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(flags, name, offIsZero, "")
	}
}

// annotate keeps something with a flag, which has to be there.
func annotate(flags *pflag.FlagSet, name, key, why string) {
	if err := flags.SetAnnotation(name, key, []string{why}); err != nil {
		panic(err) // the name is misspelt, in this program
	}
}

// checkFlags returns an error of usage if a flag was given that has no meaning beside another one, or without another one.
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
