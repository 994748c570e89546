package cell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// startCell starts a cell of n replicas, r1 to rn, on a network in memory, and returns them when it has a master. They stand
// for election as late as they may, so that heartbeats are few. Each edit may change the configuration of every replica. Use
// it in a synctest bubble.
func startCell(t *testing.T, n int, edits ...func(*Config)) map[string]*Replica {
	t.Helper()
	network, members, replicas := memnet.New(), []Member(nil), map[string]*Replica{}
	for i := range n {
		id := fmt.Sprintf("r%d", i+1)
		members = append(members, Member{ID: id, Client: id + ":client", Raft: id + ":raft"})
	}
	dir := t.TempDir()
	var starting sync.WaitGroup
	var mu sync.Mutex // guards replicas
	for _, m := range members {
		starting.Go(func() {
			cfg := Config{
				Cell: "local", ID: m.ID, Members: members, Data: filepath.Join(dir, m.ID), Bootstrap: true, InsecurePrincipals: true,
				ClientListener: network.Listen(m.Client), RaftListener: network.Listen(m.Raft), Dial: network.Dialer(m.Raft), Clock: testbed.Clock(),
				ElectionTimeout: MaxElectionTimeout,
			}
			for _, edit := range edits {
				edit(&cfg)
			}
			r, err := Start(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			replicas[m.ID] = r
		})
	}
	starting.Wait()
	for _, r := range replicas {
		t.Cleanup(func() {
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_ = r.Stop(gone) // there is no need to drain at the end of a test
			<-r.Done()
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	testbed.Await(t, "a master", func() bool { return masterOf(replicas) != "" })
	return replicas
}

// startAlone starts a cell of one replica on the loopback interface, which stops with the test.
func startAlone(t *testing.T, edit func(*Config)) *Replica {
	t.Helper()
	cfg := Config{
		Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "127.0.0.1:1", Raft: "127.0.0.1:2"}},
		Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true,
		Listen: Addresses{Client: "127.0.0.1:0", Raft: "127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler),
	}
	edit(&cfg)
	r := must(Start(t.Context(), cfg))(t)
	t.Cleanup(func() { _ = r.Stop(t.Context()) })
	return r
}

// masterOf returns the id of the replica that serves as master, "" without one.
func masterOf(replicas map[string]*Replica) string {
	for id, r := range replicas {
		if r.master.Load() != nil {
			return id
		}
	}
	return ""
}

// refuseChanges makes a replica's Raft refuse every change while it leads, or ends that. It sets a field that Raft
// itself sometimes leaves set after a leadership transfer.
func refuseChanges(r *Replica, on int32) {
	flag := reflect.ValueOf(r.raft).Elem().FieldByName("leaderState").FieldByName("leadershipTransferInProgress")
	atomic.StoreInt32((*int32)(unsafe.Pointer(flag.UnsafeAddr())), on)
}

// A replica that is elected and cannot begin its epoch tries again; no replica reports it as the master meanwhile. If
// it still cannot after two election timeouts, it stops, and another is elected.
func TestElectedAndUnableToTakeOver(t *testing.T) {
	for _, passes := range []bool{true, false} {
		t.Run(fmt.Sprintf("passes=%v", passes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := startCell(t, 3)
				from := masterOf(replicas)
				to := map[string]string{"r1": "r2", "r2": "r3", "r3": "r1"}[from]
				refuseChanges(replicas[to], 1)
				noErr(t, replicas[from].Transfer(t.Context(), to))
				testbed.Await(t, to+" leading", func() bool { _, leads := replicas[to].leads(); return leads })
				testbed.Pass(MaxElectionTimeout)
				for id, r := range replicas {
					if h := r.Health(); h.Ready {
						t.Errorf("%s calls the cell ready, with master %s, which cannot take over: %+v", id, h.Master, h)
					}
				}
				if passes {
					refuseChanges(replicas[to], 0)
					testbed.Pass(MaxElectionTimeout)
					if got := masterOf(replicas); got != to || replicas[to].Err() != nil {
						t.Errorf("the master is %q; %s ended with %v", got, to, replicas[to].Err())
					}
					return
				}
				select {
				case <-replicas[to].Done():
				case <-time.After(5 * time.Second):
					t.Fatal("a replica that leads and cannot take over goes on")
				}
				if err := replicas[to].Err(); err == nil || !strings.Contains(err.Error(), "cannot become the master") {
					t.Errorf("it ended with %v", err)
				}
				delete(replicas, to)
				testbed.Await(t, "another master", func() bool { return masterOf(replicas) != "" })
			})
		})
	}
}

// There is one hand-over at a time: a second is refused until the first has ended.
func TestOneHandOverAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		r := replicas[masterOf(replicas)]
		r.handOvers.handing <- struct{}{} // as while the first runs
		if err := r.Transfer(t.Context(), ""); api.CodeOf(err) != api.Unavailable || r.master.Load() == nil {
			t.Errorf("a second hand-over: %v", err)
		}
		<-r.handOvers.handing
		report(t, r.Transfer(t.Context(), ""), "after the first")
	})
}

// Several notices of elections may wait to be read, while Raft has gone on: an
// epoch begins once in each term, and only the newest notice counts.
func TestOldNewsBeginNoEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 1)
		r := replicas["r1"]
		m := r.master.Load()
		for _, news := range []bool{false, true, true, false, true} {
			r.epochs.elections <- news // as of an old election: it is still the leader
		}
		testbed.Pass(time.Second)
		if now := r.master.Load(); now != m || m.Context().Err() != nil {
			t.Errorf("old news made an end of epoch %d, which goes on in Raft", m.Epoch())
		}
		report(t, r.Err())
	})
}

// A replica refuses to start with an election timeout with which a master that is cut off could outlive a lease.
func TestElectionTimeoutIsBelowEveryLease(t *testing.T) {
	cfg := Config{Cell: "local", ID: "r1", Data: "x", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:2"}}}
	for timeout, ok := range map[time.Duration]bool{
		0: true, MinElectionTimeout: true, MinElectionTimeout - 1: false, MaxElectionTimeout: true, MaxElectionTimeout + 1: false, api.MinLease: false,
	} {
		cfg.ElectionTimeout = timeout
		if err := cfg.Check(); (err == nil) != ok {
			t.Errorf("an election timeout of %v: %v", timeout, err)
		}
	}
	failIf(t, MaxElectionTimeout >= api.MinLease, "%v is not below the shortest lease, %v", MaxElectionTimeout, api.MinLease)
}

// A replica remembers its last take-overs, the latest first; of that alone something may go on, until the master is deposed.
func TestTakeoversAreRemembered(t *testing.T) {
	now := session.Instant(time.Hour)
	times := newTakeoverTimes(meter{}, func() session.Instant { return now }, func() int64 { return 1_000_000 })
	pass := func(d time.Duration) { now = now.Add(d) }
	take := func(epoch api.Epoch, sessions int, vacant time.Duration) {
		elected := now
		pass(10 * time.Millisecond)
		times.began(epoch, sessions, vacant, elected)
		pass(time.Millisecond)
		times.nowServes()
	}
	phases := func(i int) (names []string) {
		for _, p := range times.list()[i].Phases {
			name := p.Name
			if p.Unfinished {
				name += " goes on"
			}
			names = append(names, name)
		}
		return names
	}
	expect := func(i int, want ...string) {
		t.Helper()
		if got := phases(i); !slices.Equal(got, want) {
			t.Errorf("the phases of take-over %d from the end are %q, want %q", i, got, want)
		}
	}
	take(1, 0, -1)
	times.leaseExtended(0) // of a session that came later
	times.granted()
	expect(0, phaseLog, phaseLeases)
	times.ended()
	for epoch := range api.Epoch(12) {
		take(10+epoch, 2, time.Second)
		expect(0, phaseElection, phaseLog, phaseLeases, phaseFirst+" goes on", phaseSessions+" goes on")
		pass(time.Second)
		times.leaseExtended(1)
		expect(0, phaseElection, phaseLog, phaseLeases, phaseFirst, phaseSessions+" goes on")
		times.ended()
	}
	take(99, 1, 0)
	pass(5 * time.Second)
	times.leaseExtended(0)
	pass(maxGrantWait)
	times.granted()
	list := times.list()
	if len(list) != maxTakeovers || list[0].Epoch != 99 || list[1].Epoch != 21 || list[0].Sessions != 1 || list[0].ElectedUnix != 1_000_000 {
		t.Errorf("remembered are %+v", list)
	}
	expect(0, phaseElection, phaseLog, phaseLeases, phaseFirst, phaseSessions)
	expect(1, phaseElection, phaseLog, phaseLeases, phaseFirst)
	if last := list[0].Phases[4]; last.Begin != 11*time.Millisecond || last.End != 11*time.Millisecond+5*time.Second {
		t.Errorf("the sessions were back from %v to %v", last.Begin, last.End)
	}
	take(100, 1, 0)
	pass(20 * time.Second)
	times.sessionsLeft(0) // the only one has ended: nobody is waited for any more
	expect(0, phaseElection, phaseLog, phaseLeases, phaseSessions)
	pass(time.Hour)
	times.leaseExtended(0) // of a client that is new
	expect(0, phaseElection, phaseLog, phaseLeases, phaseSessions)
	if first := list[1].Phases[0]; first.Begin != -time.Second || first.End != 0 {
		t.Errorf("the election was from %v to %v", first.Begin, first.End)
	}
}

// Who succeeds a dead master has the longest log, and none shorter than that of who asks.
func TestLongestLogSucceeds(t *testing.T) {
	replicas := []raft.Server{{ID: "a"}, {ID: "b"}}
	for _, c := range []struct {
		name string
		own  uint64
		ends map[string]peer.Report
		want string // empty: nobody
	}{
		{"equal", 7, map[string]peer.Report{"a": {Term: 3, Last: 7}}, "a"},
		{"longer first", 7, map[string]peer.Report{"a": {Term: 3, Last: 9}, "b": {Term: 3, Last: 8}}, "a"},
		{"longer last", 7, map[string]peer.Report{"a": {Term: 3, Last: 7}, "b": {Term: 3, Last: 8}}, "b"},
		{"longer, and in another term", 7, map[string]peer.Report{"a": {Term: 3, Last: 7}, "b": {Term: 4, Last: 8}}, "a"},
		{"all shorter", 7, map[string]peer.Report{"a": {Term: 3, Last: 6}, "b": {Term: 3}}, ""},
		{"nobody answers", 0, nil, ""},
	} {
		if got, ok := longest(c.own, 3, replicas, c.ends); string(got.ID) != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.name, got.ID, ok, c.want)
		}
	}
}

// oversized makes entries larger than the log takes, from some time on: their write fails, as on a full disk.
type oversized struct {
	master.Log
	from *atomic.Bool
}

// Append implements master.Log.
func (l oversized) Append(entry []byte) ([]raftfsm.Result, error) {
	if l.from.Load() {
		entry = make([]byte, disk.MaxLogEntry+1)
	}
	return l.Log.Append(entry)
}

// A master whose disk fails while it writes an entry ends wholly: the entry's author is told that it may be done, the
// epoch ends, and the directory is free.
func TestFailedMasterEnds(t *testing.T) {
	var fails atomic.Bool
	r := startAlone(t, func(cfg *Config) {
		cfg.proposeTo = func(log master.Log) master.Log { return oversized{log, &fails} }
	})
	testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
	fails.Store(true)
	err := r.master.Load().RaiseLevel(t.Context(), raftfsm.RaiseLevel{To: raftfsm.MaxLevel})
	if <-r.Done(); api.CodeOf(err) != api.Uncertain || !errors.Is(r.Err(), api.TooLarge) {
		t.Errorf("the author was told %v, and the replica ended with %v", err, r.Err())
	}
	select {
	case <-r.epochs.ended:
	default:
		t.Error("its epoch has not ended")
	}
	opts := r.storeOptions()
	opts.Fatal = func(error) {}
	s, err := disk.Open(r.cfg.Data, disk.LogStore(r.cfg.LogStore), opts)
	noErr(t, err)
	noErr(t, s.Close())
}
