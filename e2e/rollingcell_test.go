package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/client"
)

// rollingCell is a cell of five that an operator starts by hand, each replica with the version that it is to have.
type rollingCell struct {
	*world
	cell  *client.Cell
	procs map[string]*process
	has   map[string]release               // the version that each replica runs
	slow  func(id string, serve *exec.Cmd) // makes the disk of a replica slow that is to be started; nil if all are as they are

	clients []*client.Client
	lease   time.Duration // of those that are opened from now on; 0 is the usual one
}

var rollingIDs = []string{"r1", "r2", "r3", "r4", "r5"}

// boltID is the replica that has its log in a bbolt file; the others have the default.
const boltID = "r1"

// startRollingCell starts a cell of five, all of that version.
func startRollingCell(t *testing.T, version release) *rollingCell {
	t.Helper()
	r := &rollingCell{
		world: newWorld(t),
		procs: map[string]*process{},
		has:   map[string]release{},
	}
	for _, id := range rollingIDs {
		r.serveBy(id, version)
	}
	dialed := must(client.Dial(t.Context(), client.Config{Servers: strings.Split(r.servers(), ",")}))(t)
	t.Cleanup(func() { _ = dialed.Close() })
	r.cell = dialed
	r.waitCaughtUp()
	return r
}

// newClient opens a session of this process.
func (r *rollingCell) newClient(cfg client.Config) *client.Client {
	r.t.Helper()
	cfg.Lease = cmp.Or(cfg.Lease, r.lease)
	c := r.client(cfg)
	r.clients = append(r.clients, c)
	return c
}

// end ends programs that use the cell, the sessions of this process, and then the cell. In
// another order they would wait for a cell that has ended.
func (r *rollingCell) end(users ...*process) {
	var ends sync.WaitGroup
	for _, p := range users {
		ends.Go(func() { _ = p.end() })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, c := range r.clients {
		ends.Go(func() { _ = c.Close(ctx) })
	}
	ends.Wait()
	for _, p := range r.procs {
		_ = p.cmd.Process.Kill() // it may have ended
	}
}

// serveBy starts a replica with a version.
func (r *rollingCell) serveBy(id string, version release) *process {
	r.t.Helper()
	store := "wal"
	if id == boltID {
		store = "boltdb"
	}
	r.has[id] = version
	cmd := command(version.bin("chubbyd"), "serve", "--bootstrap", "--insecure-principals", "--cell", "local", "--id", id,
		"--members", r.members(len(rollingIDs)), "--data", filepath.Join(r.dir, id), "--log-store", store)
	cmd.Env = append(cmd.Env, "CHUBBYD_INSECURE=true", "CHUBBYD_OPERATORS=everybody") // what v0.1.0 does not know
	if version == thisVersion() {
		// The log says that a check point was reached; spares, if there are any, do not stand by for hours.
		cmd.Env = append(cmd.Env, "CHUBBYD_LOG_LEVEL=debug", "CHUBBYD_REPLACE_AFTER="+cell.MinReplaceAfter.String())
	}
	if r.slow != nil {
		r.slow(id, cmd)
	}
	r.procs[id] = launch(r.t, cmd, (*exec.Cmd).Start)
	return r.procs[id]
}

// replace stops a replica by a signal, and starts it with another version. It returns when all have caught up.
func (r *rollingCell) replace(id string, by syscall.Signal, version release) {
	r.t.Helper()
	began := time.Now()
	r.endReplica(id, by)
	r.serveBy(id, version)
	r.waitCaughtUp()
	r.t.Logf("%s, after %v, has %s; all have caught up after %v", id, by, version.name, time.Since(began).Round(time.Millisecond))
}

// endReplica ends the process of a replica.
func (r *rollingCell) endReplica(id string, by syscall.Signal) {
	r.t.Helper()
	p := r.procs[id]
	if err := p.cmd.Process.Signal(by); err != nil {
		r.t.Fatalf("%v to %s: %v", by, id, err)
	}
	if code := p.wait(20 * time.Second); by == syscall.SIGTERM && code != 0 {
		r.t.Errorf("%s exits with %d after SIGTERM\n%s", id, code, &p.stderr)
	}
}

// status asks all replicas. It fails while there is no master.
func (r *rollingCell) status() (client.Status, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	s, err := r.cell.Status(ctx)
	if err == nil && s.Master == "" {
		err = fmt.Errorf("there is no master: %+v", s.Replicas)
	}
	return s, err
}

// waitStatus waits for a status of which good says nothing.
func (r *rollingCell) waitStatus(good func(client.Status) error) client.Status {
	r.t.Helper()
	var s client.Status
	var err error
	for end := time.Now().Add(patience(60 * time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s, err = r.status(); err == nil {
			if err = good(s); err == nil {
				return s
			}
		}
		for id, p := range r.procs {
			if !p.running() {
				r.t.Fatalf("%s, with %s, has ended: %s", id, r.has[id].name, &p.stderr)
			}
		}
	}
	r.t.Fatalf("the cell does not come to rest: %v\n%+v", err, s)
	return s
}

// waitCaughtUp waits until every replica serves, and has applied what was in the log of the others when this began.
func (r *rollingCell) waitCaughtUp() {
	r.t.Helper()
	var last uint64
	r.waitStatus(func(s client.Status) error {
		if last == 0 {
			for _, one := range s.Replicas {
				last = max(last, one.Last)
			}
		}
		if len(s.Replicas) != len(r.procs) {
			return fmt.Errorf("%d replicas are known", len(s.Replicas))
		}
		for _, one := range s.Replicas {
			if one.Err != nil || !one.Healthy || one.Applied < last {
				return fmt.Errorf("%s is not healthy, or has not applied %d: %+v", one.ID, last, one)
			}
		}
		return nil
	})
}

// checkHashes waits until all replicas have applied the same, and compares the hashes of
// their histories. It needs a cell in which nobody changes anything.
func (r *rollingCell) checkHashes() {
	r.t.Helper()
	s := r.waitStatus(r.checkApplied)
	for _, one := range s.Replicas {
		if first := s.Replicas[0]; one.StateHash != first.StateHash || one.StateHash == "" {
			r.t.Errorf("at %d, %s of %s and %s of %s have the state hashes %q and %q",
				one.Applied, first.ID, r.has[first.ID].name, one.ID, r.has[one.ID].name, first.StateHash, one.StateHash)
		}
	}
	r.stopIfFailed()
}

// checkApplied returns an error unless all replicas have applied the same entries.
func (r *rollingCell) checkApplied(s client.Status) error {
	for _, one := range s.Replicas {
		if first := s.Replicas[0]; one.Err != nil || one.Applied != first.Applied {
			return fmt.Errorf("%s and %s have applied different entries", first.ID, one.ID)
		}
	}
	return nil
}

// stopIfFailed ends the test if anything was wrong: what comes after would only hide it.
func (r *rollingCell) stopIfFailed() {
	r.t.Helper()
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// transfer makes a replica the master.
func (r *rollingCell) transfer(id string) {
	r.t.Helper()
	var last result
	for range 5 { // a replica that lags may not take over in time
		if r.master() == id {
			return
		}
		last = r.do("cell", "transfer", "--to", id)
	}
	stopIf(r.t, r.master() != id, "%s does not become the master: exit %d, %s", id, last.code, last.err)
}

// master waits until there is a master, and returns it.
func (r *rollingCell) master() string {
	r.t.Helper()
	return r.waitStatus(func(client.Status) error { return nil }).Master
}

// follower returns a replica, not the master, that has a version.
func (r *rollingCell) follower(version release) string {
	r.t.Helper()
	return r.oneWith(version, r.master())
}

// oneWith returns a replica that has a version, and is not another one.
func (r *rollingCell) oneWith(version release, not string) string {
	r.t.Helper()
	at := slices.IndexFunc(rollingIDs, func(id string) bool { return id != not && r.has[id] == version })
	stopIf(r.t, at < 0, "no replica besides %q has %s", not, version.name)
	return rollingIDs[at]
}

// upgradeStatus is what cell upgrade status prints as JSON.
type upgradeStatus struct {
	Level    int
	Newest   int
	Replicas []struct {
		ID       string
		MaxLevel int `json:"max_level"`
	}
	Next string
}

// upgradeStatus asks by the chubbyctl of a version.
func (r *rollingCell) upgradeStatus(by release) upgradeStatus {
	r.t.Helper()
	var u upgradeStatus
	got := r.ctlOf(by, "-o", "json", "cell", "upgrade", "status")
	if err := json.Unmarshal([]byte(got.out), &u); err != nil || got.code != 0 {
		r.t.Fatalf("cell upgrade status of %s: exit %d, %v\n%s%s", by.name, got.code, err, got.out, got.err)
	}
	return u
}

// ctlOf runs the chubbyctl of a version to its end.
func (r *rollingCell) ctlOf(by release, args ...string) result {
	r.t.Helper()
	p := spawn(r.t, nil, by.bin("chubbyctl"), append([]string{"--servers", r.servers()}, args...)...)
	code := p.wait(60 * time.Second)
	return result{out: p.stdout.String(), err: p.stderr.String(), code: code}
}
