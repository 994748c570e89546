package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/client"
)

// Each of the five replicas of a cell under load is replaced by a new one, on other addresses: one that was killed and has
// lost its disk, one that runs, the master, one that is stopped and comes back, and the last while masters die.
// Then a spare takes the place of a dead master by itself. No acknowledged change is lost, no session, and no lock has two holders; a server
// with a guard, which they use, lets in no request of an earlier holder, and the holder always. The clients go on that were configured with those of before.
func TestEveryReplicaIsReplaced(t *testing.T) {
	t.Parallel()
	r := &replaced{rollingCell: startRollingCell(t, thisVersion()), has: map[string]addresses{}}
	for i, id := range rollingIDs {
		r.has[id] = r.addressesOf(i)
	}
	reader := r.newClient(client.Config{NoCache: true})
	holders := r.startHolders(thisVersion())
	traffic := startTraffic(t, r.rollingCell, thisVersion())
	traffic.contend()
	files := traffic.writeFiles("/ls/local/files")
	history, first := traffic.compareAndSwap("/ls/local/register")
	defer r.end(files.release, holders.release, holders.ephemeral)
	defer traffic.stop()
	check := func(what string) {
		t.Helper()
		r.waitCaughtUp()
		holders.check(t, thisVersion())
		traffic.killGuard()
		traffic.check()
		r.stopIfFailed()
		t.Log(what)
	}
	check("all is well")

	r.endReplica("r1", syscall.SIGKILL)
	if err := os.RemoveAll(filepath.Join(r.dir, "r1")); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--bootstrap"}, {"--join"}} {
		if p := r.serveAt("r1", r.has["r1"], flags...); p.wait(20*time.Second) != 78 {
			t.Errorf("a replica that has lost its disk, with %q, is not refused: %s", flags, &p.stderr)
		}
	}
	r.replaceBy("r1", 0)
	check("the dead one, whose disk is lost")
	r.replaceBy("r2", 1)
	check("one that runs")
	r.transfer("r3")
	r.replaceBy("r3", 2)
	check("the master")
	if err := r.procs["r4"].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.replaceBy("r4", 3)
	check("one that was stopped, and comes back")
	joins := r.serveNew("r10", 4)
	dying := make(chan struct{})
	go func() {
		defer close(dying)
		for range 3 {
			time.Sleep(400 * time.Millisecond)
			if s, err := r.status(); err == nil && s.Master != "r5" && s.Master != "r10" {
				r.endReplica(s.Master, syscall.SIGKILL)
				r.procs[s.Master] = r.serveAt(s.Master, r.has[s.Master])
			}
		}
	}()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		now := r.do("cell", "replace", "r5", "r10", r.has["r10"].raft)
		if now.code == 0 || strings.Contains(now.err, "never used again") { // the answer was lost
			break
		}
		if time.Now().After(end) {
			t.Fatalf("r5 is not replaced: %s", now.err)
		}
	}
	<-dying
	r.settle("r5", "r10", joins)
	check("the last, while masters die")
	r.spareInPlaceOfMaster("r11")
	check("a master that is dead, by a spare")

	for _, id := range r.ids() {
		if slices.Contains(rollingIDs, id) {
			t.Errorf("%s is still there", id)
		}
	}
	traffic.stop()
	traffic.check()
	traffic.guard.check()
	r.checkHashes()
	if err := errors.Join(files.checkFiles(t.Context(), reader), history.check(first)); err != nil {
		t.Error(err)
	}
}

// addresses are those of a replica.
type addresses struct{ client, raft string }

// replaced is a cell whose replicas are replaced by others.
type replaced struct {
	*rollingCell
	has map[string]addresses
}

// addressesOf returns the addresses of the i-th replica that the cell has ever had.
func (r *replaced) addressesOf(i int) addresses {
	return addresses{client: fmt.Sprintf("127.0.0.1:%d", r.base+i), raft: fmt.Sprintf("127.0.0.1:%d", r.base+10+i)}
}

// ids are the replicas that run, in order.
func (r *replaced) ids() (ids []string) {
	for id := range r.procs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// serveAt starts a replica.
func (r *replaced) serveAt(id string, at addresses, flags ...string) *process {
	r.t.Helper()
	var members []string
	for other, has := range r.has {
		members = append(members, fmt.Sprintf("%s=%s,%s", other, has.client, has.raft))
	}
	cmd := command(bin("chubbyd"), append([]string{"serve", "--insecure", "--insecure-principals", "--cell", "local", "--id", id,
		"--members", strings.Join(members, ";"), "--data", filepath.Join(r.dir, id), "--replace-after", cell.MinReplaceAfter.String()}, flags...)...)
	return launch(r.t, cmd, (*exec.Cmd).Start)
}

// serveNew starts the replica that is to take the place of the i-th.
func (r *replaced) serveNew(id string, i int) *process {
	r.t.Helper()
	r.has[id] = r.addressesOf(len(rollingIDs) + i)
	return r.serveAt(id, r.has[id], "--join")
}

// replaceBy puts a new replica in the place of the i-th.
func (r *replaced) replaceBy(old string, i int) {
	r.t.Helper()
	began := time.Now()
	id := fmt.Sprint("r", len(rollingIDs)+1+i)
	joins := r.serveNew(id, i)
	joins.waitFor("waiting to be added", 20*time.Second)
	r.must("cell", "replace", old, id, r.has[id].raft)
	r.settle(old, id, joins)
	r.t.Logf("%s has the place of %s after %v", id, old, time.Since(began).Round(time.Millisecond))
}

// spareInPlaceOfMaster adds a spare, on the machine of the first replica, and kills the master.
func (r *replaced) spareInPlaceOfMaster(id string) {
	r.t.Helper()
	r.has[id] = r.addressesOf(0)
	spare := r.serveAt(id, r.has[id], "--spare")
	spare.waitFor("waiting to be added", 20*time.Second)
	r.must("cell", "add", id, r.has[id].raft, "--spare")
	s, err := r.status()
	if err != nil {
		r.t.Fatal(err)
	}
	r.endReplica(s.Master, syscall.SIGKILL)
	began := time.Now()
	for now := r.do("cell", "members"); now.code != 0 || strings.Contains(now.out, s.Master+" "); now = r.do("cell", "members") {
		if time.Since(began) > 90*time.Second {
			r.t.Fatalf("the spare does not take the place of %s: %s%s", s.Master, now.out, now.err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.t.Logf("%s has the place of the master %s after %v", id, s.Master, time.Since(began).Round(time.Millisecond))
	r.settle(s.Master, id, spare)
}

// settle waits for the end of a replica that was replaced, if it runs, and looks at the cell through those that it has now.
func (r *replaced) settle(old, id string, joined *process) {
	r.t.Helper()
	p := r.procs[old]
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	if code := p.wait(30 * time.Second); code != 78 && code != 137 { // 137: it was killed
		r.t.Errorf("%s, which was removed, exits with %d: %s", old, code, &p.stderr)
	}
	delete(r.procs, old)
	delete(r.has, old)
	r.procs[id], r.rollingCell.has[id] = joined, thisVersion()
	var now []string
	for _, one := range r.ids() {
		now = append(now, r.has[one].client)
	}
	servers := strings.Join(now, ",")
	r.moved.Store(&servers)
	dialed, err := client.Dial(r.t.Context(), client.Config{Servers: now})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = dialed.Close() })
	r.cell = dialed
	if !joined.running() {
		r.t.Fatal(errors.New(joined.stderr.String()))
	}
}
