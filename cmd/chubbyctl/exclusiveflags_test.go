package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A flag that has no meaning beside another one, or without it, is refused, and both are named.
func TestFlagsThatDoNotGoTogether(t *testing.T) {
	for line, want := range map[string]string{
		"acquire a --try --wait 3s -- true":                 "--try and --wait",
		"acquire a --give-way --at-least 1m -- true":        "--give-way and --at-least",
		"acquire a --at-least 3s":                           "--at-least is for a command",
		"acquire a --safe-signal USR1":                      "--safe-signal is for a command",
		"members join up --retry":                           "--retry is for a command",
		"elect a --show --lease 3s":                         "--show and --lease",
		"elect a --observe --reason why":                    "--observe and --reason",
		"elect a --candidates --at-least 1m":                "--candidates and --at-least",
		"elect a --nominate b --retry":                      "--nominate and --retry",
		"elect a --show --value x":                          "--show and --value",
		"elect a --show --observe":                          "--observe and --show",
		"semaphore a --slots 3 --resize --lock-delay 0":     "--resize and --lock-delay",
		"semaphore a --slots 3 --resize --try":              "--resize and --try",
		"semaphore a --slots 3 --resize --sequencer-file f": "--resize and --sequencer-file",
		"locks --graph --watch":                             "--graph and --watch",
		"locks --every 3s":                                  "--every is for --watch",
		"locks --watch=false --times 3":                     "--times is for --watch",
		"drill failover --hard --to r2":                     "--hard and --to",
		"cp a b -r --if-generation 3":                       "--recursive and --if-generation",
		"cp a b --if-absent --if-generation 3":              "--if-absent and --if-generation",
		"put a b --ephemeral --if-generation 3":             "--ephemeral and --if-generation",
		"quota set --dir d --handles 3":                     "--dir and --handles",
		"watch a --initial":                                 "--initial is for --exec",
		"cell recover dir --from-removed":                   "--from-removed is for --to",
	} {
		_, err := execute(t, strings.NewReader(""), strings.Fields(line)...)
		if exitCode(err) != exitUsage || !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("chubbyctl %s: exit code %d (%v), want %q", line, exitCode(err), err, want)
		}
	}
	if _, err := execute(t, nil, "elect", "a", "--show=false", "--lease", "3s"); err == nil || !strings.Contains(err.Error(), "--value is missing") {
		t.Errorf("of a flag that is turned off: %v", err)
	}
}

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
