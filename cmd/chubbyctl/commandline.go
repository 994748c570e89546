package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/tenure"
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
		wanted := map[string]string{ // if the type's own error does not say it
			"duration": "a duration with its unit, as in 500ms, 10s or 2m", "int": "a whole number",
			"uint64": "a whole number, not below 0", "float64": "a number",
		}[value.GetFlag().Value.Type()]
		if wanted != "" {
			return usagef("--%s %q: want %s; %s", value.GetFlag().Name, value.GetValue(), wanted, advice)
		}
		return usagef("--%s %q: %v; %s", value.GetFlag().Name, value.GetValue(), errors.Unwrap(value), advice)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		if meant := meaningOf(cmd.Name() + "/-" + unknown.GetSpecifiedName()); meant != "" {
			advice = meant
		}
	case errors.As(err, &unknown):
		names := &cobra.Command{SuggestionsMinimumDistance: 2} // flags are similar as commands are
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		})
		if near := names.SuggestionsFor(unknown.GetSpecifiedName()); len(near) > 0 {
			advice = "did you mean --" + strings.Join(near, " or --") + "?"
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

// plugin is the program of an unknown verb, and how to run it: chubbyctl-VERB, beside chubbyctl's own file or
// on PATH, as with git and kubectl; or chubbyctl-recipes, which gets the verb, too.
type plugin struct {
	path      string
	args, env []string
}

// recipesProgram is a program that comes with chubbyctl and has these verbs.
const recipesProgram = "chubbyctl-recipes"

// runPlugin replaces this process by the program of a verb that root lacks. It returns nil without such a
// program: cobra knows the verb, or explains the fault. An error may be that of a program that ended, with any
// exit code.
func runPlugin(root *cobra.Command, args []string) error {
	p, err := findPlugin(root, args)
	if p == nil || err != nil {
		return err
	}
	c := &exec.Cmd{Path: p.path, Args: append([]string{filepath.Base(p.path)}, p.args...), Env: p.env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	run := func() error { return syscall.Exec(c.Path, c.Args, c.Env) }
	if runtime.GOOS == "windows" { // no system call does that
		run = c.Run
	}
	if err := run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return fmt.Errorf("run %s: %w", p.path, err)
	}
	return &exitError{code: c.ProcessState.ExitCode()}
}

// findPlugin returns the program for a command line, if there is one. The program gets all arguments except its
// verb: it knows the global flags, in any place. Its environment has the default cell, and the certificates of
// a cell of 'chubbyd dev' here.
func findPlugin(root *cobra.Command, args []string) (*plugin, error) {
	var given globals
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SetInterspersed(false)
	given.addFlags(flags)
	if flags.Parse(args) != nil || flags.NArg() == 0 {
		return nil, nil //nolint:nilerr // cobra says what is wrong
	}
	before, rest := args[:len(args)-flags.NArg()], flags.Args()
	switch asked := rest[0]; {
	case asked == "help" && len(rest) > 1:
		rest = append(slices.Clone(rest[1:]), "--help")
	case (asked == cobra.ShellCompRequestCmd || asked == cobra.ShellCompNoDescRequestCmd) && len(rest) > 2:
		before, rest = append(slices.Clone(before), asked), rest[1:]
	}
	verb := rest[0]
	isKnown := func(cmd *cobra.Command) bool { return cmd.Name() == verb || cmd.HasAlias(verb) }
	isOther := func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	if strings.ContainsFunc(verb, isOther) || verb == "help" || slices.ContainsFunc(root.Commands(), isKnown) {
		return nil, nil
	}
	name, own := "chubbyctl-"+verb, rest[1:]
	if verb == "barrier" || verb == "queue" {
		name, own = recipesProgram, rest
	}
	path := findProgram(name)
	switch {
	case path == "" && name == recipesProgram:
		return nil, usagef("'chubbyctl %s' is a program of its own, %s, which is neither beside chubbyctl nor on PATH; "+
			"'go install github.com/chubbylock/chubby/contrib/recipes/cmd/%s@latest' installs it", verb, name, name)
	case path == "":
		return nil, nil
	}
	cell, err := given.defaultCell()
	if err != nil {
		return nil, err
	}
	env := []string{"CHUBBY_CELL=" + cell}
	if dev := given.tlsFiles(cell); given.tls == (client.TLSFiles{}) && dev != given.tls && len(client.ConfiguredCells()) == 0 {
		env = append(env, "CHUBBY_CACERT="+dev.CA, "CHUBBY_CERT="+dev.Cert, "CHUBBY_KEY="+dev.Key)
	}
	return &plugin{path, append(slices.Clone(before), own...), tenure.Environment(env...)}, nil
}

// findProgram returns the path of a program, or "".
func findProgram(name string) string {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil { // or it is only in the current directory
		return ""
	}
	return path
}
