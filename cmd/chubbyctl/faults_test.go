package main

import (
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// fault is a command line against a cell that does not exist, its exit code, and what is said.
type fault struct {
	line string
	code int
	said string
}

func (f fault) check(t *testing.T) {
	t.Helper()
	_, err := execute(t, strings.NewReader(""), split(t, f.line)...)
	if exitCode(err) != f.code || err == nil || !strings.Contains(err.Error(), f.said) {
		t.Errorf("chubbyctl %.90s: exit code %d (%v), want %d with %q", f.line, exitCode(err), err, f.code, f.said)
	}
}

// Errors in a command line are found before the cell is asked, and say what to write instead. A cell that cannot be reached is no such
// error.
func TestCommandLineFaults(t *testing.T) {
	long := strings.Repeat("x", api.MaxReason+1)
	for _, f := range []fault{
		{"", 2, "needs one of the commands"},
		{"-o xml ls", 2, "want text, wide, json or yaml"},
		{"--timeout 0s ls", 2, "--timeout"},
		{"ls a b", 2, "is not expected"},
		{"cat ls/local/motd", 2, "a path begins with /ls/"},
		{"cat /ls/local/a//b", 2, "is empty"},
		{"put /ls/local/a", 2, "standard input"},
		{"put /ls/local/a b c", 2, "standard input"},
		{"tree --depth 0", 2, "--depth"},
		{"acquire", 2, "which lock?"},
		{"lock acquire a", 2, "'chubbyctl acquire PATH -- CMD'"},
		{"acquire /ls/local/a --try --busy-exit-code 256 -- true", 2, "want 0 to 255"},
		{"acquire /ls/local/a --", 2, "no command behind --"},
		{"acquire /ls/local -- true", 2, "root directory"},
		{"acquire /ls/local/a --wait -3s -- true", 2, "--wait"},
		{"acquire /ls/local/a --lease 500ms -- true", 2, "--lease"},
		{"acquire /ls/local/a --lock-delay 61s -- true", 2, "--lock-delay"},
		{"acquire /ls/local/a --kill-after -1s -- true", 2, "--kill-after"},
		{"acquire /ls/local/a --reason " + long, 2, "--reason"},
		{"acquire /ls/local/a --jeopardy-signal NONE -- true", 2, "not a signal"},
		{"acquire /ls/local/a --jeopardy-signal USR1", 2, "for a command"},
		{"acquire /ls/local/a --at-least -1s -- true", 2, "--at-least"},
		{"acquire /ls/local/a --safe-signal NONE -- true", 2, "--safe-signal"},
		{"acquire /ls/local/a -- /dev/null", 126, "not executable"},
		{"acquire /ls/local/a /ls/local -- true", 2, "root directory"},
		{"acquire /ls/local/a /ls/local/b /ls/local/a -- true", 2, "is there twice"},
		{"acquire /ls/local/a /ls/foo/a -- true", 2, "different cells"},
		{"acquire /ls/local/a /ls/local/b --sequencer-file x -- true", 2, "--sequencer-file"},
		{"semaphore", 2, "which directory?"},
		{"semaphore /ls/local/a /ls/local/b --slots 1 -- true", 2, "put -- before the command"},
		{"semaphore /ls/local/a --slots 101 -- true", 2, "--slots"},
		{"semaphore /ls/local/a --slots 0 -- true", 2, "--slots"},
		{"semaphore /ls/local/a --slots 1 --resize -- true", 2, "--resize"},
		{"semaphore /ls/local --slots 1 --resize", 2, "root directory"},
		{"members join", 2, "which directory?"},
		{"members join /ls/local/up --name a/b -- true", 2, "--name"},
		{"members join /ls/local/up --name= -- true", 2, "--name"},
		{"members join /ls/local/up --lease 500ms -- true", 2, "--lease"},
		{"elect /ls/local/a --show -- true", 2, "runs no command"},
		{"elect /ls/local/a --value x --name a/b", 2, "--name"},
		{"elect /ls/local/a --value x --name ..", 2, "--name"},
		{"elect /ls/local/acl/ops --value x", 2, "access control list"},
		{"elect /ls/local/a --observe=false", 2, "--value is missing"},
		{"elect /ls/local/a --candidates=false --value x -- no-such-command-anywhere", 127, "not found"},
		{"cell status a/b", 2, "not a cell's name"},
	} {
		f.check(t)
	}
}

func TestFaultsOfSomeVerbs(t *testing.T) {
	long := strings.Repeat("x", api.MaxReason+1)
	for _, f := range []fault{
		// What is taken away.
		{"lock break ./deploy --reason x --yes", 2, "relative"},
		{"lock break /ls/local/a --yes", 2, "--reason"},
		{"lock break /ls/local/a --yes --reason=", 2, "--reason"},
		{"lock break /ls/local/a --yes --reason " + long, 2, "at most 256"},
		{"lock break /ls/local/a --reason x", 2, "nothing was done without --yes"},
		{"session show x", 2, "s42 or 42"},
		{"session show s0", 2, "s42 or 42"},
		{"session show 42 a/b", 2, "not a cell's name"},
		{"session end s42 --yes", 2, "--reason"},
		{"session end s42 --reason x", 2, "nothing was done without --yes"},
		{"session end ss42 --reason x --yes", 2, "s42 or 42"},
		// Access control lists.
		{"acl get ./svc", 2, "relative"},
		{"acl set /ls/local/a", 2, "nothing to change"},
		{"acl set /ls/local/a --if-generation 3", 2, "nothing to change"},
		{"acl set /ls/local/a --read=", 2, "--read"},
		{"acl set /ls/local/a --write a/b", 2, "slash"},
		{"acl set /ls/local/a --change ..", 2, "relative"},
		{"acl file ls a/b", 2, "not a cell's name"},
		{"acl file cat a/b", 2, "slash"},
		{"acl file cat /ls/local/a", 2, "/ls/local/acl"},
		{"acl file cat /ls/local/acl/a/b", 2, "/ls/local/acl"},
		{"acl file rm .", 2, "relative"},
		{"acl file put ops alice bob", 2, "is not expected"},
		{"acl file put ops @", 2, "line 1"},
		// Watches.
		{"watch /ls/local/a /ls/local/a", 2, "there twice"},
		{"watch /ls/local/a /ls/foo/a", 2, "in different cells"},
		{"watch ./motd", 2, "relative"},
		{"watch /ls/local/a --contents", 2, "-o json and for --exec"},
		{"watch /ls/local/a --count 0", 2, "--count 0"},
		{"watch /ls/local/a --exec=", 2, "no command"},
		{"watch /ls/local/a --contents=hex -o json", 2, "base64"},
		{"watch /ls/local/a --exec date --settle -1s", 2, "--settle -1s"},
		{"watch /ls/local/a --exec date --settle-at-most 3s", 2, "for --settle"},
		{"watch /ls/local/a --exec date --settle 3s --settle-at-most 2s", 2, "or longer"},
		{"watch /ls/local/a --tree --children", 2, "do not go together"},
		{"watch /ls/local/a --tree --events lock-acquired", 2, "want some of contents-modified, child-added, child-removed"},
		{"watch /ls/local/a --events=", 2, "want one or more of contents-modified"},
		{"watch /ls/local/a --events events-lost", 2, "told in any case"},
		// Quotas.
		{"quota ls a/b", 2, "not a cell's name"},
		{"quota set --nodes 3", 2, "--principal or --dir"},
		{"quota set --principal ci --dir /ls/local/a --nodes 3", 2, "one of them"},
		{"quota set --principal ci", 2, "which amount?"},
		{"quota set --principal= --nodes 3", 2, "1 to 255"},
		{"quota set --principal ci --nodes -1", 2, "negative"},
		{"quota set --principal ci --nodes x", 2, "--nodes"},
		{"quota set --dir ./a --nodes 3", 2, "relative"},
		{"quota set --dir= --nodes 3", 2, "path"},
		{"quota set --dir /ls/local/a --handles 3", 2, "nodes and bytes only"},
		{"quota set foo --dir /ls/local/a --nodes 3", 2, "names its cell"},
		{"quota set a/b --principal ci --nodes 3", 2, "not a cell's name"},
		{"quota set foo --principal ci --nodes 0", 69, ""},
		{"quota set --dir /ls/local/a --bytes 1GiB", 69, ""},
	} {
		f.check(t)
	}
}

// A flag that has no meaning beside another one, or without it, is refused, and both are named.
func TestFlagsThatDoNotGoTogether(t *testing.T) {
	const seq = "chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h"
	for _, f := range []fault{
		{"acquire a --give-way --at-least 1m -- true", 2, "--give-way and --at-least"},
		{"acquire a --safe-signal USR1", 2, "--safe-signal is for a command"},
		{"members join up --retry", 2, "--retry is for a command"},
		{"elect a --observe --reason why", 2, "--observe and --reason"},
		{"elect a --candidates --at-least 1m", 2, "--candidates and --at-least"},
		{"elect a --nominate b --retry", 2, "--nominate and --retry"},
		{"elect a --show --value x", 2, "--show and --value"},
		{"elect a --show --observe", 2, "--observe and --show"},
		{"semaphore a --slots 3 --resize --lock-delay 0", 2, "--resize and --lock-delay"},
		{"semaphore a --slots 3 --resize --try", 2, "--resize and --try"},
		{"semaphore a --slots 3 --resize --sequencer-file f", 2, "--resize and --sequencer-file"},
		{"locks --graph --watch", 2, "--graph and --watch"},
		{"locks --every 3s", 2, "--every is for --watch"},
		{"drill failover --hard --to r2", 2, "--hard and --to"},
		{"cp a b --if-absent --if-generation 3", 2, "--if-absent and --if-generation"},
		{"quota set --dir d --handles 3", 2, "--dir and --handles"},
		{"watch a --initial", 2, "--initial is for --exec"},
		{"elect a --show=false --lease 3s", 2, "--value is missing"},
		// A text that is no sequencer, above all the empty one of a variable that is not set, must not make a change unconditional.
		{"put /ls/local/a x --if-sequencer ''", 3, "empty"},
		{"put /ls/local/a x --if-sequencer junk", 3, "not a sequencer"},
		{"put /ls/local/a x --if-sequencer " + seq, 69, ""},
		{"put /ls/local/a x --if-sequencer " + seq + " --if-generation 3", 69, ""},
		{"put /ls/local/a x --if-sequencer '' --ephemeral", 3, "empty"},
		{"put /ls/local/a x --if-sequencer '' --if-absent", 3, "empty"},
		{"rm /ls/local/a --if-sequencer ''", 3, "empty"},
		{"rm /ls/local/a --if-sequencer junk", 3, "not a sequencer"},
		{"rm /ls/local/a --if-sequencer " + seq, 69, ""},
		{"sequencer check " + seq, 69, ""}, // nothing is known of it
	} {
		f.check(t)
	}
}
