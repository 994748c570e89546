package celltest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// TestLocalNamesTheCell: in a cell that has another name, /ls/local/... and
// /ls/<its name>/... name the same nodes (Chubby §2.3). A third name is
// refused.
func TestLocalNamesTheCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Cell = "berlin" })
		alias := dial(t, c, "alias")
		put(t, alias.open(t, "/ls/local/file", 0), "written by the alias")

		named := testbed.Must(client.New(t.Context(), client.Config{Cell: "berlin", Servers: c.Servers(), Dialer: c.DialFrom("named")}))(t)
		defer named.Close(t.Context())
		for _, path := range []string{"/ls/berlin/file", "/ls/local/file"} {
			h := testbed.Must(named.Open(t.Context(), path, client.OpenOptions{Read: true, Write: true}))(t)
			contents(t, h, "written by the alias")
			if _, err := h.TryAcquire(t.Context(), api.Exclusive); err != nil {
				t.Errorf("lock %s: %v", path, err)
			}
			if _, err := alias.open(t, "/ls/local/file", 0).TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockHeld) {
				t.Errorf("while %s is locked, its other name says %v", path, err)
			}
			testbed.Report(t, h.Close(t.Context()))
		}
		if _, err := named.Open(t.Context(), "/ls/paris/file", client.OpenOptions{Read: true}); !errors.Is(err, api.WrongCell) {
			t.Errorf("a path of another cell: %v", err)
		}
	})
}

// TestEphemeralFileStaysWhileOpen: an ephemeral file that two clients have open
// stays after the first Close, and is removed after the second (Chubby §2.3).
func TestEphemeralFileStaysWhileOpen(t *testing.T) {
	const grace = 30 * time.Second // more than enough for the master to remove it
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		one, two, other := dial(t, c, "one"), dial(t, c, "two"), dial(t, c, "other")
		options := client.OpenOptions{Read: true, Create: client.File, Ephemeral: true}
		first := testbed.Must(one.Open(t.Context(), "/ls/local/presence", options))(t)
		second := testbed.Must(two.Open(t.Context(), "/ls/local/presence", options))(t)
		there := func(when string, want error) {
			t.Helper()
			h, err := other.Open(t.Context(), "/ls/local/presence", client.OpenOptions{Read: true})
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
			if err == nil && h.Close(t.Context()) != nil {
				t.Error("Close failed")
			}
		}
		testbed.NoErr(t, first.Close(t.Context()))
		time.Sleep(grace)
		there("one of two has closed it", nil)
		testbed.NoErr(t, second.Close(t.Context()))
		time.Sleep(grace)
		there("both have closed it", api.NotFound)
	})
}

// TestOutageLongerThanALease: while there is no master, no lease runs out
// (Chubby §2.9). After an outage of three leases, the session, its lock and the
// lock's queue are as they were.
func TestOutageLongerThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		holder, waiter := dial(t, c, "holder"), dial(t, c, "waiter")
		lock := acquire(t, holder.open(t, "/ls/local/lock", api.MaxLockDelay))
		granted := make(chan *client.Lock, 1)
		next := waiter.open(t, "/ls/local/lock", 0)
		go func() {
			l, err := next.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		time.Sleep(time.Second)
		replicas := []string{"r1", "r2", "r3"}
		for _, id := range replicas {
			c.Kill(id)
		}
		time.Sleep(40 * time.Second)
		if state := holder.State(); state != session.Jeopardy {
			t.Errorf("without a master for 40 s the session is %v", state)
		}
		for _, id := range replicas {
			c.Restart(id)
		}
		c.Master()
		time.Sleep(20 * time.Second)
		if err := holder.CheckSequencer(t.Context(), lock.Sequencer().String()); err != nil || lock.Err() != nil {
			t.Errorf("the lock: %v, %v", err, lock.Err())
		}
		if state := holder.State(); state != session.Safe {
			t.Errorf("the session is %v", state)
		}
		select {
		case <-granted:
			t.Error("another has the lock")
		default:
		}
		testbed.Report(t, lock.Release(t.Context()))
		if after := <-granted; after.Sequencer().Token() <= lock.Sequencer().Token() {
			t.Errorf("token %d after %d", after.Sequencer().Token(), lock.Sequencer().Token())
		}
	})
}
