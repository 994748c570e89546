package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// crowd opens sessions over one Cell, each with a handle and its own record.
func (f *fake) crowd(n int) (cell *Cell, clients []*Client, handles []*Handle, records []*record) {
	f.t.Helper()
	cell = f.dialled(f.config())
	for range n {
		cfg, r := f.recorded()
		c := f.session(cell, cfg.Session())
		h := ok(c.Open(f.t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File, LockDelay: time.Second}))(f.t)
		clients, handles, records = append(clients, c), append(handles, h), append(records, r)
	}
	return cell, clients, handles, records
}

// connections returns how many were made, to whichever address.
func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, list := range f.conns {
		n += len(list)
	}
	return n
}

// Sessions of one Cell share its connections, and end one by one: what becomes of
// one is nothing to the others.
func TestSessionsOfOneCell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell, clients, handles, records := f.crowd(20)
		if n := f.connections(); n > len(addresses())+1 && !*withoutFrames { // one more to the master, for calls
			t.Errorf("%d connections", n)
		}
		closeClient(t, clients[0])
		clients[1].session.endSession(EndedByCell, "as a test")
		closeClient(t, clients[1])
		for _, s := range f.all() {
			if s.id == uint64(clients[2].Session()) {
				f.locked(func() { s.doom() })
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(clients[2].Err(), EndedByCell) || !errors.Is(clients[0].Err(), Closed) {
			t.Errorf("ended with %v and %v", clients[0].Err(), clients[2].Err())
		}
		closeClient(t, clients[2])
		for i, h := range handles[3:] {
			if _, err := h.SetContents(t.Context(), nil); err != nil || len(records[i+3].states()) > 0 {
				t.Errorf("session %d: %v, states %v", i+3, err, records[i+3].states())
			}
		}
		wants(t, "the Cell was closed with its sessions", cell.CheckSequencer(t.Context(), "x"), api.BadSequencer)
	})
}

// all returns all sessions.
func (f *fake) all() (list []*fakeSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sessions {
		list = append(list, s)
	}
	return list
}

// Sessions of one Cell differ in what is their own.
func TestSessionConfig(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable = true
		cfg := f.config()
		cfg.Lease, cfg.NoCache = 50*time.Second, true
		cell := f.dialled(cfg)
		long := f.session(cell, cfg.Session())
		short := f.session(cell, SessionConfig{Lease: 5 * time.Second, Clock: cfg.Clock})
		if long.Lease() != 50*time.Second || short.Lease() != 5*time.Second || long.cache.enabled() || !short.cache.enabled() {
			t.Errorf("leases %v and %v, caches %v and %v", long.Lease(), short.Lease(), long.cache.enabled(), short.cache.enabled())
		}
		wants(t, "a faulty configuration", second(cell.NewSession(t.Context(), SessionConfig{Lease: time.Nanosecond})), api.InvalidArgument)
	})
}

// When the master hangs, one session finds out, and all of them follow to the
// next, by one search: nobody's lease runs out, and no lock is lost.
func TestFailOverOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, clients, handles, records := f.crowd(20)
		l := acquired(t, handles[0])
		time.Sleep(time.Second)
		f.at("a:1", hang)           // it answers nothing any more, and breaks no connection
		time.Sleep(7 * time.Second) // all KeepAlives are with it, and hang
		f.elect("b:1")
		asked := len(f.heard("Locate"))
		// One call finds the new master, after which no KeepAlive is left with the old one.
		began := time.Now()
		if _, err := handles[7].SetContents(t.Context(), nil); err != nil || time.Since(began) > defaultCallTimeout+time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i, c := range clients {
			if c.Epoch() != 6 || c.Stats().FailOvers != 1 || len(records[i].states()) > 0 {
				t.Errorf("session %d: epoch %d, %+v, states %v", i, c.Epoch(), c.Stats(), records[i].states())
			}
		}
		if n := len(f.heard("Locate")) - asked; n > 4*len(addresses()) {
			t.Errorf("%d questions for the master by %d sessions", n, len(clients))
		}
		f.script(nil)
		for i := range 3 { // and now one after the other, connections and all
			f.cut(addresses()[(i+1)%3])
			f.elect(addresses()[(i+2)%3])
			time.Sleep(5 * time.Second)
			f.heal()
		}
		synctest.Wait()
		wants(t, "the lock", l.Err(), nil)
		for i, c := range clients {
			if c.State() != session.Safe || c.Stats().FailOvers != 4 || len(records[i].states()) > 0 {
				t.Errorf("session %d: %v, %+v, states %v", i, c.State(), c.Stats(), records[i].states())
			}
		}
	})
}

// A Cell that is closed takes its sessions along, for this process; the cell is
// not told.
func TestCellClosedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell, clients, handles, records := f.crowd(3)
		l := acquired(t, handles[0])
		f.on("SetContents", hang)
		waits := make(chan error)
		go func() { _, err := handles[1].SetContents(t.Context(), nil); waits <- err }()
		synctest.Wait()
		_ = cell.Close()
		if err := <-waits; !errors.Is(err, api.SessionExpired) || !errors.Is(err, Closed) {
			t.Errorf("a call that waits: %v", err)
		}
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); !errors.Is(cause, Closed) {
			t.Errorf("the lock: %v", cause)
		}
		wants(t, "another session", second(cell.NewSession(t.Context(), f.config().Session())), Closed)
		late := f.dialled(f.config())
		f.on("CreateSession", then(late.sessions.endAll)) // as Close does, when the answer is on its way
		wants(t, "a session that comes too late", second(late.NewSession(t.Context(), f.config().Session())), Closed)
		for i, c := range clients {
			began := time.Now()
			if err := c.Close(t.Context()); !errors.Is(err, api.Unavailable) || !errors.Is(c.Err(), Closed) || time.Since(began) > 0 {
				t.Errorf("session %d: %v after %v; %v", i, err, time.Since(began), c.Err())
			}
			if len(records[i].states()) > 0 {
				t.Errorf("states %v", records[i].states())
			}
		}
		if n := len(f.heard("EndSession")); n != 0 {
			t.Errorf("%d sessions were ended at the cell", n)
		}
	})
}

// A session that is closed before it has heard of a new master is ended there.
func TestCloseAfterFailOver(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.elect("b:1")
		began := time.Now()
		if closeClient(t, c); time.Since(began) > time.Second {
			t.Errorf("Close took %v", time.Since(began))
		}
	})
}

// What Stats counts.
func TestStats(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cacheable = true
		h := watching(t, c)
		for range 3 {
			must(t, second(h.Stat(t.Context())))
		}
		time.Sleep(8 * time.Second)
		if s := c.Stats(); s.KeepAlives != 2 || s.KeepAlivesFailed+s.Jeopardies+s.Rescues+s.FailOvers != 0 || s.Attempts != 2 || s.Cache.Hits != 2 || s.Cache != c.Stats().Cache {
			t.Errorf("in peace: %+v", s)
		}
		f.cut(addresses()...)
		time.Sleep(20 * time.Second)
		f.elect("b:1")
		f.heal()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := c.Stats(); s.KeepAlivesFailed == 0 || s.KeepAlivesFailed >= s.KeepAlives || s.Jeopardies != 1 || s.Rescues != 1 || s.FailOvers != 1 {
			t.Errorf("after jeopardy: %+v", s)
		}
	})
}

// A Cell has as many sessions as its connection to the master can keep alive.
func TestSessionsOfACellAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell, clients, _, _ := f.crowd(3)
		cell.sessions.max = 3
		wants(t, "a fourth session", second(cell.NewSession(t.Context(), f.config().Session())), api.QuotaExceeded)
		closeClient(t, clients[0])
		f.on("CreateSession", hang)
		if _, err := cell.NewSession(bounded(t, time.Second), f.config().Session()); err == nil || errors.Is(err, api.QuotaExceeded) {
			t.Errorf("a session that the master does not open: %v", err)
		}
		f.script(nil)
		f.session(cell, f.config().Session()) // after one was closed, and one was not opened
	})
}

// A session that was lost takes no place of its Cell, although its owner has not closed it
// yet: he may open the next one first.
func TestLostSessionsTakeNoPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell, clients, _, _ := f.crowd(3)
		cell.sessions.max = len(clients)
		f.cut(addresses()...)
		for _, c := range clients {
			<-c.Done()
		}
		time.Sleep(time.Second) // what they were sending ends
		f.heal()
		for range len(clients) {
			f.session(cell, f.config().Session())
		}
	})
}
