package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// byHand is a cell whose replicas an operator starts by hand, with lists of members that nobody brings up to date.
type byHand struct {
	*world
	procs map[string]*process
}

// startThree starts r1 to r3, and writes a file.
func startThree(t *testing.T, contents string) *byHand {
	t.Helper()
	b := &byHand{world: newWorld(t), procs: map[string]*process{}}
	for _, id := range rollingIDs[:3] {
		b.serve(id, 3, "--bootstrap")
	}
	b.awaitMaster()
	b.must("put", "/ls/local/file", contents)
	return b
}

// serve starts a replica that is configured with r1 to the last one.
func (b *byHand) serve(id string, last int, flags ...string) *process {
	b.t.Helper()
	b.procs[id] = spawn(b.t, nil, bin("chubbyd"), append([]string{"serve", "--insecure", "--cell", "local", "--id", id,
		"--members", b.members(last), "--data", filepath.Join(b.dir, id)}, flags...)...)
	return b.procs[id]
}

// refused waits for a replica's end with exit code 78 and that message.
func (b *byHand) refused(id, want string) {
	b.t.Helper()
	if code := b.procs[id].wait(30 * time.Second); code != 78 || !strings.Contains(b.procs[id].stderr.String(), want) {
		b.t.Errorf("%s ended with %d, want 78, and %q in: %s", id, code, want, b.procs[id].stderr.String())
	}
}

func (b *byHand) kill(id string) {
	b.t.Helper()
	noErr(b.t, b.procs[id].cmd.Process.Kill())
	if code := b.procs[id].wait(20 * time.Second); code != 128+int(syscall.SIGKILL) {
		b.t.Errorf("%s, which was killed, exits with %d: %s", id, code, &b.procs[id].stderr)
	}
}

// TestMajorityOfDisksLost: r1 and r2 lose their disks and are started before r3,
// which has the data: no new cell begins over it.
func TestMajorityOfDisksLost(t *testing.T) {
	besideOthers(t)
	s := startThree(t, "old")
	for _, id := range rollingIDs[:3] {
		s.kill(id)
	}
	for _, id := range []string{"r1", "r2"} {
		noErr(t, os.RemoveAll(filepath.Join(s.dir, id)))
	}
	s.serve("r1", 3, "--bootstrap").waitFor("waiting for every member", 20*time.Second)
	s.serve("r2", 3, "--bootstrap").waitFor("waiting for every member", 20*time.Second)
	s.serve("r3", 3, "--bootstrap")
	s.refused("r1", "replica r1 lost its data: replica r3 knows")
	s.refused("r2", "replica r2 lost its data: replica r3 knows")
	if r := s.do("--timeout", "5s", "cat", "/ls/local/file"); r.code == 0 || !s.procs["r3"].running() {
		t.Errorf("r3 alone serves %q", r.out)
	}
}

// TestServeNeedsBootstrap: an empty directory is refused without --bootstrap, and
// one that waits for the other members can be stopped.
func TestServeNeedsBootstrap(t *testing.T) {
	besideOthers(t)
	dir, base := t.TempDir(), freePorts(t)
	args := []string{
		"serve", "--insecure", "--cell", "c", "--id", "r1", "--data", filepath.Join(dir, "r1"),
		"--members", fmt.Sprintf("r1=127.0.0.1:%d,127.0.0.1:%d;r2=127.0.0.1:%d,127.0.0.1:%d", base, base+1, base+2, base+3),
	}
	p := spawn(t, nil, bin("chubbyd"), args...)
	if code := p.wait(20 * time.Second); code != 78 || !strings.Contains(p.stderr.String(), "--bootstrap") {
		t.Errorf("ended with %d: %s", code, p.stderr.String())
	}
	p = spawn(t, nil, bin("chubbyd"), append(args, "--bootstrap")...)
	p.waitFor("r2 (", 20*time.Second)
	noErr(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.exits(t, 20*time.Second, 0, "stopped while it waited")
}

// A replica of three is down while a newcomer takes the place of another one and becomes the master. It comes back, with the list of members that it had, and follows the
// newcomer; and when the third is killed, these two are a cell: also if both are killed then, and have nobody else to hear from.
func TestOneThatWasAwayFollowsANewcomer(t *testing.T) {
	t.Parallel()
	n := startThree(t, "before")
	master := n.status().Master
	var rest []string
	for _, id := range rollingIDs[:3] {
		if id != master {
			rest = append(rest, id)
		}
	}
	away, old := rest[0], rest[1]
	n.kill(away)
	n.serve("r4", 4, "--join").waitFor("waiting to be added", readyLimit)
	n.must("cell", "replace", old, "r4", n.addressesOf(3).raft)
	n.procs[old].exits(t, 20*time.Second, 78, old)
	n.must("cell", "transfer", "--to", "r4")
	n.must("put", "/ls/local/file", "after")

	n.serve(away, 3)
	n.awaitFollower(away)
	n.kill(master)
	equal(t, n.must("cat", "/ls/local/file"), "after", "two of three are left, and the file has %q")
	n.kill(away)
	n.kill("r4")
	n.serve(away, 3)
	n.serve("r4", 4)
	equal(t, n.must("cat", "/ls/local/file"), "after", "these two were killed, and the file has %q")
}

// awaitFollower waits until a replica follows the master, as the status of the cell has it.
func (b *byHand) awaitFollower(id string) {
	b.t.Helper()
	for end := time.Now().Add(patience(60 * time.Second)); ; time.Sleep(200 * time.Millisecond) {
		var now status
		said := b.do("-o", "json", "cell", "status")
		_ = json.Unmarshal([]byte(said.out), &now) // there may be no master
		for _, r := range now.Replicas {
			if r.ID == id && r.Healthy && r.Role == "replica" {
				return
			}
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s follows nobody: %s%s\n%s", id, said.out, said.err, &b.procs[id].stderr)
		}
	}
}

// Spares take the places of dead replicas by themselves, in a cell under load: of one that was killed and whose disk is lost, and of the
// master. No acknowledged change is lost, no session, and no lock has two holders; a server with a guard, which the holders use, lets in no
// request of an earlier holder. Who was replaced does not come back.
func TestSparesReplaceTheDead(t *testing.T) {
	t.Parallel()
	r := startReplaced(t)
	defer r.end()
	spares := map[string]*process{"r6": r.standBy("r6", 0), "r7": r.standBy("r7", 1)}
	r.check("two stand by")

	left := slices.Clone(rollingIDs)
	dead := r.follower(thisVersion())
	for i, what := range []string{"one whose disk is lost", "the master"} {
		if i > 0 {
			dead = r.master()
		}
		r.endReplica(dead, syscall.SIGKILL)
		began := time.Now()
		if i == 0 {
			r.loseDisk(dead)
		}
		id := r.spareInPlaceOf(dead, spares)
		t.Logf("the spare %s has the place of %s, %s, after %v", id, dead, what, time.Since(began).Round(time.Millisecond))
		if p := r.serveAt(dead, r.has[dead]); p.wait(20*time.Second) != 78 {
			t.Errorf("%s, %s, comes back: %s", dead, what, &p.stderr)
		}
		r.settle(dead, id, spares[id])
		delete(spares, id)
		left = slices.DeleteFunc(left, func(id string) bool { return id == dead })
		r.check(what)
	}
	r.checkAll(left...)
}

// standBy adds the i-th spare.
func (r *replaced) standBy(id string, i int) *process {
	r.t.Helper()
	r.has[id] = r.addressesOf(len(rollingIDs) + i)
	p := r.serveAt(id, r.has[id], "--spare")
	p.waitFor("waiting to be added", readyLimit)
	r.must("cell", "add", id, r.has[id].raft, "--spare")
	return p
}

// spareInPlaceOf waits until the cell has not this replica any more, and one of the spares is a replica as every other. It returns the spare.
func (r *replaced) spareInPlaceOf(dead string, spares map[string]*process) string {
	r.t.Helper()
	for end := time.Now().Add(patience(90 * time.Second)); ; time.Sleep(200 * time.Millisecond) {
		now := r.do("cell", "members")
		if now.code == 0 && !strings.Contains(now.out, dead+" ") {
			for line := range strings.Lines(now.out) {
				if id := strings.Fields(line)[0]; spares[id] != nil && !strings.Contains(line, "spare") {
					return id
				}
			}
		}
		stopIf(r.t, time.Now().After(end), "no spare takes the place of %s: %s%s", dead, now.out, now.err)
	}
}
