package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A replica of three is down while a newcomer takes the place of another one and becomes the master. It comes back, with the list of members that it had, and follows the
// newcomer; and when the third is killed, these two are a cell: also if both are killed then, and have nobody else to hear from.
func TestOneThatWasAwayFollowsANewcomer(t *testing.T) {
	t.Parallel()
	n := &newcomers{world: newWorld(t), procs: map[string]*process{}}
	for _, id := range []string{"r1", "r2", "r3"} {
		n.serve(id, 3, "--bootstrap")
	}
	n.must("put", "/ls/local/file", "before")
	master := n.status().Master
	var rest []string
	for _, id := range []string{"r1", "r2", "r3"} {
		if id != master {
			rest = append(rest, id)
		}
	}
	away, old := rest[0], rest[1]
	n.kill(away)
	n.serve("r4", 4, "--join")
	n.procs["r4"].waitFor("waiting to be added", readyLimit)
	n.must("cell", "replace", old, "r4", n.addresses("r4").raft)
	if code := n.procs[old].wait(20 * time.Second); code != 78 {
		t.Errorf("%s, which was replaced, exits with %d", old, code)
	}
	n.must("cell", "transfer", "--to", "r4")
	n.must("put", "/ls/local/file", "after")

	n.serve(away, 3)
	n.awaitFollower(away)
	n.kill(master)
	if got := n.must("cat", "/ls/local/file"); got != "after" {
		t.Errorf("two of three are left, and the file has %q", got)
	}
	n.kill(away)
	n.kill("r4")
	n.serve(away, 3)
	n.serve("r4", 4)
	if got := n.must("cat", "/ls/local/file"); got != "after" {
		t.Errorf("these two were killed, and the file has %q", got)
	}
}

// newcomers is a cell whose replicas have lists of members that nobody brings up to date.
type newcomers struct {
	*world
	procs map[string]*process
}

// addresses are those of a replica.
func (n *newcomers) addresses(id string) addresses {
	var i int
	_, _ = fmt.Sscanf(id, "r%d", &i) // the test's own IDs
	return addresses{client: fmt.Sprintf("127.0.0.1:%d", n.base+i-1), raft: fmt.Sprintf("127.0.0.1:%d", n.base+9+i)}
}

// serve starts a replica that is configured with r1 to the last one.
func (n *newcomers) serve(id string, last int, flags ...string) {
	n.t.Helper()
	var members []string
	for i := range last {
		other := fmt.Sprint("r", i+1)
		members = append(members, fmt.Sprintf("%s=%s,%s", other, n.addresses(other).client, n.addresses(other).raft))
	}
	cmd := command(bin("chubbyd"), append([]string{"serve", "--insecure", "--cell", "local", "--id", id,
		"--members", strings.Join(members, ";"), "--data", filepath.Join(n.dir, id)}, flags...)...)
	n.procs[id] = launch(n.t, cmd, (*exec.Cmd).Start)
}

func (n *newcomers) kill(id string) {
	n.t.Helper()
	if err := n.procs[id].cmd.Process.Kill(); err != nil {
		n.t.Fatal(err)
	}
	if code := n.procs[id].wait(20 * time.Second); code != 128+int(syscall.SIGKILL) {
		n.t.Errorf("%s, which was killed, exits with %d: %s", id, code, &n.procs[id].stderr)
	}
}

// awaitFollower waits until a replica follows the master, as the status of the cell has it.
func (n *newcomers) awaitFollower(id string) {
	n.t.Helper()
	for end := time.Now().Add(patience(60 * time.Second)); ; time.Sleep(200 * time.Millisecond) {
		var now status
		said := n.do("-o", "json", "cell", "status")
		_ = json.Unmarshal([]byte(said.out), &now) // there may be no master
		for _, r := range now.Replicas {
			if r.ID == id && r.Healthy && r.Role == "replica" {
				return
			}
		}
		if time.Now().After(end) {
			n.t.Fatalf("%s follows nobody: %s%s\n%s", id, said.out, said.err, &n.procs[id].stderr)
		}
	}
}
