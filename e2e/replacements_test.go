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
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
)

// Each of the five replicas of a cell under load is replaced by a new one, on other addresses: one that was killed and has
// lost its disk, one that runs, the master, one that is stopped and comes back, and the last while masters die.
// No acknowledged change is lost, no session, and no lock has two holders; a server
// with a guard, which they use, lets in no request of an earlier holder, and the holder always. The clients go on that were configured with those of before.
func TestEveryReplicaIsReplaced(t *testing.T) {
	t.Parallel()
	r := startReplaced(t)
	defer r.end()

	r.endReplica("r1", syscall.SIGKILL)
	r.loseDisk("r1")
	r.replaceBy("r1", 0)
	r.check("the dead one, whose disk is lost")
	r.replaceBy("r2", 1)
	r.check("one that runs")
	r.transfer("r3")
	r.replaceBy("r3", 2)
	r.check("the master")
	processes.Halt(t, r.procs["r4"].cmd.Process.Pid)
	r.replaceBy("r4", 3)
	r.check("one that was stopped, and comes back")
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
	for end := time.Now().Add(patience(60 * time.Second)); ; time.Sleep(200 * time.Millisecond) {
		now := r.do("cell", "replace", "r5", "r10", r.has["r10"].raft)
		if now.code == 0 || strings.Contains(now.err, "never used again") { // the answer was lost
			break
		}
		stopIf(t, time.Now().After(end), "r5 is not replaced: %s", now.err)
	}
	<-dying
	r.settle("r5", "r10", joins)
	r.check("the last, while masters die")
	r.checkAll()
}

// addresses are those of a replica.
type addresses struct{ client, raft string }

// replaced is a cell under load whose replicas are replaced by others.
type replaced struct {
	*rollingCell
	has map[string]addresses

	holders *holders
	traffic *traffic
	files   *fileSet
	history *history
	first   operation      // of the history
	reader  *client.Client // without a cache
}

// startReplaced starts a cell of five, and its clients.
func startReplaced(t *testing.T) *replaced {
	t.Helper()
	r := &replaced{rollingCell: startRollingCell(t, thisVersion()), has: map[string]addresses{}}
	for i, id := range rollingIDs {
		r.has[id] = r.addressesOf(i)
	}
	r.reader = r.newClient(client.Config{NoCache: true})
	r.holders = r.startHolders(thisVersion())
	r.traffic = startTraffic(t, r.rollingCell, thisVersion())
	r.traffic.contend()
	r.files = r.traffic.writeFiles("/ls/local/files")
	r.history, r.first = r.traffic.compareAndSwap("/ls/local/register")
	r.check("all is well")
	return r
}

// end ends the clients, and then the cell.
func (r *replaced) end() {
	r.traffic.stop()
	r.rollingCell.end(r.files.release, r.holders.release, r.holders.ephemeral)
}

// check looks at what clients were promised, after something was done to the cell.
func (r *replaced) check(what string) {
	r.t.Helper()
	r.waitCaughtUp()
	r.holders.check(r.t, thisVersion())
	r.traffic.killGuard()
	r.traffic.check()
	r.stopIfFailed()
	r.t.Log(what)
}

// checkAll stops the clients, and checks all that they were promised. Of the first replicas these are left.
func (r *replaced) checkAll(left ...string) {
	r.t.Helper()
	if of := slices.DeleteFunc(r.ids(), func(id string) bool { return !slices.Contains(rollingIDs, id) }); !slices.Equal(of, left) {
		r.t.Errorf("of the first replicas, %v are left, want %v", of, left)
	}
	r.traffic.stop()
	r.traffic.check()
	r.traffic.guard.check(20)
	r.checkHashes()
	report(r.t, errors.Join(r.files.checkFiles(r.t.Context(), r.reader), r.history.check(r.first)))
}

// loseDisk removes what a replica that was killed had, and starts it with nothing: it is refused, however it is started.
func (r *replaced) loseDisk(id string) {
	r.t.Helper()
	noErr(r.t, os.RemoveAll(filepath.Join(r.dir, id)))
	for _, flags := range [][]string{nil, {"--bootstrap"}, {"--join"}} {
		if p := r.serveAt(id, r.has[id], flags...); p.wait(20*time.Second) != 78 {
			r.t.Errorf("a replica that has lost its disk, with %q, is not refused: %s", flags, &p.stderr)
		}
	}
}

// addressesOf returns the addresses of the i-th replica that the cell has ever had.
func (w *world) addressesOf(i int) addresses {
	return addresses{client: fmt.Sprintf("127.0.0.1:%d", w.base+i), raft: fmt.Sprintf("127.0.0.1:%d", w.base+10+i)}
}

// members is --members of r1 to the last one.
func (w *world) members(last int) string {
	var all []string
	for i := range last {
		all = append(all, fmt.Sprintf("r%d=%s,%s", i+1, w.addressesOf(i).client, w.addressesOf(i).raft))
	}
	return strings.Join(all, ";")
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
	dialed := must(client.Dial(r.t.Context(), client.Config{Servers: now}))(r.t)
	r.t.Cleanup(func() { _ = dialed.Close() })
	r.cell = dialed
	if !joined.running() {
		r.t.Fatal(errors.New(joined.stderr.String()))
	}
}
