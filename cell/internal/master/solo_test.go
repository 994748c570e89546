package master

import (
	"context"
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
// written. Hooks let a test act at certain points.
type soloMaster struct {
	*Master
	fsm      atomic.Pointer[raftfsm.State]
	end      context.CancelCauseFunc // ends its epoch
	lost     atomic.Int64            // nanoseconds by which its clock is ahead of the bubble's
	losing   atomic.Bool             // entries are written, and their results are lost with the leadership
	proving  hook                    // while leadership is proved
	looking  hook                    // before the state is looked at
	applying hook                    // before an entry is applied
	wrote    atomic.Pointer[func(entry []byte)]
}

// hook is what a test does at a certain point. The master's goroutines pass there while the test sets it.
type hook struct{ do atomic.Pointer[func()] }

func (h *hook) set(do func()) { h.do.Store(&do) }
func (h *hook) clear()        { h.do.Store(nil) }

// once sets what is done once. It may set another.
func (h *hook) once(do func()) {
	h.set(func() {
		h.clear()
		do()
	})
}

func (h *hook) run() {
	if do := h.do.Load(); do != nil {
		(*do)()
	}
}

// errResultLost is the error of an entry whose results were lost with the leadership.
var errResultLost = api.Errorf(api.Uncertain, "leadership was lost")

func (s *soloMaster) Append(data []byte) ([]raftfsm.Result, error) {
	s.applying.run()
	if wrote := s.wrote.Load(); wrote != nil {
		(*wrote)(data)
	}
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	next := *s.fsm.Load()
	results := next.Apply(next.Applied+1, uint64(s.epoch.number), e)
	s.fsm.Store(&next)
	if s.losing.Load() {
		return nil, errResultLost
	}
	return results, nil
}

func (s *soloMaster) Close(error) {}

func (s *soloMaster) look() *raftfsm.State {
	s.looking.run()
	return s.fsm.Load()
}

func (s *soloMaster) Prove(context.Context) (session.Instant, error) {
	t0 := s.epoch.clock()
	s.proving.run()
	return t0, nil
}

// inSolo runs a test in virtual time with a master that has taken over a cell after prepare.
func inSolo(t *testing.T, prepare func(s *raftfsm.State), test func(t *testing.T, m *soloMaster)) {
	t.Helper()
	inSoloOf(t, slog.New(slog.NewTextHandler(io.Discard, nil)), prepare, test)
}

// inSoloLogged is inSolo of a new cell with a log.
func inSoloLogged(t *testing.T, log *slog.Logger, test func(t *testing.T, m *soloMaster)) {
	t.Helper()
	inSoloOf(t, log, nil, test)
}

func inSoloOf(t *testing.T, log *slog.Logger, prepare func(s *raftfsm.State), test func(t *testing.T, m *soloMaster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, state := &soloMaster{}, raftfsm.NewState()
		state.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}}}})
		if prepare != nil {
			prepare(&state)
		}
		s.fsm.Store(&state)
		s.begin(t.Context(), 1, log)
		defer func() {
			s.end(nil)
			s.Wait()
		}()
		test(t, s)
	})
}

// begin begins an epoch that is in the state, and returns when all its goroutines have begun.
func (s *soloMaster) begin(ctx context.Context, number api.Epoch, log *slog.Logger) {
	ctx, s.end = context.WithCancelCause(ctx)
	s.Master = New(ctx, Config{
		Epoch: number, Cell: "local", State: s.look, Log: s, Fence: s, Wall: func() int64 { return 0 },
		Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano() + s.lost.Load()) },
		Logger: log, Metrics: uncounted{},
	})
	s.Start()
	synctest.Wait()
}

// failOver ends the epoch and begins the next. Nobody else uses the master meanwhile.
func (s *soloMaster) failOver(t *testing.T) {
	t.Helper()
	s.end(api.Errorf(api.NotMaster, "deposed"))
	s.Wait()
	synctest.Wait()
	number, next := s.epoch.number+1, *s.fsm.Load()
	next.Apply(next.Applied+1, uint64(number), raftfsm.Entry{Epoch: number, Commands: []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}},
	}})
	s.fsm.Store(&next)
	s.begin(t.Context(), number, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// with applies commands to a state without a master.
func with(t *testing.T, s *raftfsm.State, commands ...raftfsm.Command) []raftfsm.Result {
	t.Helper()
	results := s.Apply(s.Applied+1, 1, raftfsm.Entry{Epoch: 1, Commands: commands})
	for _, r := range results {
		noErr(t, r.Answer.Err())
	}
	return results
}

func cachingSession(nonce byte) raftfsm.Command {
	return raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: append(make([]byte, 15), nonce), Principal: "p", Lease: 12 * time.Second, MayCache: true}}
}

// soloClient is a session whose calls the test makes.
type soloClient struct {
	m      *soloMaster
	who    Caller
	number api.RequestNumber
	acked  uint64
	grant  uint64

	mu   sync.Mutex // guards told
	told []*Event   // the events that keep has received
}

func (s *soloMaster) client(t *testing.T, nonce byte) *soloClient {
	t.Helper()
	id, grant, err := s.Sessions.Create(t.Context(), *cachingSession(nonce).CreateSession)
	noErr(t, err)
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
	return must(c.m.Files.Open(t.Context(), OpenRequest{
		Mutation: mutation, Path: api.MustParsePath(path),
		Handle: Handle{Owner: namespace.Owner{Session: c.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: create.Rights},
		Create: create,
	}))(t)
}

// write begins a write; its result arrives in the channel.
func (c *soloClient) write(ctx context.Context, h Handle) <-chan error {
	mutation := c.mutation()
	done := make(chan error, 1)
	go func() {
		_, err := c.m.Files.Change(ctx, h, namespace.ToWrite, mutation, raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: mutation, Node: h.Node}})
		done <- err
	}()
	return done
}

// heard returns the receipt that its KeepAlives carry: it acknowledges what it has received.
func (c *soloClient) heard() Receipt {
	return Receipt{Received: c.acked, Acknowledged: c.acked, Grant: c.grant}
}

// hear sends a KeepAlive and returns its events, without acknowledging them.
func (c *soloClient) hear(t *testing.T) []*Event {
	t.Helper()
	reply := must(c.m.Sessions.KeepAlive(t.Context(), c.who, c.heard(), nil))(t)
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

// KeepAlive serves a KeepAlive in one goroutine.
func (s *Sessions) KeepAlive(ctx context.Context, c Caller, h Receipt, conn Connection) (Extension, error) {
	k, err := s.Park(c, h, conn)
	if err != nil {
		return Extension{}, err
	}
	resumed := make(chan struct{})
	k.Notify(ctx, sync.OnceFunc(func() { close(resumed) }))
	<-resumed
	return k.Finish(ctx)
}

// congested runs a function while the proposer accepts nothing.
func (s *soloMaster) congested(do func()) {
	set := func(why error) {
		s.epoch.proposer.mu.Lock()
		defer s.epoch.proposer.mu.Unlock()
		s.epoch.proposer.closed = why
	}
	set(api.Errorf(api.Unavailable, "too much waits"))
	do()
	set(nil)
}

func (c *soloClient) claim(h Handle, mode api.LockMode) raftfsm.Claim {
	return raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: mode}
}

// requestFor returns a request for a lock. Its caller does not look at its place in the queue.
func requestFor(claim raftfsm.Claim, h Handle) AcquireRequest {
	return AcquireRequest{LockRequest: LockRequest{Claim: claim}, Handle: h, Queued: func(Queued) error { return nil }}
}

func (r AcquireRequest) quietIf(quiet bool) AcquireRequest {
	r.Quiet = quiet
	return r
}

func (r AcquireRequest) detectIf(detect bool) AcquireRequest {
	r.Detects = detect
	return r
}

func (c *soloClient) try(t *testing.T, h Handle, mode api.LockMode) raftfsm.Answer {
	t.Helper()
	claim := c.claim(h, mode)
	return must(c.m.Locks.TryAcquire(t.Context(), requestFor(claim, h)))(t)
}

// wait asks for a lock and waits in its queue; the answer arrives in the channel.
func (c *soloClient) wait(ctx context.Context, h Handle, claim raftfsm.Claim) <-chan lockAnswer {
	return c.waits(ctx, requestFor(claim, h))
}

func (c *soloClient) waits(ctx context.Context, r AcquireRequest) <-chan lockAnswer {
	done := make(chan lockAnswer, 1)
	go func() {
		a, err := c.m.Locks.Acquire(ctx, r)
		done <- lockAnswer{a, err}
	}()
	synctest.Wait()
	return done
}

type lockAnswer struct {
	raftfsm.Answer
	err error
}

// answered returns what is in the channel by now.
func answered(t *testing.T, done <-chan lockAnswer) lockAnswer {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case a := <-done:
		return a
	default:
		t.Fatal("no answer")
		return lockAnswer{}
	}
}

// lockers returns three clients, kept alive, that have the same file open.
func lockers(t *testing.T, m *soloMaster) (clients []*soloClient, handles []Handle) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for i := range byte(3) {
		c := m.client(t, i+1)
		go c.keep(ctx)
		clients, handles = append(clients, c), append(handles, c.open(t, "/ls/local/f", api.MayCreate).Handle)
	}
	return clients, handles
}

// withLockers is inSolo with the clients and the handles of lockers.
func withLockers(t *testing.T, test func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle)) {
	t.Helper()
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		test(t, m, c, h)
	})
}

// holdNextEntry has the next entry close entered and wait for leave before it is applied.
func (s *soloMaster) holdNextEntry() (entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	s.applying.once(func() {
		close(entered)
		<-leave
	})
	return entered, leave
}

func (s *soloMaster) holders() []namespace.Holder {
	node, _ := s.epoch.state().Tree.Get("/f")
	return node.Holders
}

// uncounted is the Metrics of a master whose counts nobody looks at.
type uncounted struct{}

func (uncounted) Proposed(int, error)                         {}
func (uncounted) SessionBegun()                               {}
func (uncounted) SessionEnded(api.EndReason, int)             {}
func (uncounted) LeaseExtended(int)                           {}
func (uncounted) LockGranted(api.Name, time.Duration, string) {}
func (uncounted) TurnEnded(api.Name, time.Duration)           {}
func (uncounted) ChangeWaited(time.Duration)                  {}
func (uncounted) Invalidated()                                {}
func (uncounted) EventDropped()                               {}
func (uncounted) MutexHeld(time.Duration)                     {}
func (uncounted) TakeoverCleared(time.Duration)               {}
