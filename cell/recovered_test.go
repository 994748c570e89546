package cell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/recovery"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/backup"
	"github.com/chubbylock/chubby/raftfsm"
)

// recoverFrom returns the backup that chubbyctl cell recover makes of the freshest of these data directories.
func recoverFrom(t *testing.T, ctx context.Context, directories ...string) *backup.Backup {
	t.Helper()
	list := must(recovery.Look(ctx, directories))(t)
	state := must(list[0].State(ctx, nil))(t)
	var out bytes.Buffer
	noErr(t, backup.Write(&out, state, time.Now().Unix(), list[0].Replica))
	return must(backup.Read(&out))(t)
}

// movedLocks is a cell that goes on after one of its replicas has stopped: locks move on, which that replica does not know. Then
// the cell is lost.
type movedLocks struct {
	ctx       context.Context //nolint:containedctx // of the test
	now       atomic.Pointer[celltest.Cell]
	survivor  string // the data directory of the replica that stopped first
	holder    *client.Client
	handles   []*client.Handle
	old       *raw     // a session and a handle, without the library
	known     []string // sequencers that the survivor has seen issued
	issued    []string // those after it, which the guard has seen; of each lock the newest
	newest    uint64   // token of these
	guardsSay func(text string) error
}

// dialer connects to the cell that there is now, as an address does behind which another cell is put.
func (m *movedLocks) dialer(host string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return m.now.Load().DialFrom(host)(ctx, address)
	}
}

// loseAfter takes all locks, ends a replica, has them move on, and ends the others.
func (m *movedLocks) loseAfter(t *testing.T, locks int) {
	t.Helper()
	directories := map[string]string{}
	c := celltest.Start(t, 5, func(cfg *cell.Config) { directories[cfg.ID] = cfg.Data })
	m.now.Store(c)
	m.holder = dial(t, m.ctx, c, "holder", client.Config{Dialer: m.dialer("holder")})
	next := dial(t, m.ctx, c, "next", client.Config{Dialer: m.dialer("next")})
	take := func(h *client.Handle) *client.Lock {
		l := acquire(t, m.ctx, h)
		noErr(t, m.guardsSay(l.Sequencer().String()))
		m.newest = l.Token()
		return l
	}
	for i := range locks {
		h := open(t, m.ctx, m.holder, fmt.Sprintf("/ls/local/l%03d", i), 0)
		m.handles = append(m.handles, h)
		l := take(h)
		m.known = append(m.known, l.Sequencer().String())
		noErr(t, l.Release(m.ctx))
	}
	open(t, m.ctx, m.holder, "/ls/local/file", 0)
	m.old = rawSession(t, m.ctx, c, c.Master())
	time.Sleep(time.Second) // until the followers know that all of this is committed
	stopped := "r1"
	if c.Master() == stopped {
		stopped = "r2"
	}
	m.survivor = directories[stopped]
	c.Kill(stopped)
	for i := range locks {
		l := take(open(t, m.ctx, next, fmt.Sprintf("/ls/local/l%03d", i), 0))
		m.issued = append(m.issued, l.Sequencer().String())
		if i%2 == 0 { // the others are held to the end
			noErr(t, l.Release(m.ctx))
		}
	}
	for id := range directories {
		if id != stopped {
			c.Kill(id)
		}
	}
}

// A cell loses all replicas but one that has missed the last grants, and is recovered from that one, by force, into a new cell which
// clients reach where the lost one was. No sequencer, session or handle from before is ever valid there, also none of those that the
// survivor does not know of; a guard that has seen them refuses all earlier ones at once, and all of them when it has seen one of the
// new cell; and it lets in every token of the new cell, as that goes on under the lost cell's id, but none of before the restore. There
// are 60 locks, with -full a thousand.
func TestForcedRecovery(t *testing.T) {
	locks := manyLocks()
	inBubble(t, time.Hour, func(t *testing.T, ctx context.Context) {
		guard := guardOf(t, ctx)
		m := &movedLocks{ctx: ctx, guardsSay: func(text string) error { _, err := guard.Check(ctx, text); return err }}
		m.loseAfter(t, locks)
		b := recoverFrom(t, ctx, m.survivor)
		if b.Recovered == "" || b.Counter >= m.newest {
			t.Fatalf("what is recovered knows all that was issued, so the test shows nothing: %+v, newest %d", b.About, m.newest)
		}

		c := celltest.Start(t, 3)
		m.now.Store(c)
		fresh := dial(t, ctx, c, "fresh", client.Config{NoCache: true})
		early := acquire(t, ctx, open(t, ctx, fresh, "/ls/local/l000", 0))
		fails(t, admit(ctx, guard, early), api.BadSequencer, "a token of the new cell, before the restore")
		if none, err := fresh.Cell().Status(ctx); err != nil || none.Restored != nil {
			t.Errorf("before it was restored: %+v, %v", none.Restored, err)
		}
		source := sourceOf(b)
		source.Index, source.TakenUnix, source.Recovered = b.Index, b.TakenUnix, b.Recovered
		is, err := client.Restore(ctx, dial(t, ctx, c, "operator", client.Config{NoCache: true}), source, nil)
		stopIf(t, err != nil || is.CellID != b.CellID || is.Counter < m.newest+raftfsm.RestoreGap/2, "%+v, %v", is, err)
		m.checkSessions(t, c)
		for round := range 2 { // before and after a fail-over
			after := dial(t, ctx, c, fmt.Sprint("after-", round), client.Config{})
			now, err := after.Cell().Status(ctx)
			stopIf(t, err != nil || now.Restored == nil || now.Restored.AtUnix == 0, "%+v, %v", now.Restored, err)
			want := api.Restoration{Counter: is.Counter, Index: b.Index, TakenUnix: b.TakenUnix, Recovered: b.Recovered}
			want.AtUnix = now.Restored.AtUnix
			equal(t, *now.Restored, want, "the cell says that it was restored: %+v")
			for _, text := range slices.Concat(m.known, m.issued, []string{early.Sequencer().String()}) {
				if err := after.Cell().CheckSequencer(ctx, text); !errors.Is(err, api.BadSequencer) {
					t.Fatalf("the recovered cell calls %s valid: %v", text, err)
				}
			}
			for i, text := range m.known {
				if err := m.guardsSay(text); !errors.Is(err, api.BadSequencer) {
					t.Fatalf("the guard, which has seen later ones of l%03d, lets in %s: %v", i, text, err)
				}
			}
			for i := range locks {
				l := acquire(t, ctx, open(t, ctx, after, fmt.Sprintf("/ls/local/l%03d", i), 0))
				if err := admit(ctx, guard, l); l.Token() <= is.Counter || err != nil {
					t.Fatalf("l%03d has token %v after a recovery at %d: %v", i, l.Token(), is.Counter, err)
				}
				if err := m.guardsSay(m.issued[i]); !errors.Is(err, api.BadSequencer) {
					t.Fatalf("the guard lets in %s after one of the recovered cell: %v", m.issued[i], err)
				}
				noErr(t, l.Release(ctx))
			}
			if round == 0 {
				c.Restart(c.FailOver())
			}
		}
	})
}

// checkSessions uses sessions and handles of the lost cell in the recovered one: with the library, and without.
func (m *movedLocks) checkSessions(t *testing.T, c *celltest.Cell) {
	t.Helper()
	select {
	case <-m.holder.Done():
	case <-time.After(time.Minute):
		t.Error("a session from before is still there")
	}
	for _, h := range []*client.Handle{m.handles[0], m.handles[len(m.handles)-1]} {
		if _, err := h.SetContents(m.ctx, []byte("by the dead")); err == nil {
			t.Error("a handle of the library from before writes")
		}
	}
	now := rawSession(t, m.ctx, c, c.Master())
	for what, q := range map[string]*pb.GetContentsAndStatRequest{
		"the session and the handle":    {Caller: m.old.caller, Handle: m.old.handle},
		"the session, with a handle":    {Caller: m.old.caller, Handle: now.handle},
		"the session, of the new epoch": {Caller: &pb.Caller{Session: m.old.caller.GetSession(), Epoch: now.caller.GetEpoch()}, Handle: m.old.handle},
		"the handle, in a session":      {Caller: now.caller, Handle: m.old.handle},
	} {
		_, err := now.GetContentsAndStat(m.ctx, q)
		if err = pb.Error(err); !errors.Is(err, api.SessionExpired) && !errors.Is(err, api.BadHandle) {
			t.Errorf("%s from before: %v", what, err)
		}
	}
	if text, err := now.read(m.ctx); err != nil || strings.Contains(text, "dead") {
		t.Errorf("a session of the recovered cell reads %q: %v", text, err)
	}
}
