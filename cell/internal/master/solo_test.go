package master

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// soloMaster is a master of a cell of one, whose log is applied as it is
// written. What a test wants to happen at a certain point happens in a hook.
type soloMaster struct {
	*Master
	fsm      atomic.Pointer[raftfsm.State]
	end      context.CancelCauseFunc // ends its epoch
	lost     atomic.Int64            // nanoseconds by which its clock is ahead of the bubble's
	losing   atomic.Bool             // entries are written, and their results lost with the leadership
	proving  func()                  // while leadership is proved
	applying func()                  // before an entry is applied
	wrote    atomic.Pointer[func(entry []byte)]
}

// errResultLost is the error of an entry whose results were lost with the leadership.
var errResultLost = api.Errorf(api.Uncertain, "leadership was lost")

func (s *soloMaster) Append(data []byte) ([]raftfsm.Result, error) {
	if s.applying != nil {
		s.applying()
	}
	if wrote := s.wrote.Load(); wrote != nil {
		(*wrote)(data)
	}
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	next := *s.fsm.Load()
	results := next.Apply(next.Applied+1, 1, e)
	s.fsm.Store(&next)
	if s.losing.Load() {
		return nil, errResultLost
	}
	return results, nil
}

func (s *soloMaster) Close(error) {}

func (s *soloMaster) Prove(context.Context) (session.Instant, error) {
	t0 := s.epoch.clock()
	if s.proving != nil {
		s.proving()
	}
	return t0, nil
}

// inSolo runs a test in virtual time with a master that has taken over a cell in
// which prepare was done.
func inSolo(t *testing.T, prepare func(s *raftfsm.State), test func(t *testing.T, m *soloMaster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, state := &soloMaster{}, raftfsm.NewState()
		state.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}}}})
		if prepare != nil {
			prepare(&state)
		}
		s.fsm.Store(&state)
		ctx, cancel := context.WithCancelCause(t.Context())
		s.end = cancel
		s.Master = New(ctx, Config{
			Epoch: 1, Cell: "local", CellID: "c", State: s.fsm.Load, Log: s, Fence: s, Wall: func() int64 { return 0 },
			Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano() + s.lost.Load()) },
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		s.Start()
		defer s.Wait()
		defer cancel(nil)
		test(t, s)
	})
}

// with applies commands to a state that nobody is master of.
func with(t *testing.T, s *raftfsm.State, commands ...raftfsm.Command) []raftfsm.Result {
	t.Helper()
	results := s.Apply(s.Applied+1, 1, raftfsm.Entry{Epoch: 1, Commands: commands})
	for _, r := range results {
		if err := r.Answer.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return results
}

func cachingSession(nonce byte) raftfsm.Command {
	return raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: append(make([]byte, 15), nonce), Principal: "p", Lease: 12 * time.Second, MayCache: true}}
}

// soloClient is a session that is driven by hand.
type soloClient struct {
	m      *soloMaster
	who    Caller
	number api.RequestNumber
	acked  uint64
	grant  uint64

	mu   sync.Mutex // guards told
	told []*Event   // that keep has heard
}

func (s *soloMaster) client(t *testing.T, nonce byte) *soloClient {
	t.Helper()
	id, grant, err := s.Sessions.Create(t.Context(), *cachingSession(nonce).CreateSession)
	if err != nil {
		t.Fatal(err)
	}
	return &soloClient{m: s, who: Caller{Session: id, Epoch: 1}, grant: grant.Number}
}

func (c *soloClient) mutation() session.Mutation {
	c.number++
	return session.Mutation{Session: c.who.Session, Number: c.number, HighestIssued: c.number, Outstanding: []api.RequestNumber{c.number}, Hash: 1}
}

func (c *soloClient) open(t *testing.T, path string, create api.Create) Opened {
	t.Helper()
	return c.opens(t, path, raftfsm.Open{Create: create, Kind: api.File})
}

func (c *soloClient) openEphemeral(t *testing.T, path string) Handle {
	t.Helper()
	return c.opens(t, path, raftfsm.Open{Create: api.MayCreate, Kind: api.File, Ephemeral: true}).Handle
}

func (c *soloClient) opens(t *testing.T, path string, create raftfsm.Open) Opened {
	t.Helper()
	mutation := c.mutation()
	create.Rights = namespace.ToRead | namespace.ToWrite
	o, err := c.m.Files.Open(t.Context(), OpenRequest{
		Mutation: mutation, Path: api.MustParsePath(path),
		Handle: Handle{Owner: namespace.Owner{Session: c.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: create.Rights},
		Create: create,
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// write begins a write; what comes of it arrives in the channel.
func (c *soloClient) write(ctx context.Context, h Handle) <-chan error {
	mutation := c.mutation()
	done := make(chan error, 1)
	go func() {
		_, err := c.m.Files.Change(ctx, h, namespace.ToWrite, mutation, raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: mutation, Node: h.Node}})
		done <- err
	}()
	return done
}

// heard is what its KeepAlives say: it acknowledges what it has received.
func (c *soloClient) heard() Receipt {
	return Receipt{Received: c.acked, Acknowledged: c.acked, Grant: c.grant}
}

// hear sends a KeepAlive and takes its events, without acknowledging them.
func (c *soloClient) hear(t *testing.T) []*Event {
	t.Helper()
	reply, err := c.m.Sessions.KeepAlive(t.Context(), c.who, c.heard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if g := reply.Grant; g != nil {
		c.grant = g.Number
	}
	return reply.Events
}

// acknowledge sends the KeepAlive that acknowledges, and leaves it parked.
func (c *soloClient) acknowledge(t *testing.T, events []*Event) {
	t.Helper()
	c.acked = events[len(events)-1].Sequence
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = c.m.Sessions.KeepAlive(ctx, c.who, c.heard(), nil) }()
	synctest.Wait()
	cancel()
	synctest.Wait()
}

func stillWaits(done <-chan error) bool {
	synctest.Wait()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// Whoever reads is known to have a copy before anything is looked at, or a change
// between the look and the note would pass it by.
func TestReaderIsKnownBeforeItLooks(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		author.open(t, "/ls/local/f", api.MayCreate)
		known := func() bool {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			return m.tables.copyset.names[reader.who.Session]["/f"] != nil
		}
		m.proving = func() {
			if !known() {
				t.Error("a reader looked before it was known")
			}
		}
		o := reader.open(t, "/ls/local/f", api.MustExist)
		m.epoch.mu.Lock()
		m.tables.copyset.drop(reader.who.Session, maxCopies)
		m.epoch.mu.Unlock()
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), o.Handle, namespace.ToRead); err != nil || !cacheable {
			t.Error(cacheable, err)
		}
		m.proving = nil
	})
}

// Chubby §2.7: a change waits until a caching client has acknowledged; that it
// was told is not enough, nor is it enough for the next change that another has
// waited before, and has given up.
func TestChangeWaitsForAcknowledgement(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		ctx, cancel := context.WithCancel(t.Context())
		first := author.write(ctx, f)
		if !stillWaits(first) {
			t.Fatal("it waited for nobody")
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-first; !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		second := author.write(t.Context(), f)
		events := reader.hear(t)
		if len(events) != 1 || events[0].Kind != api.EventCacheInvalidation || events[0].Path != "/ls/local/f" {
			t.Fatalf("%v", events)
		}
		if !stillWaits(second) {
			t.Fatal("it waited for nobody, because another change had")
		}
		if again := reader.hear(t); len(again) != 1 || !stillWaits(second) {
			t.Fatalf("told %d again; it was not acknowledged", len(again))
		}
		reader.acknowledge(t, events)
		if stillWaits(second) {
			t.Fatal("it still waits")
		}
	})
}

// What was refused stays refused, although an earlier copy of the request waits
// and could be done by now: its author was told that it was not.
func TestRefusalIsForGood(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader, locker := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		lock := locker.open(t, "/ls/local/f", api.MustExist).Handle
		mutation := author.mutation()
		remove := func() <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := m.Files.Change(t.Context(), f, namespace.ToWrite, mutation, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: mutation, Node: f.Node, Handle: f.Owner.Handle}})
				done <- err
			}()
			return done
		}
		first := remove()
		if !stillWaits(first) {
			t.Fatal("it waited for nobody")
		}
		claim := raftfsm.Claim{Mutation: locker.mutation(), Handle: lock.Owner.Handle, Mode: api.Exclusive}
		granted, err := m.Locks.TryAcquire(t.Context(), claim, lock)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-remove(); !errors.Is(err, api.LockHeld) {
			t.Fatalf("delete of a node whose lock another holds: %v", err)
		}
		if err := m.Locks.Release(t.Context(), locker.mutation(), lock, granted.Generation); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*soloClient{reader, locker} {
			c.acknowledge(t, c.hear(t))
		}
		if err := <-first; !errors.Is(err, api.LockHeld) {
			t.Errorf("the copy that waited: %v", err)
		}
		if _, there := m.epoch.state().Tree.Get("/f"); !there {
			t.Error("it was done after it had been refused")
		}
	})
}

// A node is uncacheable until its change has been applied, also when the author
// has gone away meanwhile.
func TestUncacheableUntilApplied(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		h := reader.open(t, "/ls/local/f", api.MustExist).Handle
		m.epoch.mu.Lock()
		m.tables.copyset.drop(reader.who.Session, maxCopies)
		m.epoch.mu.Unlock()
		entered, leave := make(chan struct{}), make(chan struct{})
		m.applying = func() {
			m.applying = nil
			close(entered)
			<-leave
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := author.write(ctx, f)
		<-entered
		cancel()
		if err := <-done; !errors.Is(err, api.Uncertain) {
			t.Fatal(err)
		}
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || cacheable {
			t.Errorf("cacheable %v while a change is on its way: %v", cacheable, err)
		}
		close(leave)
		synctest.Wait()
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || !cacheable {
			t.Errorf("cacheable %v after the change: %v", cacheable, err)
		}
	})
}

// Chubby §2.9, steps 5 and 6: after a fail-over a change waits until every
// session that may cache has acknowledged it; decision 12: nothing else does.
func TestChangeWaitsForFlush(t *testing.T) {
	var old api.SessionID
	inSolo(t, func(s *raftfsm.State) { old = with(t, s, cachingSession(9))[0].Session }, func(t *testing.T, m *soloMaster) {
		before := &soloClient{m: m, who: Caller{Session: old, Epoch: 1}}
		author := m.client(t, 1)
		mutation := author.mutation()
		created := make(chan error, 1)
		go func() {
			_, err := m.Files.Open(t.Context(), OpenRequest{
				Mutation: mutation, Path: api.MustParsePath("/ls/local/f"),
				Handle: Handle{Owner: namespace.Owner{Session: author.who.Session, Handle: 1}, Rights: namespace.ToWrite},
				Create: raftfsm.Open{Create: api.MayCreate, Kind: api.File, Rights: namespace.ToWrite},
			})
			created <- err
		}()
		events := before.hear(t)
		if len(events) != 1 || events[0].Kind != api.EventMasterFailedOver {
			t.Fatalf("%v", events)
		}
		if !stillWaits(created) {
			t.Fatal("a change waited for nobody")
		}
		author.open(t, "/ls/local/acl/everyone", api.MustExist) // no change
		before.acknowledge(t, events)
		if stillWaits(created) {
			t.Fatal("it still waits")
		}
	})
}

// The end of an ephemeral file is a change like any other (decision 11).
func TestEphemeralDeathWaitsForCaches(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		owner, reader := m.client(t, 1), m.client(t, 2)
		mutation := owner.mutation()
		o, err := m.Files.Open(t.Context(), OpenRequest{
			Mutation: mutation, Path: api.MustParsePath("/ls/local/e"),
			Handle: Handle{Owner: namespace.Owner{Session: owner.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: namespace.ToRead},
			Create: raftfsm.Open{Create: api.MayCreate, Kind: api.File, Ephemeral: true, Rights: namespace.ToRead},
		})
		if err != nil {
			t.Fatal(err)
		}
		reader.open(t, "/ls/local/acl/everyone", api.MustExist)
		m.coherence.registerReader(reader.who.Session, "/e", "")
		if err := m.Files.Close(t.Context(), owner.mutation(), o.Handle); err != nil {
			t.Fatal(err)
		}
		owner.acknowledge(t, owner.hear(t))
		events := reader.hear(t)
		synctest.Wait()
		if _, there := m.epoch.state().Tree.Get("/e"); !there || len(events) != 2 {
			t.Fatalf("there %v, told %v", there, events)
		}
		reader.acknowledge(t, events)
		if _, there := m.epoch.state().Tree.Get("/e"); there {
			t.Error("it is still there")
		}
	})
}

// A longer lease is granted only after the entry that says so has committed: the
// next master starts from what the log knows (decision 6).
func TestLongerLeaseIsInTheLogFirst(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.Sessions.keepAlives = 0.02 // one session of 12 s sends more
		var granted time.Duration
		for range 5 {
			synctest.Wait()
			s, _ := m.epoch.state().Sessions.Get(c.who.Session)
			reply, err := m.Sessions.KeepAlive(t.Context(), c.who, Receipt{}, nil) // as if the reply before had been lost: it is answered at once
			if err != nil {
				t.Fatal(err)
			}
			granted = reply.Grant.Lease
			if granted > s.Lease {
				t.Fatalf("granted %v when the log knew of %v", granted, s.Lease)
			}
		}
		if granted != api.MaxLease {
			t.Errorf("granted %v at last", granted)
		}
	})
}

// Chubby §2.8: a client cannot keep its session without acknowledging what it was
// told: until it has, nothing is extended.
func TestNothingIsExtendedUnacknowledged(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		done := author.write(t.Context(), f)
		events := reader.hear(t) // what it had heard before is extended with this reply
		for range 3 {
			time.Sleep(time.Second)
			if reply, err := m.Sessions.KeepAlive(t.Context(), reader.who, Receipt{Grant: reader.grant}, nil); err != nil || reply.Grant != nil || len(reply.Events) != 1 {
				t.Fatalf("%v, %v", reply, err)
			}
		}
		before := reader.grant
		reader.acked = events[0].Sequence
		time.Sleep(time.Second)
		reader.hear(t) // it is parked until the lease is due, and so asks for a sign of life
		reader.hear(t) // which this is
		if reader.grant <= before {
			t.Error("acknowledged, and not extended")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A lease counts from the start of the proof behind it, however long that takes:
// another may have been elected since (session, M1).
func TestLeaseCountsFromTheProof(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.proving = func() { time.Sleep(3 * time.Second) }
		began := m.epoch.clock()
		reply, err := m.Sessions.KeepAlive(t.Context(), c.who, Receipt{}, nil)
		m.proving = nil
		if err != nil {
			t.Fatal(err)
		}
		g := reply.Grant
		if g.Parked > time.Second {
			t.Errorf("the lease is said to begin %v after the request", g.Parked)
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if end, _ := m.tables.leases.End(c.who.Session); end > began.Add(g.Lease) {
			t.Errorf("the lease ends %v after the proof began", end.Sub(began))
		}
	})
}

// Whatever was handed over when an epoch ends is answered, also what came while
// the last entry was on its way.
func TestProposalsAreAnsweredAtTheEnd(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := newProposer(m, 1, func() int64 { return 0 }, func([]raftfsm.Command, []raftfsm.Result, error) {})
		c := raftfsm.Command{EndSessions: &raftfsm.EndSessions{}}
		propose := func() error {
			one := newProposal(c, raftfsm.MaxLevel, false, nil)
			if err := p.enqueue(one); err != nil {
				return err
			}
			_, err := one.await(t.Context())
			return err
		}
		late := make(chan error, 1)
		m.applying = func() {
			m.applying = nil
			go func() { late <- propose() }()
			synctest.Wait()
			cancel(api.Errorf(api.NotMaster, "deposed"))
		}
		go p.runProposer(ctx)
		if err := propose(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-late:
			if !errors.Is(err, api.NotMaster) {
				t.Error(err)
			}
		default:
			t.Fatal("a proposal was forgotten")
		}
	})
}

// Replies that are due at about the same time are sent together, never late: so
// very many sessions cost a master less.
func TestRepliesDueTogether(t *testing.T) {
	const lease = 12 * time.Second
	for due := session.Instant(0); due < session.Instant(time.Second); due += session.Instant(7 * time.Millisecond) {
		at := alignDue(due, lease)
		if at > due || due.Sub(at) >= lease/48 || alignDue(at, lease) != at {
			t.Fatalf("due at %d, sent at %d", due, at)
		}
	}
}

// Chubby §2.9, step 8: a handle of an earlier master's is made again when it is
// used, and stays closed once it was closed in this epoch, whatever is late.
func TestHandleOfAnEarlierEpoch(t *testing.T) {
	var id api.SessionID
	inSolo(t, func(s *raftfsm.State) { id = with(t, s, cachingSession(9))[0].Session }, func(t *testing.T, m *soloMaster) {
		c := &soloClient{m: m, who: Caller{Session: id, Epoch: 1}}
		node, _ := m.epoch.state().Tree.Get("/acl/everyone")
		h := Handle{Owner: namespace.Owner{Session: id, Handle: 1}, Node: node.Ref(), Rights: namespace.ToRead, Epoch: 0}
		if _, err := m.Files.Read(t.Context(), h, namespace.ToRead); err != nil {
			t.Fatal(err)
		}
		if err := m.Files.Close(t.Context(), c.mutation(), h); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Files.Read(t.Context(), h, namespace.ToRead); !errors.Is(err, api.HandleClosed) {
			t.Errorf("after it was closed: %v", err)
		}
	})
}
