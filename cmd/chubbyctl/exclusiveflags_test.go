package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A flag that is given to turn it off is as none, and so is one that only bounds what there is not.
func TestFlagsThatGoTogether(t *testing.T) {
	for _, line := range []string{
		"acquire a --kill-after 5s", "members join up --kill-after 5s", "acquire a --shared --try --lock-delay 5s --lease 20s --reason why --kill-after 3s",
		"acquire a --at-least 0", "acquire a --give-way --at-least 0s", "acquire a --jeopardy-signal= --safe-signal=", "acquire a --retry=false",
		"acquire a --try=false --wait 3s", "acquire a --give-way --ask=false", "elect a --show --reason= --sequencer-file= --at-least 0", "elect a --nominate b --yield=false",
		"semaphore a --slots 3 --resize=false --try", "locks --watch=false", "drill failover --hard --to=", "put a b --ephemeral --if-absent", "put a b --if-absent --if-sequencer s", "cp -r a b --if-absent",
	} {
		root, _ := newRootCommand()
		cmd, rest, err := root.Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cmd.ParseFlags(rest), checkFlags(cmd)); err != nil {
			t.Errorf("chubbyctl %s: %v", line, err)
		}
	}
}

// What flags say of each other is about flags that there are.
func TestFlagsAreKeptApartFromThoseThatThereAre(t *testing.T) {
	root, _ := newRootCommand()
	var below func(cmd *cobra.Command)
	below = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for key := range f.Annotations {
				for _, prefix := range []string{apartFrom, onlyWith} {
					if other, is := strings.CutPrefix(key, prefix); is && (cmd.Flags().Lookup(other) == nil || other == f.Name) {
						t.Errorf("%s: --%s is about --%s, which there is not", cmd.CommandPath(), f.Name, other)
					}
				}
			}
		})
		for _, child := range cmd.Commands() {
			below(child)
		}
	}
	below(root)
}

// A group without one of its commands has the same manner everywhere: people are shown its help, and programs get one object.
func TestGroupsWithoutACommand(t *testing.T) {
	root, _ := newRootCommand()
	groups := 0
	var below func(cmd *cobra.Command)
	below = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			below(child)
		}
		if !cmd.HasSubCommands() || strings.Contains(cmd.Use, " ") { // cell backup does something itself
			return
		}
		groups++
		path := strings.Fields(cmd.CommandPath())[1:]
		out, err := execute(t, nil, append(path, "-o", "json")...)
		first := cmd.Commands()[0].Name()
		if exitCode(err) != exitUsage || out != "" || !strings.Contains(err.Error(), first) {
			t.Errorf("chubbyctl %s -o json: %v; it prints %q", strings.Join(path, " "), err, out)
		}
		out, err = execute(t, nil, path...)
		if exitCode(err) != exitUsage || !strings.Contains(out, "Available Commands") || !strings.Contains(err.Error(), "needs one of the commands above") {
			t.Errorf("chubbyctl %s: %v; it prints %q", strings.Join(path, " "), err, out)
		}
	}
	below(root)
	if groups < 10 {
		t.Errorf("%d groups were looked at", groups)
	}
	var errors bytes.Buffer
	g := &globals{output: "json"}
	_, err := execute(t, nil, "config", "-o", "json")
	g.printError(&errors, err)
	mustHave(t, errors.Bytes(), "error error.code error.message error.exit")
}

// help.txt has a section for each verb, and a verb or commands below it for each section; each word in %[] has a value.
func TestHelpTextHasEveryVerb(t *testing.T) {
	left := verbs()
	for _, cmd := range commands() {
		path := relative(cmd)
		if left[path] == nil && !cmd.HasSubCommands() && cmd.Name() != "help" {
			t.Errorf("help.txt: %q does nothing", path)
		}
		delete(left, path)
		if text := cmd.Short + cmd.Long + cmd.Example; strings.Contains(text, "%[") {
			t.Errorf("help.txt: %s: a word in %%[] has no value", path)
		}
	}
	for path := range left {
		t.Errorf("help.txt: the verb %q has no section", path)
	}
}
