package cell_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// An act of several steps keeps others from something until it ends. The tests below begin each, have its author vanish, and ask that the
// cell is as usable as before, within the time that docs/adr/0048-acts-end-without-their-authors.md says. That of a drill is tried by
// TestOutageEndsWithItsCaller and its neighbours.

// restoreEnds is when a restore has ended at the latest whose author takes no steps: a minute after the last one, or after the new master serves.
const restoreEnds = time.Minute + 15*time.Second

// isUsable tries whether somebody new gets a session and a lock, and can restore a backup.
func isUsable(t *testing.T, ctx context.Context, c *celltest.Cell, within time.Duration) {
	t.Helper()
	wait, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		next, err := client.New(wait, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("next"), Clock: celltest.Clock, NoCache: true})
		stopIf(t, err != nil, "nobody has a session after %v: %v", within, err)
		noErr(t, acquire(t, ctx, open(t, ctx, next, "/ls/local/usable", 0)).Release(ctx))
		_, err = client.Restore(ctx, next, sourceOf(takeBackup(t, ctx, next)), nil)
		_ = next.Close(ctx)
		if err == nil {
			return
		}
		stopIf(t, !errors.Is(err, api.Exists) || wait.Err() != nil, "no other restore after %v: %v", within, err)
		time.Sleep(4 * time.Second)
	}
}

// hangRestore begins a restore that hangs at a step, until it may go on: before its first part (nil), or when it has come so far.
func hangRestore(t *testing.T, ctx context.Context, by *client.Client, at func(*client.RestoreProgress) bool) (goOn func(), ended <-chan error) {
	t.Helper()
	source := sourceOf(takeBackup(t, ctx, by))
	stuck, leave, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	hang := sync.OnceFunc(func() {
		close(stuck)
		<-leave
	})
	look := func(p *client.RestoreProgress) {
		if at(p) {
			hang()
		}
	}
	parts := source.Parts
	source.Parts = func(yield func([]byte, error) bool) {
		look(nil)
		parts(yield)
	}
	go func() {
		_, err := client.Restore(ctx, by, source, func(p client.RestoreProgress) { look(&p) })
		result <- err
	}()
	<-stuck
	return func() { close(leave) }, result
}

// The author of a restore takes no further step, before or after each: the program hangs and keeps its session, or its network is
// gone, or the master fails besides, or all replicas are started again.
func TestRestoreEndsWithoutItsAuthor(t *testing.T) {
	const begun, added, sealed = "begun", "a part added", "sealed"
	for _, step := range []string{begun, added, sealed} {
		for trouble, one := range map[string]struct {
			replicas int
			strike   func(c *celltest.Cell)
		}{
			"hangs":                       {1, func(*celltest.Cell) {}},
			"vanishes":                    {1, func(c *celltest.Cell) { c.Cut("author") }},
			"hangs, and the master fails": {3, func(c *celltest.Cell) { c.Restart(c.FailOver()) }},
			"hangs, and all replicas are started again": {1, func(c *celltest.Cell) {
				c.Kill("r1")
				c.Restart("r1")
			}},
		} {
			t.Run(step+", and its author "+trouble, func(t *testing.T) {
				inCellOf(t, one.replicas, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
					author := dial(t, ctx, c, "author", client.Config{NoCache: true})
					dial(t, ctx, c, "slow", client.Config{Lease: time.Minute})
					c.Cut("slow") // its session outlives the seal
					leave, ended := hangRestore(t, ctx, author, func(p *client.RestoreProgress) bool {
						return (p == nil) == (step == begun) && (p == nil || p.Sealed == (step == sealed))
					})
					one.strike(c)
					isUsable(t, ctx, c, restoreEnds)
					leave()
					c.Heal("author")
					if err := <-ended; err == nil {
						t.Error("the restore goes on for its author")
					}
				}, calm)
			})
		}
	}
}

// While a sealed restore keeps everybody out, status says whose it is, and an operator ends it without a session.
func TestOperatorGivesRestoreUp(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		author := dial(t, ctx, c, "author", client.Config{NoCache: true})
		other := dial(t, ctx, c, "other", client.Config{Lease: time.Minute})
		looker := other.Cell()
		fails(t, client.GiveUpRestore(ctx, looker), api.NotFound, "there is none")
		c.Cut("other")
		leave, ended := hangRestore(t, ctx, author, func(p *client.RestoreProgress) bool { return p != nil && p.Sealed })
		c.Heal("other")
		now, err := looker.Status(ctx)
		stopIf(t, err != nil || len(now.Acts) != 1, "%+v, %v", now.Acts, err)
		if act := now.Acts[0]; act.Kind != "restore" || act.Principal != "anonymous" || act.Session != author.Session() || !act.Sealed || act.SinceUnix == 0 {
			t.Errorf("%+v", act)
		}
		noErr(t, client.GiveUpRestore(ctx, looker))
		leave()
		if err := <-ended; !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "given up") {
			t.Error("its author hears:", err)
		}
		isUsable(t, ctx, c, time.Second*20) // which restores, and so ends every other session
		if now, err = looker.Status(ctx); err != nil || len(now.Acts) != 0 {
			t.Errorf("%+v, %v", now.Acts, err)
		}
	})
}

// The author of a restore waits for a lock meanwhile, which another holds, or which has a lock-delay. The seal refuses the request, and
// the restore finishes.
func TestRestoreRefusesItsAuthorsLocks(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Minute} {
		inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
			author := dial(t, ctx, c, "author", client.Config{NoCache: true})
			holder := dial(t, ctx, c, "holder", client.Config{})
			acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", delay))
			if delay > 0 {
				c.Cut("holder")
				time.Sleep(20 * time.Second) // its session has failed
			}
			h := open(t, ctx, author, "/ls/local/lock", 0)
			b := takeBackup(t, ctx, author)
			answered := make(chan error, 1)
			go func() {
				_, err := h.Acquire(ctx, api.Exclusive)
				answered <- err
			}()
			time.Sleep(time.Second)
			if _, err := client.Restore(ctx, author, sourceOf(b), nil); err != nil {
				t.Errorf("with a lock-delay of %v: %v", delay, err)
			}
			began := time.Now()
			if err := <-answered; err == nil || time.Since(began) > time.Second {
				t.Errorf("with a lock-delay of %v the request is answered %v after the restore: %v", delay, time.Since(began), err)
			}
		})
	}
}

// With a dead replica the wrong one is to be removed, which the cell cannot do without: that is refused before it is decided. The dead
// one can be replaced then.
func TestNeededReplicaIsNotRemoved(t *testing.T) {
	for _, replicas := range []int{3, 5} {
		inCellOf(t, replicas, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
			by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
			rest := others(replicas, c.Master())
			dead, alive := rest[:replicas/2], rest[replicas/2]
			for _, id := range dead {
				c.Kill(id)
			}
			began := time.Now()
			err := client.ChangeMembers(ctx, by, client.MemberChange{Remove: alive}, nil)
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "no majority") || time.Since(began) > 5*time.Second {
				t.Errorf("of %d, after %v: %v", replicas, time.Since(began), err)
			}
			replace(t, ctx, c, by, dead[0], "r9")
		})
	}
}

// A replica is to leave, and another dies before it has left. The change waits, and another operator takes it back.
func TestRemovalIsTakenBackByAnother(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		author := dial(t, ctx, c, "author", client.Config{NoCache: true})
		rest := others(3, c.Master())
		leaving, dead := rest[0], rest[1]
		noErr(t, client.ChangeMembers(ctx, author, client.MemberChange{Remove: leaving}, nil))
		c.Kill(dead) // before the master looks again
		c.Cut("author")
		time.Sleep(10 * time.Second)
		by := dial(t, ctx, c, "another", client.Config{NoCache: true})
		now, err := by.Cell().Status(ctx)
		stopIf(t, err != nil || len(now.Acts) != 1, "%+v, %v", now.Acts, err)
		if act := now.Acts[0]; act.Kind != "leaving" || act.Replica != leaving || act.Principal != "anonymous" || act.SinceUnix == 0 || !strings.Contains(act.Waits, "--cancel") {
			t.Errorf("%+v", act)
		}
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := client.ChangeMembers(wait, by, client.MemberChange{Remove: dead}, nil); err == nil {
			t.Error("another change is decided meanwhile")
		}
		wait, cancel = context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		noErr(t, client.ChangeMembers(wait, by, client.MemberChange{Keep: leaving}, func([]client.Member) {}))
		replace(t, ctx, c, by, dead, "r4")
		c.FailOver()
		open(t, ctx, by, "/ls/local/after", 0) // what stayed has its vote
	})
}

// Without a session a restore is given up by operators alone: by whom the connection names, or the client where its word is taken.
func TestRestoreIsGivenUpByOperatorsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		for who, want := range map[string]api.Code{"": api.PermissionDenied, "stranger": api.PermissionDenied, "@all": api.InvalidArgument, "operator": api.NotFound} {
			if _, err := w.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: who}); api.CodeOf(pb.Error(err)) != want {
				t.Errorf("%q, while there is none: %v, want %s", who, err, want)
			}
		}
		begun := &pb.RestoreRequest{Caller: w.session("operator"), Mutation: w.mutation(), Begin: &pb.RestoreBegin{Cell: "local", CellId: strings.Repeat("0", 32), Level: 1, Counter: 9, Nodes: 1}}
		must(w.Restore(t.Context(), begun))(t)
		status, err := pb.NewCellClient(w.conn).Status(t.Context(), &pb.StatusRequest{})
		stopIf(t, err != nil || len(status.GetActs()) != 1, "%v; under way are %v", err, status.GetActs())
		of := status.GetActs()[0].GetSession()
		if _, err := w.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: "stranger", Of: of}); api.CodeOf(pb.Error(err)) != api.PermissionDenied {
			t.Errorf("a stranger: %v", err)
		}
		if _, err := w.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: "operator", Of: of + 1}); api.CodeOf(pb.Error(err)) != api.NotFound {
			t.Errorf("an operator, the restore of another session: %v", err)
		}
		report(t, errOf(w.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: "operator", Of: of})), "an operator")
	})
}

// An operator gives up a restore, and the answer is lost; meanwhile another begins one. That one is not given up, and the operator hears that
// the first one was.
func TestGivingUpEndsOneRestore(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		hung := dial(t, ctx, c, "hung", client.Config{NoCache: true})
		next := dial(t, ctx, c, "next", client.Config{NoCache: true})
		atOnce := func(p *client.RestoreProgress) bool { return p == nil }
		leave, first := hangRestore(t, ctx, hung, atOnce)
		var goOn func()
		var second <-chan error
		var lost atomic.Bool
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true, Dialer: c.Lossy("operator", func(method string) bool {
			if method != "/chubby.v1.Chubby/Restore" || lost.Swap(true) {
				return false
			}
			goOn, second = hangRestore(t, ctx, next, atOnce)
			return true
		})})
		report(t, client.GiveUpRestore(ctx, operator.Cell()), "the restore was given up, and the operator hears")
		goOn()
		report(t, <-second, "the restore that began later")
		leave()
		if err := <-first; !errors.Is(err, api.SessionExpired) { // the later one has ended it
			t.Errorf("the restore that was given up: %v", err)
		}
	})
}

// Restore gives up when it returns an error. So the program that called it need not end its session.
func TestRestoreGivesUpOnErrors(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		dial(t, ctx, c, "slow", client.Config{Lease: time.Minute})
		b := takeBackup(t, ctx, operator)
		c.Cut("slow")
		some, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		stopIf(t, errOf(client.Restore(some, operator, sourceOf(b), nil)) == nil, "it is not interrupted")
		wait, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		dial(t, wait, c, "other", client.Config{}) // fails the test if no session can begin
	})
}

// A replica that joins is cut off, and its author is gone: another operator gives it up, and another replica joins.
func TestJoinerThatNeverComesIsGivenUp(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		author := dial(t, ctx, c, "author", client.Config{NoCache: true})
		by := dial(t, ctx, c, "another", client.Config{NoCache: true})
		joined := joins(ctx, c, "r4")
		time.Sleep(time.Second)
		if err := client.ChangeMembers(ctx, author, client.MemberChange{Add: "r4", Raft: "r4:7431", Remove: others(3, c.Master())[0]}, nil); err != nil {
			t.Fatal(err)
		}
		c.Cut("r4", "author")
		time.Sleep(10 * time.Second)
		now, err := by.Cell().Status(ctx)
		stopIf(t, err != nil || len(now.Acts) != 1 || now.Acts[0].Kind != "joining" || now.Acts[0].Waits == "", "%+v, %v", now.Acts, err)
		for _, m := range must(by.Cell().Members(ctx))(t) {
			if comes := m.ID == "r4"; comes != (m.Phase == "joining") || comes == m.Voter || comes != strings.Contains(m.Waits, "r4") {
				t.Errorf("while r4 is cut off: %+v", m)
			}
		}
		wait, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		noErr(t, client.ChangeMembers(wait, by, client.MemberChange{Remove: "r4"}, func([]client.Member) {}))
		replace(t, ctx, c, by, others(3, c.Master())[0], "r5")
		c.Heal("r4")
		<-joined
	})
}
