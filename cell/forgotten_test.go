package cell

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// A client that asks again and again for the end of its session, while the log takes
// nothing, makes the master remember that once; and the session is ended when it can be.
func TestEndIsRememberedOnce(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.congested(func() {
			for range 100 {
				if err := m.endSession(t.Context(), c.who.session); api.CodeOf(err) != api.Unavailable {
					t.Fatal(err)
				}
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.unended) != 1 {
				t.Errorf("the end of one session is remembered %d times", len(m.unended))
			}
		})
		pass(session.MaxTick)
		synctest.Wait()
		if _, there := m.state().Sessions.Get(c.who.session); there {
			t.Error("it has not ended")
		}
	})
}

// What clients ask for does not take the room that is kept for the master's own commands.
func TestEndsLeaveRoom(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		l := tinyLimits()
		m.limit(l)
		entered, leave := make(chan struct{}), make(chan struct{})
		m.applying = func() {
			m.applying = nil
			close(entered)
			<-leave
		}
		end := func() { _ = m.endSession(t.Context(), c.who.session) }
		go end()
		<-entered
		for range l.pending / 10 {
			go end()
		}
		synctest.Wait()
		m.proposer.mu.Lock()
		bytes := m.proposer.bytes
		m.proposer.mu.Unlock()
		if bytes < l.pending/2 || bytes > l.pending*3/4 {
			t.Errorf("%d of %d bytes are taken; a quarter is the master's own", bytes, l.pending)
		}
		close(leave)
	})
}

// A change that was given up leaves nothing behind, however long the client is silent that
// it waited for.
func TestChangeThatIsGivenUpIsForgotten(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).handle
		reader.open(t, "/ls/local/f", api.MustExist)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			done := author.write(ctx, f)
			synctest.Wait()
			cancel()
			if err := <-done; api.CodeOf(err) != api.Unavailable {
				t.Fatal(err)
			}
		}
		m.mu.Lock()
		n := len(m.caches.copies["/f"][reader.who.session].waiting)
		m.mu.Unlock()
		if n != 0 {
			t.Errorf("%d changes are remembered that were given up", n)
		}
		wrote := author.write(t.Context(), f)
		reader.acknowledge(t, reader.hear(t))
		if stillWaits(wrote) {
			t.Error("one that was not given up waits still")
		}
	})
}
