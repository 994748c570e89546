package master

import (
	"errors"
	flags "flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

var full = flags.Bool("full", false, "make the tests of limits as large as the limits: 500,000 ephemeral nodes, and the real limits of the log")

// tinyLimits are limits that a dozen of anything exceeds.
func tinyLimits() limits {
	return limits{command: 4 << 10, batch: 2 << 10, claims: 1 << 10, pending: 64 << 10, share: 8 << 10}
}

// limit sets the limits of a running master.
func (s *soloMaster) limit(l limits) {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	s.epoch.proposer.mu.Lock()
	defer s.epoch.proposer.mu.Unlock()
	s.epoch.proposer.limits, s.tables.Queues.Claims = l, l.claims
}

// entryOverhead is the largest size of an entry without its commands.
const entryOverhead = 40

// logOf collects the entries that a master writes, and fails the test for an entry that exceeds the limits.
func (s *soloMaster) logOf(t *testing.T, l limits) *[][]byte {
	t.Helper()
	s.limit(l)
	var entries [][]byte
	wrote := func(data []byte) {
		if most := max(l.command, l.batch) + entryOverhead; len(data) > most {
			t.Errorf("an entry of %d bytes; at most %d are allowed", len(data), most)
		}
		entries = append(entries, data)
	}
	s.wrote.Store(&wrote)
	return &entries
}

// populate gives that many sessions that many ephemeral nodes each, whose names have about that many bytes.
func populate(t *testing.T, s *raftfsm.State, sessions, each, name int) {
	t.Helper()
	for i := range sessions {
		var names []api.Name
		for k := range each {
			names = append(names, api.Name(fmt.Sprintf("/%s%d-%d", strings.Repeat("e", name), i, k)))
		}
		ephemerals(t, s, fmt.Sprintf("owner %d", i), names...)
	}
}

// cachingSessionOf is cachingSession with any number of nonces.
func cachingSessionOf(name string) raftfsm.Command {
	c := cachingSession(0)
	c.CreateSession.Nonce = []byte(fmt.Sprintf("%-16.16s", name))
	c.CreateSession.Principal = name
	return c
}

// However many ephemeral nodes die together, of one session or of many, in an earlier epoch or in this one, every
// replica can read the entries that remove them.
func TestDyingNodesFitTheLog(t *testing.T) {
	for _, c := range []struct{ sessions, each int }{{1, 1_000}, {50, 20}} {
		l := tinyLimits()
		if *full {
			c.sessions, c.each, l = c.sessions*10, c.each*10, defaultLimits()
			if c.sessions == 10 {
				c.sessions = 50 // a session has 10,000 handles at most
			}
		}
		t.Run(fmt.Sprintf("%d of %d sessions", c.each, c.sessions), func(t *testing.T) {
			var entries *[][]byte
			inSolo(t, func(s *raftfsm.State) { populate(t, s, c.sessions, c.each, 140) }, func(t *testing.T, m *soloMaster) {
				entries = m.logOf(t, l)
				time.Sleep(15 * time.Minute) // no client keeps them alive
				synctest.Wait()
				if n := m.epoch.state().Tree.Counts().Nodes; n != 3 || m.epoch.state().Sessions.Len() != 0 {
					t.Errorf("%d nodes and %d sessions are left; want 3 (the root, /acl and its list) and none", n, m.epoch.state().Sessions.Len())
				}
			})
			if !t.Failed() {
				readBack(t, *entries)
			}
		})
	}
}

// readBack writes entries into a log, and opens it again.
func readBack(t *testing.T, entries [][]byte) {
	t.Helper()
	options := disk.Options{Cell: "local", ID: "r1", Bootstrap: true, Fatal: func(err error) { t.Errorf("its store ends the replica: %v", err) }, Silence: func() {}, Logger: slog.New(slog.DiscardHandler)}
	dir := t.TempDir()
	s, err := disk.Open(dir, disk.WALStore, options)
	noErr(t, err)
	me := s.Identity().Get()
	if err := s.Identity().Store(&identity.Roster{CellID: "c", Members: []identity.Member{{ID: me.ID, Raft: "a", Incarnation: me.Incarnation}}}, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Votes().SetUint64([]byte("CurrentTerm"), 1); err != nil { // a replica votes in a term before it has entries of that term
		t.Fatal(err)
	}
	logs := make([]*raft.Log, len(entries))
	for i, data := range entries {
		logs[i] = &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: data}
	}
	for part := range slices.Chunk(logs, 16) {
		noErr(t, s.Logs().StoreLogs(part))
	}
	noErr(t, s.Close())
	if s, err = disk.Open(dir, disk.WALStore, options); err != nil {
		t.Fatalf("the replica does not start again: %v", err)
	}
	defer func() { _ = s.Close() }()
	for i := range entries {
		noErr(t, s.Logs().GetLog(uint64(i+1), new(raft.Log)))
	}
}

// Sessions end together while others wait for all their locks. They end in entries within the limits, and every lock is
// handed on: by the same entry or, if there is no room for the succession, by a later one.
func TestEndingSessionsFitTheLog(t *testing.T) {
	const owners, locks, waiting = 12, 10, 3
	inSolo(t, func(s *raftfsm.State) {
		for i := range owners {
			r := early(t, s, cachingSessionOf(fmt.Sprintf("owner %d", i)))
			for k := range locks {
				opened := with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: r.mutation(), Name: nameOfLock(i, k), Create: api.MustCreate, Kind: api.File}})[0]
				by := r.mutation()
				with(t, s, raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{
					Lock: namespace.Ref{Name: nameOfLock(i, k), Instance: opened.Stat.Instance}, Claims: []raftfsm.Claim{{Mutation: by, Handle: 1, Mode: api.Exclusive}},
				}}})
			}
		}
	}, func(t *testing.T, m *soloMaster) {
		m.logOf(t, tinyLimits())
		granted := make(chan api.Name, owners*locks*waiting)
		for i := range waiting {
			c := m.client(t, byte(i+1))
			go c.keep(t.Context())
			var outstanding []api.RequestNumber
			for node := range m.epoch.state().Tree.All() {
				if len(node.Holders) == 0 {
					continue
				}
				claim := raftfsm.Claim{Mutation: c.mutation(), Mode: api.Shared, Reason: strings.Repeat("why ", 60)}
				claim.Handle = api.HandleID(claim.Mutation.Number)
				h := Handle{Owner: namespace.Owner{Session: c.who.Session, Handle: claim.Handle}, Node: node.Ref(), Rights: namespace.ToWrite}
				if err := m.Files.Use(h, namespace.ToWrite, true); err != nil { // a handle of an earlier epoch
					t.Fatal(err)
				}
				outstanding = append(outstanding, claim.Mutation.Number)
				claim.Mutation.Outstanding = slices.Clone(outstanding)
				go func() {
					if _, err := m.Locks.Acquire(t.Context(), requestFor(claim, h)); err == nil {
						granted <- node.Name
					} else if t.Context().Err() == nil {
						t.Error(err)
					}
				}()
			}
		}
		time.Sleep(time.Minute) // the owners' leases end
		synctest.Wait()
		if n := len(granted); n != owners*locks*waiting {
			t.Errorf("%d of %d requests were granted", n, owners*locks*waiting)
		}
	})
}

// Very many sessions that end at once, as after a command that failed, end in as many commands as the limits require.
func TestEndsAreCut(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		const sessions = 2_000
		m.limit(tinyLimits())
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		var ends []raftfsm.End
		for i := range sessions {
			ends = append(ends, raftfsm.End{Session: api.SessionID(i + 1), Reason: api.ByExpiry})
		}
		named := 0
		for len(ends) > 0 {
			var c raftfsm.Command
			c, ends = m.Locks.offers.endCommand(ends)
			if n := raftfsm.Size(c); n > tinyLimits().command {
				t.Errorf("a command of %d bytes; at most %d are allowed", n, tinyLimits().command)
			}
			for _, end := range c.EndSessions.Ends {
				if named++; end.Session != api.SessionID(named) {
					t.Fatalf("session %v ends in place %d", end.Session, named)
				}
			}
		}
		equal(t, named, sessions, "%d sessions end")
	})
}

func nameOfLock(owner, lock int) api.Name {
	return api.Name(fmt.Sprintf("/%s%d-%d", strings.Repeat("l", 200), owner, lock))
}

// sized returns a change of that size by a session.
func sized(by api.SessionID, size int) raftfsm.Command {
	return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: session.Mutation{Session: by}, Contents: make([]byte, size)}}
}

// heldEntries holds every entry back until the test releases it.
type heldEntries struct {
	entries chan []byte
	release chan struct{}
}

func (h *heldEntries) Append(data []byte) ([]raftfsm.Result, error) {
	h.entries <- data
	<-h.release
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	return make([]raftfsm.Result, len(e.Commands)), nil
}

// inProposer runs a test with a proposer whose entries are held back.
func inProposer(t *testing.T, l limits, test func(t *testing.T, p *proposer, h *heldEntries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &heldEntries{entries: make(chan []byte, 1000), release: make(chan struct{}, 1000)}
		p := newProposer(untimed(h), func([]*proposal, []raftfsm.Result, error) {})
		p.limits = l
		go p.runProposer(t.Context())
		test(t, p, h)
		close(h.release)
	})
}

// A command that is too large for an entry is refused before it is written,
// with an error that says so and that it was not done.
func TestCommandTooLargeIsRefused(t *testing.T) {
	inProposer(t, defaultLimits(), func(t *testing.T, p *proposer, h *heldEntries) {
		if err := p.enqueue(newProposal(sized(1, api.MaxCommand), raftfsm.MaxLevel, false, nil)); !errors.Is(err, api.TooLarge) {
			t.Errorf("a command above the limit: %v; want TooLarge", err)
		}
		failIf(t, hand(p, sized(0, api.MaxCommand)), "a command of the master's own above the limit was taken")
		synctest.Wait()
		failIf(t, len(h.entries) > 0, "it was written all the same")
	})
}

// Entries are cut by their encoded bytes.
func TestBatchesAreBoundedByBytes(t *testing.T) {
	l := defaultLimits()
	inProposer(t, l, func(t *testing.T, p *proposer, h *heldEntries) {
		for range 40 {
			hand(p, sized(0, 30_000))
		}
		hand(p, sized(0, api.MaxContents))
		for range 100 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		n := 0
		for len(h.entries) > 0 {
			data := <-h.entries
			e := must(raftfsm.DecodeEntry(data))(t)
			if n += len(e.Commands); len(data) > l.batch+entryOverhead && len(e.Commands) > 1 {
				t.Errorf("an entry of %d commands has %d bytes; at most %d are allowed", len(e.Commands), len(data), l.batch)
			}
		}
		equal(t, n, 41, "%d commands were written")
	})
}

// The bytes that wait in the proposer are bounded: for all sessions together,
// with room left for the master's own commands, and for each session.
func TestPendingBytesAreBounded(t *testing.T) {
	l := limits{command: 10_000, batch: 1, claims: 1, pending: 80_000, share: 20_000}
	inProposer(t, l, func(t *testing.T, p *proposer, h *heldEntries) {
		ask := func(by api.SessionID, size int) error {
			return p.enqueue(newProposal(sized(by, size), raftfsm.MaxLevel, false, nil))
		}
		if err := ask(9, 1); err != nil { // it is on its way, and no longer waits
			t.Fatal(err)
		}
		synctest.Wait()
		took := map[api.SessionID]int{}
		for range 10 {
			for by := api.SessionID(1); by <= 4; by++ {
				if err := ask(by, 4_000); err == nil {
					took[by]++
				} else if !errors.Is(err, api.Unavailable) {
					t.Fatal(err)
				}
			}
		}
		if one, all := took[1], took[1]+took[2]+took[3]+took[4]; one != 4 || all != 14 {
			t.Errorf("of one session %d changes of 4,000 bytes wait, of all %d; want 4 (20,000 bytes each) and 14 (60,000 for all)", one, all)
		}
		failIf(t, !hand(p, sized(0, 9_000)), "there is no room for the master's own commands")
		for range 100 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		if p.bytes != 0 || len(p.shares) != 0 {
			t.Errorf("%d bytes, and shares of %d sessions, are counted as waiting when nothing does", p.bytes, len(p.shares))
		}
		report(t, ask(1, 4_000), "there is room again, and a change is refused")
	})
}

// hand hands one of the master's own commands to a proposer.
func hand(p *proposer, c raftfsm.Command) bool {
	return p.enqueue(newProposal(c, raftfsm.MaxLevel, true, nil)) == nil
}

// untimed puts entries into a log, at no time.
func untimed(log Log) entries {
	return entries{
		log: log, epoch: 1, wall: func() int64 { return 1 }, clock: func() session.Instant { return 0 },
		phases: func() steps.Phases { return steps.Phases{} },
	}
}
