package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/raftfsm"
)

// before is for versions between the last release and this one, which no clone of one commit can build.
var before = flag.String("before", "", "a directory with a chubbyd of another version, for one replica while TestRollingUpgrade kills masters of each version")

// A cell under load goes from the last release to this version, replica by replica, goes back in part, goes up again,
// and has its upgrade finished. All replicas compute the same state, nothing that was acknowledged is lost, and no
// client notices: neither those of this version nor those of the release.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	u := startUpgrade(t)
	defer u.end(u.files.release, u.holders.release, u.holders.ephemeral)
	defer u.traffic.stop()
	u.compare()
	u.rollUp()
	for range max(1, *rounds/2) {
		u.rollBack()
		u.rollUp()
	}
	u.rollMasters()
	u.finish()
	u.checkAll()
}

// upgrade is a cell that goes from a release to this version, under load.
type upgrade struct {
	*rollingCell
	released, next release
	level, newest  int // that the two versions know
	changes        int // how many replicas were replaced by change

	traffic *traffic
	holders *holders
	files   *fileSet
	history *history
	first   operation      // of the history
	reader  *client.Client // without a cache
}

// startUpgrade starts a cell of the release, and its clients.
func startUpgrade(t *testing.T) *upgrade {
	t.Helper()
	u := &upgrade{released: lastRelease(t), next: thisVersion(), newest: raftfsm.MaxLevel}
	u.rollingCell = startRollingCell(t, u.released)
	for _, by := range []release{u.released, u.next} {
		s := u.upgradeStatus(by)
		if u.level = s.Level; s.Newest != s.Level || u.level > u.newest {
			t.Fatalf("a new cell of %s is at level %d, and knows %d; this version knows %d", u.released.name, s.Level, s.Newest, u.newest)
		}
	}
	u.reader = u.newClient(client.Config{NoCache: true})
	u.holders = u.startHolders(u.released)
	u.traffic = startTraffic(t, u.rollingCell, u.released)
	u.traffic.contend()
	u.files = u.traffic.writeFiles("/ls/local/files")
	u.history, u.first = u.traffic.compareAndSwap("/ls/local/register")
	return u
}

// compare compares the replicas, and lets the clients work for a while.
func (u *upgrade) compare() {
	u.t.Helper()
	u.traffic.check()
	u.traffic.whilePaused(u.checkHashes)
	time.Sleep(500 * time.Millisecond)
	u.traffic.check()
}

// change replaces one replica, which is killed and stopped by turns.
func (u *upgrade) change(id string, version release) {
	u.t.Helper()
	by := syscall.SIGTERM
	if u.changes++; u.changes%2 == 1 {
		by = syscall.SIGKILL
	}
	u.replace(id, by, version)
	u.traffic.killGuard()
	u.compare()
}

// rollUp gives this version to two replicas that are not the master. The upgrade cannot be finished yet.
func (u *upgrade) rollUp() {
	u.t.Helper()
	for range 2 {
		u.change(u.follower(u.released), u.next)
	}
	u.traffic.whilePaused(func() { u.checkMasters(u.reader) })
	u.refuseToFinish()
}

// rollBack gives them the release again. The first is the master, and the second may be.
func (u *upgrade) rollBack() {
	u.t.Helper()
	master := u.oneWith(u.next, "")
	u.transfer(master)
	u.reachCheckPoint()
	u.change(master, u.released)
	u.change(u.oneWith(u.next, ""), u.released)
}

// reachCheckPoint has the master, which is of this version, write a check point, as it does when a backup begins. The replicas of this
// version hash their states there. Those of the release apply it, contradict nobody, and are contradicted by nobody.
func (u *upgrade) reachCheckPoint() {
	u.t.Helper()
	if got := u.ctlOf(u.next, "cell", "backup", filepath.Join(u.t.TempDir(), "backup")); got.code != 0 {
		u.t.Fatalf("a backup of a cell with both versions: exit %d, %s", got.code, got.err)
	}
	for _, id := range rollingIDs {
		if u.has[id] == u.next {
			u.procs[id].waitFor("state at a check point was hashed", readyLimit)
		}
	}
	time.Sleep(8 * time.Second) // for them to be asked for it, every five seconds, and to stop if they are contradicted
	if got := u.ctlOf(u.next, "cell", "status"); got.code != 0 || strings.Contains(got.out+got.err, "differ") {
		u.t.Fatalf("after a check point: exit %d, %s %s", got.code, got.out, got.err)
	}
	u.compare()
}

// rollMasters gives this version to the other three, of which each is the master when its
// turn comes: one hands over before, one is killed, and one is stopped.
func (u *upgrade) rollMasters() {
	u.t.Helper()
	for _, by := range []syscall.Signal{0, syscall.SIGKILL, syscall.SIGTERM} {
		master := u.oneWith(u.released, "")
		u.transfer(master)
		time.Sleep(200 * time.Millisecond) // it serves clients of both versions
		if by == 0 {
			u.transfer(u.follower(u.next))
			by = syscall.SIGTERM
		}
		u.refuseToFinish()
		if u.replace(master, by, u.next); by == syscall.SIGKILL {
			u.killMasters()
		}
		u.compare()
	}
}

// killMasters kills masters of each version while one replica has the release: what they have acknowledged while the log of others was of
// another version is still there in the end.
func (u *upgrade) killMasters() {
	u.t.Helper()
	versions := []release{u.next, u.released}
	if *before != "" {
		between := release{name: "the version in " + *before, dir: *before}
		u.replace(u.follower(u.next), syscall.SIGTERM, between)
		versions = append(versions, between)
		defer func() { u.replace(u.oneWith(between, ""), syscall.SIGTERM, u.next) }()
	}
	for _, version := range versions {
		master := u.oneWith(version, "")
		u.transfer(master)
		time.Sleep(500 * time.Millisecond) // it serves clients of both versions
		u.replace(master, syscall.SIGKILL, version)
		u.compare()
	}
}

// refuseToFinish tries to finish the upgrade while replicas have the release: those are
// named, and nothing changes. If the version brings no level, there is nothing to refuse.
func (u *upgrade) refuseToFinish() {
	u.t.Helper()
	if u.newest == u.level {
		return
	}
	got := u.ctlOf(u.next, "cell", "upgrade", "finish")
	for _, id := range rollingIDs {
		says := strings.Contains(got.err, fmt.Sprintf("%s knows feature levels up to %d", id, u.level))
		if got.code != 69 || says != (u.has[id] == u.released) {
			u.t.Fatalf("finish, while %s has %s: exit %d, %s", id, u.has[id].name, got.code, got.err)
		}
	}
	for _, by := range []release{u.released, u.next} {
		if s := u.upgradeStatus(by); s.Level != u.level || s.Newest != u.newest {
			u.t.Fatalf("cell upgrade status of %s: %+v; want level %d of %d", by.name, s, u.level, u.newest)
		}
	}
}

// finish finishes the upgrade, by the chubbyctl of each version, and checks that a replica cannot go back.
func (u *upgrade) finish() {
	u.t.Helper()
	u.traffic.whilePaused(func() { u.checkMasters(u.reader) })
	for _, by := range []release{u.next, u.released} {
		if got := u.ctlOf(by, "-o", "json", "cell", "upgrade", "finish"); got.code != 0 {
			u.t.Fatalf("finish of %s: exit %d, %s", by.name, got.code, got.err)
		}
		if s := u.upgradeStatus(by); s.Level != u.newest || s.Newest != u.newest {
			u.t.Fatalf("after finish, cell upgrade status of %s: %+v", by.name, s)
		}
	}
	u.compare()
	if u.newest == u.level {
		u.t.Logf("both versions know feature level %d: there was nothing to finish", u.level)
		return
	}
	u.t.Logf("the cell has gone from feature level %d to %d", u.level, u.newest)
	id := u.follower(u.next)
	u.endReplica(id, syscall.SIGTERM)
	p := u.serveBy(id, u.released)
	says := fmt.Sprintf("it is of feature level %d, and this replica knows levels up to %d", u.newest, u.level)
	if code := p.wait(30 * time.Second); code != 78 || !strings.Contains(p.stderr.String(), says) {
		u.t.Fatalf("%s with %s exits with %d, and says %s; want 78, and %q", id, u.released.name, code, &p.stderr, says)
	}
	u.serveBy(id, u.next)
	u.waitCaughtUp()
	u.compare()
}

// checkAll stops the clients, and checks all that they were promised.
func (u *upgrade) checkAll() {
	u.t.Helper()
	u.traffic.stop()
	u.traffic.check()
	u.traffic.guard.check(20)
	u.checkHashes()
	u.holders.check(u.t, u.released)
	report(u.t, u.files.checkFiles(u.t.Context(), u.reader))
	var told string
	var err error
	comesTrue(time.Minute, 50*time.Millisecond, func() bool {
		told, err = u.files.checkEvents()
		return err == nil
	})
	report(u.t, err)
	report(u.t, u.history.check(u.first), "the register is not linearizable")
	u.t.Logf("%s%d operations with the register", told, len(u.history.operations))
	u.checkMasters(u.reader)
	u.replayLog()
}

// A master of the release knows nothing of the names of calls, and serves them all the same.
func TestRequestIDsAtTheRelease(t *testing.T) {
	t.Parallel()
	r := startRollingCell(t, lastRelease(t))
	defer r.end()
	r.ctlOf(thisVersion(), "put", "/ls/local/file", "text").exits(t, 0, "a write at a replica of the release")
	got := r.ctlOf(thisVersion(), "-o", "json", "cat", "/ls/local/none")
	if got.code == 0 || !regexp.MustCompile(`"request":"[0-9a-f]{16}"`).MatchString(got.out+got.err) {
		t.Errorf("a read of what is not there: exit %d, %s%s", got.code, got.out, got.err)
	}
}
