package master

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// A process that is stopped while its master takes over ends no session by that.
func TestStopDuringATakeoverEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, state := &soloMaster{}, raftfsm.NewState()
		state.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}}}})
		command := cachingSession(1)
		id := with(t, &state, command)[0].Session
		s.fsm.Store(&state)
		ctx, cancel := context.WithCancelCause(t.Context())
		s.end = cancel
		s.Master = New(ctx, Config{
			Epoch: 1, Cell: "local", State: s.fsm.Load, Log: s, Fence: s, Wall: func() int64 { return 0 },
			Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano() + s.lost.Load()) },
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		s.epoch.mu.maxStepsOverride = 1
		s.epoch.mu.held = func(time.Duration) { // a stop of a minute, once, in the midst of Start
			s.lost.CompareAndSwap(0, int64(time.Minute))
		}
		s.Start()
		s.epoch.mu.Lock()
		s.epoch.mu.held = nil
		s.epoch.mu.Unlock()
		defer s.Wait()
		defer cancel(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if s.lost.Load() == 0 {
			t.Fatal("no stop happened")
		}
		if _, lives := s.epoch.state().Sessions.Get(id); !lives {
			t.Error("a session with a lease of 12 s, inherited by this master, was ended within a second of its takeover, because the process was stopped during Start")
		}
	})
}
