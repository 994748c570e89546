package celltest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/internal/memnet"
)

// Cell is a running cell, called api.LocalCell.
type Cell struct {
	t       owner
	network *memnet.Network
	clocks  *clocks
	dir     string
	edit    func(*cell.Config)

	mu       sync.Mutex // guards members and replicas, and serialises edit
	members  []cell.Member
	replicas map[string]*cell.Replica
}

// Start starts a cell of n replicas, r1 to rn, with data in a temporary
// directory, and returns when it has a master. Each edit may change the
// configuration of every replica before it starts.
func Start(t testing.TB, n int, edits ...func(*cell.Config)) *Cell {
	t.Helper()
	return start(t, n, edits)
}

func start(t owner, n int, edits []func(*cell.Config)) *Cell {
	t.Helper()
	c := &Cell{t: t, network: memnet.New(), clocks: newClocks(), dir: t.TempDir(), replicas: map[string]*cell.Replica{}, edit: func(cfg *cell.Config) {
		for _, edit := range edits {
			edit(cfg)
		}
	}}
	for i := range n {
		id := fmt.Sprintf("r%d", i+1)
		c.members = append(c.members, member(id, id))
	}
	t.Cleanup(c.stop)
	var starting sync.WaitGroup
	failed := make([]error, n)
	for i, m := range c.members {
		starting.Go(func() { failed[i] = c.run(t.Context(), m.ID, true) })
	}
	starting.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	c.Master()
	return c
}

// Restart starts a stopped replica on its data. It is then neither cut off nor
// paused.
func (c *Cell) Restart(id string) {
	c.t.Helper()
	if err := c.run(c.t.Context(), id, false); err != nil {
		c.t.Fatal(err)
	}
}

// TryRestart is Restart for a replica that may refuse to start: it returns the
// error of cell.Start, which gets ctx.
func (c *Cell) TryRestart(ctx context.Context, id string) error { return c.run(ctx, id, false) }

// Join starts a replica with an empty data directory and a new id, which waits to be added to the cell at ID:7431
// (client.ChangeMembers). It returns when it was, and runs; or with the error of cell.Start.
func (c *Cell) Join(ctx context.Context, id string) error { return c.JoinAt(ctx, id, id) }

// JoinAt is Join for a replica on the named host, which may have been that of a replica that has left the cell. Cut and the other methods
// for hosts take the host's name, those for replicas the id.
func (c *Cell) JoinAt(ctx context.Context, id, host string) error {
	c.mu.Lock()
	if !slices.ContainsFunc(c.members, func(m cell.Member) bool { return m.ID == id }) {
		c.members = append(slices.Clip(c.members), member(id, host))
	}
	c.mu.Unlock()
	return c.start(ctx, id, func(cfg *cell.Config) { cfg.Join = true })
}

func member(id, host string) cell.Member {
	return cell.Member{ID: id, Client: host + ":7421", Raft: host + ":" + raftPort}
}

// hostOf returns the host of a replica.
func (c *Cell) hostOf(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.ID == id {
			return strings.TrimSuffix(m.Raft, ":"+raftPort)
		}
	}
	return id
}

// run starts a replica.
func (c *Cell) run(ctx context.Context, id string, bootstrap bool) error {
	return c.start(ctx, id, func(cfg *cell.Config) { cfg.Bootstrap = bootstrap })
}

func (c *Cell) start(ctx context.Context, id string, how func(*cell.Config)) error {
	host := c.hostOf(id)
	c.Heal(host)
	c.Resume(host)
	c.mu.Lock()
	members := c.members
	c.mu.Unlock()
	cfg := cell.Config{
		Cell: api.LocalCell, ID: id, Members: members, Data: filepath.Join(c.dir, id), InsecurePrincipals: true,
		ClientListener: c.network.Listen(host + ":7421"), RaftListener: c.network.Listen(host + ":" + raftPort),
		Dial: c.network.Dialer(host), Clock: c.ClockOf(host), Wall: c.wallOf(host),
		DiskStall: time.Minute, // all replicas are on the test's disk
	}
	if _, inTest := c.t.(testing.TB); inTest && flag.Lookup("test.v").Value.String() == "true" { // not "test2json", as -json sets it: its reader counts tests
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	how(&cfg)
	c.mu.Lock()
	c.edit(&cfg) // the caller's function, which must not be called concurrently
	c.mu.Unlock()
	r, err := cell.Start(ctx, cfg)
	if err != nil {
		return fmt.Errorf("start replica %s: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas[id] = r
	return nil
}

// Servers returns the client addresses of all replicas, for client.Config.
func (c *Cell) Servers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, m := range c.members {
		list = append(list, m.Client)
	}
	return list
}

// Dial connects a client on the host "client". Use it in client.Config.
func (c *Cell) Dial(ctx context.Context, address string) (net.Conn, error) {
	return c.network.Dial(ctx, "client", address)
}

// DialFrom returns a Dial for a client on the named host, which may have any
// name. Cut and the other methods for hosts work on it. The host's clock is
// ClockOf.
func (c *Cell) DialFrom(host string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) { return c.network.Dial(ctx, host, address) }
}

// Cut cuts hosts off: replicas by their ids, or clients' hosts. Until Heal,
// nothing that they send or that is sent to them arrives, and neither side
// notices: connections stay open, and new ones wait. What was under way then
// arrives late, on the connections that are still open. Cut imitates a cut
// cable, a switch that fails, or a firewall that drops packets.
func (c *Cell) Cut(hosts ...string) {
	for _, h := range hosts {
		c.network.CutOff(h, true)
	}
}

// Reset breaks the connections of hosts, and refuses new ones until Heal. Both
// ends notice at once. It imitates a process that is killed while its system
// runs on, and a firewall that rejects packets.
func (c *Cell) Reset(hosts ...string) {
	for _, h := range hosts {
		c.network.Refuse(h, true)
	}
}

// Sever breaks the connections of hosts, and refuses no new ones. Both ends notice at
// once. It imitates a load balancer or a firewall that has been restarted.
func (c *Cell) Sever(hosts ...string) {
	for _, h := range hosts {
		c.network.Sever(h)
	}
}

// Heal ends Cut and Reset.
func (c *Cell) Heal(hosts ...string) {
	for _, h := range hosts {
		c.network.Refuse(h, false)
		c.network.CutOff(h, false)
	}
}

// Slow delays everything that a host receives on connections opened from now
// on. In virtual time nothing else on the network takes any time, so without it
// nothing could be lost on its way.
func (c *Cell) Slow(host string, delay time.Duration) {
	c.network.Delay(host, delay)
}

// raftPort is the port of the Raft addresses.
const raftPort = "7431"

// Isolate cuts replicas off from the other replicas; clients still reach them.
// An isolated master does not know at first that it is no longer the master.
func (c *Cell) Isolate(ids ...string) {
	for _, id := range ids {
		c.network.Isolate(id, raftPort, true)
	}
}

// Rejoin ends an isolation.
func (c *Cell) Rejoin(ids ...string) {
	for _, id := range ids {
		c.network.Isolate(id, raftPort, false)
	}
}

// Kill stops a replica as a crash does: it resets the connections first, so
// that the replica cannot announce its stop.
func (c *Cell) Kill(id string) {
	c.t.Helper()
	c.Reset(c.hostOf(id))
	c.mu.Lock()
	r := c.replicas[id]
	delete(c.replicas, id)
	c.mu.Unlock()
	if r == nil {
		c.t.Fatalf("replica %s is not running", id)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Stop(gone) // the error says that it did not drain, as intended
	<-r.Done()
}

// Master returns the id of the master. It waits until a majority of the
// replicas agree on one.
func (c *Cell) Master() string {
	c.t.Helper()
	for range 30_000 {
		votes := map[string]int{}
		c.mu.Lock()
		for _, r := range c.replicas {
			if h := r.Health(); h.Ready {
				votes[h.Master]++
			}
		}
		master, running := c.replicas, len(c.replicas)
		c.mu.Unlock()
		for id, n := range votes {
			if n > running/2 && master[id] != nil && master[id].Health().Role == "master" {
				return id
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatal("no master after five minutes")
	return ""
}

// Replica returns a running replica.
func (c *Cell) Replica(id string) *cell.Replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replicas[id]
}

func (c *Cell) stop() {
	c.mu.Lock()
	var all []*cell.Replica
	for _, r := range c.replicas {
		all = append(all, r)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stopping sync.WaitGroup
	for _, r := range all {
		stopping.Go(func() {
			_ = r.Stop(ctx) // there is no need to drain at the end of a test
			<-r.Done()
		})
	}
	stopping.Wait()
}
