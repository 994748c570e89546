package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
		if time.Now().After(end) {
			r.t.Fatalf("no spare takes the place of %s: %s%s", dead, now.out, now.err)
		}
	}
}
