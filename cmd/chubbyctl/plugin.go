package main

import (
	"errors"
	"fmt"
	"io"
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
	"github.com/chubbylock/chubby/internal/tenure"
)

// plugin is the program of an unknown verb, and how to run it: chubbyctl-VERB, beside chubbyctl's own file or
// on PATH, as with git and kubectl; or chubbyctl-recipes, which gets the verb, too.
type plugin struct {
	path      string
	args, env []string
}

// recipesProgram is a program that comes with chubbyctl and has these verbs.
const recipesProgram = "chubbyctl-recipes"

func isRecipe(verb string) bool { return verb == "barrier" || verb == "queue" }

// runPlugin replaces this process by the program of a verb that root lacks. It returns nil without such a
// program: cobra knows the verb, or explains the fault. An error may be that of a program that ended, with any
// exit code.
func runPlugin(root *cobra.Command, args []string) error {
	p, err := findPlugin(root, args)
	if p == nil || err != nil {
		return err
	}
	return p.runInPlace()
}

// runInPlace replaces this process by the program. It returns only if it cannot; on Windows, where no system
// call does that, when the program has ended.
func (p *plugin) runInPlace() error {
	c := &exec.Cmd{Path: p.path, Args: append([]string{filepath.Base(p.path)}, p.args...), Env: p.env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	run := func() error { return syscall.Exec(c.Path, c.Args, c.Env) }
	if runtime.GOOS == "windows" {
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
	if isRecipe(verb) {
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
