package master

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// crowdEpoch is one master, and its log and fence.
type crowdEpoch struct {
	*Master
	w     *crowd
	end   context.CancelCauseFunc
	apply sync.Mutex // guards deposed
	// A deposed master's entries are no longer written. It does not learn the
	// result of the one that was on its way.
	deposed bool
}

// Append implements Log.
func (l *crowdEpoch) Append(data []byte) ([]raftfsm.Result, error) {
	l.w.upTo(3 * time.Millisecond)
	if l.w.percent(int(l.w.refusals.Load())) {
		return nil, notAppended
	}
	defer l.w.checkUsable() // before the master learns of it
	l.apply.Lock()
	defer l.apply.Unlock()
	if l.deposed {
		return nil, notAppended
	}
	results := l.w.write(data, uint64(l.epoch.number))
	if l.w.refusals.Load() > 0 && l.w.percent(1) {
		l.deposed = true // written, but its master does not learn of it
		return nil, errResultLost
	}
	return results, nil
}

// Close implements Log.
func (l *crowdEpoch) Close(error) {}

func (l *crowdEpoch) Prove(ctx context.Context) (session.Instant, error) {
	t0 := l.epoch.clock()
	l.w.upTo(time.Millisecond)
	l.apply.Lock()
	defer l.apply.Unlock()
	switch {
	case l.deposed:
		return 0, api.Errorf(api.NotMaster, "deposed")
	case ctx.Err() != nil:
		return 0, api.Errorf(api.Unavailable, "gave up")
	}
	return t0, nil
}

func (l *crowdEpoch) isDeposed() bool {
	l.apply.Lock()
	defer l.apply.Unlock()
	return l.deposed
}

func (w *crowd) write(data []byte, term uint64) []raftfsm.Result {
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	next := *w.state.Load()
	results := next.Apply(next.Applied+1, term, e)
	w.state.Store(&next)
	return results
}

// elect begins another epoch on the state that the present one has left. The old master learns of
// it at once, or some time later: meanwhile it answers its callers as far as it can, and sees what
// its successor does.
func (w *crowd) elect() {
	var before *crowdEpoch
	if was := w.master(); was != nil {
		was.apply.Lock()
		was.deposed = true
		was.apply.Unlock()
		resign := func() {
			was.end(api.Errorf(api.NotMaster, "deposed"))
			was.Wait()
		}
		if w.percent(50) {
			resign()
		} else {
			before = was
			w.work.Go(func() {
				w.upTo(30 * time.Second)
				w.mu.Lock()
				if w.before == was {
					w.before = nil
				}
				w.mu.Unlock()
				resign()
			})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
	for _, c := range w.members {
		c.loyal = w.percent(50)
	}
	w.epoch++
	next := *w.state.Load()
	next.Apply(next.Applied+1, uint64(w.epoch), raftfsm.Entry{Epoch: w.epoch, Commands: []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}},
	}})
	w.state.Store(&next)
	ctx, end := context.WithCancelCause(w.ctx)
	l := &crowdEpoch{w: w, end: end}
	l.Master = New(ctx, Config{
		Epoch: w.epoch, Cell: "local", State: w.state.Load, Log: l, Fence: l, Wall: func() int64 { return 0 },
		Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano()) },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), SlowClient: w.slow,
	})
	if w.polite {
		l.epoch.mu.maxStepsOverride = 1
		l.epoch.mu.held = func(time.Duration) {
			for range w.below(6) {
				runtime.Gosched()
			}
		}
	}
	l.Start()
	w.current = l
	w.note("epoch %d", w.epoch)
	w.limit()
}

// limit sets the limits of the current master. w.mu is held.
func (w *crowd) limit() {
	m := w.current.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	m.epoch.proposer.mu.Lock()
	defer m.epoch.proposer.mu.Unlock()
	m.epoch.proposer.limits, m.tables.queues.claims, m.tables.boxes.mail.limit = w.limits, w.limits.claims, w.mail
}

func (w *crowd) master() *crowdEpoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// congest makes the proposer accept nothing but the master's own commands for a
// while.
func (w *crowd) congest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.limits
	w.limits.pending = w.below(300)
	w.note("congested: %d", w.limits.pending)
	w.limit()
	w.limits = was
	w.work.Go(func() {
		w.upTo(200 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.limit()
	})
}
