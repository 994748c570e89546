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
	proving  func()                  // while leadership is proved
	looking  func()                  // before the state is looked at
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
	results := next.Apply(next.Applied+1, uint64(s.epoch.number), e)
	s.fsm.Store(&next)
	if s.losing.Load() {
		return nil, errResultLost
	}
	return results, nil
}

func (s *soloMaster) Close(error) {}

func (s *soloMaster) look() *raftfsm.State {
	if s.looking != nil {
		s.looking()
	}
	return s.fsm.Load()
}

func (s *soloMaster) Prove(context.Context) (session.Instant, error) {
	t0 := s.epoch.clock()
	if s.proving != nil {
		s.proving()
	}
	return t0, nil
}

// inSolo runs a test in virtual time with a master that has taken over a cell
// after prepare.
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

// begin begins an epoch that is in the state.
func (s *soloMaster) begin(ctx context.Context, number api.Epoch, log *slog.Logger) {
	ctx, s.end = context.WithCancelCause(ctx)
	s.Master = New(ctx, Config{
		Epoch: number, Cell: "local", State: s.look, Log: s, Fence: s, Wall: func() int64 { return 0 },
		Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano() + s.lost.Load()) },
		Logger: log,
	})
	s.Start()
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
		if err := r.Answer.Err(); err != nil {
			t.Fatal(err)
		}
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

// heard returns the receipt that its KeepAlives carry: it acknowledges what it
// has received.
func (c *soloClient) heard() Receipt {
	return Receipt{Received: c.acked, Acknowledged: c.acked, Grant: c.grant}
}

// hear sends a KeepAlive and returns its events, without acknowledging them.
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

// KeepAlive serves a KeepAlive as over gRPC.
func (s *Sessions) KeepAlive(ctx context.Context, c Caller, h Receipt, conn Connection) (Extension, error) {
	k, err := s.Park(c, h, conn)
	if err != nil {
		return Extension{}, err
	}
	k.Wait(ctx)
	return k.Finish(ctx)
}
