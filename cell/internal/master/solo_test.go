package master

import (
	"context"
	"io"
	"log/slog"
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
	starting hook                    // before a master that was made begins
	log      *slog.Logger
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

func (s *soloMaster) Then(then func(session.Instant, error)) {
	go func() { then(s.Prove(context.Background())) }()
}

// inSolo runs a test in virtual time with a master that has taken over a cell after prepare.
func inSolo(t *testing.T, prepare func(s *raftfsm.State), test func(t *testing.T, m *soloMaster)) {
	t.Helper()
	inSoloLogged(t, slog.New(slog.NewTextHandler(io.Discard, nil)), prepare, test)
}

// inSoloLogged is inSolo with a log.
func inSoloLogged(t *testing.T, log *slog.Logger, prepare func(s *raftfsm.State), test func(t *testing.T, m *soloMaster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, state := &soloMaster{log: log}, elected(raftfsm.NewState(), 1)
		if prepare != nil {
			prepare(state)
		}
		s.fsm.Store(state)
		s.begin(t.Context(), 1)
		defer func() {
			s.end(nil)
			s.Wait()
		}()
		test(t, s)
	})
}

// elected returns the state after the first command of the master of an epoch.
func elected(s raftfsm.State, number api.Epoch) *raftfsm.State {
	s.Apply(s.Applied+1, uint64(number), raftfsm.Entry{Epoch: number, Commands: []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}},
	}})
	return &s
}

// begin begins an epoch that is in the state, and returns when all its goroutines have begun.
func (s *soloMaster) begin(ctx context.Context, number api.Epoch) {
	ctx, s.end = context.WithCancelCause(ctx)
	s.Master = New(ctx, Config{
		Epoch: number, Cell: "local", State: s.look, Log: s, Fence: s, Wall: func() int64 { return 0 },
		Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano() + s.lost.Load()) },
		Logger: s.log, Metrics: uncounted{},
	})
	s.starting.run()
	s.Start()
	synctest.Wait()
}

// failOver ends the epoch and begins the next. Nobody else uses the master meanwhile.
func (s *soloMaster) failOver(t *testing.T) {
	t.Helper()
	s.end(api.Errorf(api.NotMaster, "deposed"))
	s.Wait()
	synctest.Wait()
	number := s.epoch.number + 1
	s.fsm.Store(elected(*s.fsm.Load(), number))
	s.begin(t.Context(), number)
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

// lockers returns three clients, kept alive, that have the same file open.
func lockers(t *testing.T, m *soloMaster) (clients []*soloClient, handles []Handle) {
	t.Helper()
	for i := range byte(3) {
		c := m.client(t, i+1)
		go c.keep(t.Context())
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
