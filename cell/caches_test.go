package cell_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Chubby §2.7: a change waits for a client that has the file in its cache and does not answer, but no longer than its
// cache lease. It does not wait for a client that caches nothing, nor for one whose cache has answered nothing lately,
// however long the lease of its session (decision 23); and a change that is refused waits for nobody.
func TestChangeWaitsForLease(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		for _, test := range []struct {
			host          string
			reads         int
			cfg           client.Config
			least, within time.Duration
		}{
			{"caching", 2, client.Config{Lease: api.MaxLease}, time.Second, api.CacheLease},
			{"idle", 1, client.Config{Lease: api.MaxLease}, 0, 100 * time.Millisecond},
			{"plain", 2, client.Config{Lease: api.MaxLease, NoCache: true}, 0, 100 * time.Millisecond},
		} {
			reader := open(t, ctx, dial(t, ctx, c, test.host, test.cfg), path, 0)
			reads(t, ctx, reader, test.reads)
			c.Cut(test.host)
			time.Sleep(time.Second)
			began := time.Now()
			fails(t, errOf(h.SetContents(ctx, nil, client.IfGeneration(99))), api.GenerationMismatch)
			failIf(t, time.Since(began) > 100*time.Millisecond, "a change that is refused took %v", time.Since(began))
			must(h.SetContents(ctx, []byte("new")))(t)
			if took := time.Since(began); took < test.least || took > test.within {
				t.Errorf("with a %s client cut off the write took %v", test.host, took)
			}
		}
	})
}

// Decision 12: after a fail-over, reads and locks do not wait for a client that
// is gone, and changes wait no longer than a cache lease.
func TestFailOverWaitsForCachesOnly(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), "/ls/local/f", 0)
		dead := open(t, ctx, dial(t, ctx, c, "dead", client.Config{Lease: api.MaxLease}), "/ls/local/other", 0)
		reads(t, ctx, dead, 1)
		c.Cut("dead")
		master := c.Master()
		began := time.Now()
		c.Kill(master)
		must(h.Stat(ctx))(t)
		noErr(t, acquire(t, ctx, h).Release(ctx))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a read and a lock took %v after the master was killed", took)
		}
		must(h.SetContents(ctx, nil))(t)
		if took := time.Since(began); took < api.CacheLease || took > api.CacheLease+2*time.Second {
			t.Errorf("a change took %v after the master was killed with a caching client", took)
		}
	})
}

// A transaction that is refused disturbs nobody: neither who has a node beside the list of operators in a cache, nor its own author, who waits
// for nobody.
func TestRefusedListOfOperatorsWaitsForNobody(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		root, mallory, reader := as(t, ctx, c, "root"), as(t, ctx, c, "mallory"), callerAs(t, c, "nobody")
		s, err := reader.CreateSession(ctx, &pb.CreateSessionRequest{Nonce: []byte("0123456789abcdef"), LeaseNs: int64(30 * time.Second), As: "reader", MayCache: true})
		noErr(t, err)
		who := &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
		must(reader.Open(ctx, &pb.OpenRequest{Caller: who, Mutation: reader.mutation(), Path: "/ls/local", Read: true}))(t)
		written := make(chan struct{})
		go func() { // a list: all drop their directory, which each has since it opened something
			defer close(written)
			open(t, ctx, root, "/ls/local/acl/other", 0)
		}()
		told, err := reader.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: who, Grant: s.GetGrant().GetNumber()})
		if err != nil || len(told.GetEvents()) != 1 {
			t.Fatal(told, err)
		}
		last := told.GetEvents()[0].GetSequence()
		next := make(chan *pb.KeepAliveReply, 1)
		go func() {
			reply, _ := reader.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: who, Grant: told.GetGrant().GetNumber(), Acknowledged: last, Received: last})
			next <- reply
		}()
		<-written
		began := time.Now()
		_, err = mallory.Txn().Put("/ls/local/acl/operators", []byte("mallory\n")).Commit(ctx)
		if took := time.Since(began); !errors.Is(err, api.PermissionDenied) || took > time.Second {
			t.Errorf("after %v: %v; want it refused at once", took, err)
		}
		select {
		case reply := <-next:
			for _, e := range reply.GetEvents() {
				t.Errorf("because of a transaction that was refused, the reader has to drop %s", e.GetPath())
			}
		default:
		}
	}, func(cfg *cell.Config) { cfg.Operators = []string{"root"} })
}

// Decision 10: the master does not extend the session of a client that delays a change for longer than SlowClient.
func TestSlowClientIsCutOff(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, ctx context.Context) {
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.SlowClient = time.Second })
		const path = "/ls/local/f"
		h := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		slow := dial(t, ctx, c, "slow", client.Config{Lease: 30 * time.Second})
		cached := open(t, ctx, slow, path, 0)
		reads(t, ctx, cached, 2)
		c.Cut("slow")
		wrote := make(chan error, 1)
		go func() { _, err := h.SetContents(ctx, nil); wrote <- err }()
		time.Sleep(8 * time.Second) // longer than one attempt of the author
		c.Heal("slow")
		report(t, <-wrote)
		<-slow.Done()
		failIf(t, !errors.Is(slow.Err(), client.EndedByCell), "%v", slow.Err())
	})
}

// Chubby §2.7: cached contents, metadata, absence, listings and Opens need no call.
func TestCachedReadsMakeNoCalls(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		author := dial(t, ctx, c, "author", client.Config{})
		cl := dial(t, ctx, c, "reader", client.Config{Lease: api.MaxLease})
		h := open(t, ctx, cl, "/ls/local/f", 0)
		must(h.SetContents(ctx, []byte("a")))(t)
		d := must(cl.Open(ctx, "/ls/local", client.OpenOptions{Read: true}))(t)
		all := func(want string) {
			t.Helper()
			got, _, err := h.Contents(ctx)
			_, statErr := h.Stat(ctx)
			children, listErr := d.ReadDir(ctx)
			_, absentErr := cl.Open(ctx, "/ls/local/absent", client.OpenOptions{Read: true})
			again, openErr := cl.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true})
			if err := errors.Join(err, statErr, listErr, openErr); err != nil || !errors.Is(absentErr, api.NotFound) {
				t.Fatal(err, absentErr)
			}
			noErr(t, again.Close(ctx))
			failIf(t, string(got) != want || len(children) != 2, "%q, %d children", got, len(children))
		}
		all("a")
		c.Cut("reader") // from now on no call can succeed
		for range 100 {
			all("a")
		}
		c.Heal("reader")
		before := cl.Stats().Cache
		must(open(t, ctx, author, "/ls/local/f", 0).SetContents(ctx, []byte("b")))(t)
		all("b")
		if after := cl.Stats().Cache; after.Invalidations == before.Invalidations || before.Hits < 500 {
			t.Errorf("%+v, then %+v", before, after)
		}
	})
}

// An Open after an acknowledged change of an access control list obeys the
// change, even if the client could reuse a handle (Chubby §2.3).
func TestCachedOpenObeysACL(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		admin := dial(t, ctx, c, "admin", client.Config{As: "admin"})
		list, err := admin.Open(ctx, "/ls/local/acl/readers", client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte("bob\nadmin\n")})
		noErr(t, err)
		must(admin.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Read: "readers"}}))(t)
		bob := dial(t, ctx, c, "bob", client.Config{As: "bob"})
		for range 3 {
			h := must(bob.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true}))(t)
			noErr(t, h.Close(ctx))
		}
		failIf(t, bob.Stats().Cache.Hits == 0, "no handle was reused")
		must(list.SetContents(ctx, []byte("admin\n")))(t)
		if _, err := bob.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true}); !errors.Is(err, api.PermissionDenied) {
			t.Errorf("%v", err)
		}
	})
}

// cachingStranger opens a session of the stranger that may cache, and has it refused to open a node.
func (w *program) cachingStranger(path string) (caller *pb.Caller, grant uint64) {
	w.t.Helper()
	s, err := w.CreateSession(w.t.Context(), &pb.CreateSessionRequest{Nonce: []byte("0123456789abcdef"), LeaseNs: int64(30 * time.Second), As: "stranger", MayCache: true})
	noErr(w.t, err)
	caller = &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	_, err = w.Open(w.t.Context(), &pb.OpenRequest{Caller: caller, Mutation: w.mutation(), Path: path, Read: true})
	stopIf(w.t, !errors.Is(pb.Error(err), api.PermissionDenied), "the stranger opens %s: %v", path, err)
	return caller, s.GetGrant().GetNumber()
}

// Who was refused a node, or is told a part of it that no cache keeps, has nothing of it in a cache: no change of it waits for him.
func TestRefusedOpenHoldsNobodyUp(t *testing.T) {
	for _, path := range []string{closedFile, handleFile} {
		synctest.Test(t, func(t *testing.T) {
			w := startRights(t)
			stranger, _ := w.cachingStranger(closedFile)
			if path == handleFile {
				h := w.open(stranger, &pb.OpenRequest{Path: handleFile, ChangeAcl: true})
				if reply, err := w.GetStat(t.Context(), &pb.GetStatRequest{Caller: stranger, Handle: h}); err != nil || reply.GetCacheable() {
					t.Fatal(reply, err)
				}
			}
			operator := w.session("operator")
			h := w.open(operator, &pb.OpenRequest{Path: path, Write: true})
			began := time.Now()
			_, err := w.SetContents(t.Context(), &pb.SetContentsRequest{Caller: operator, Mutation: w.mutation(), Handle: h, Contents: []byte("a")})
			if took := time.Since(began); err != nil || took > time.Second {
				t.Errorf("a change of %s waited %v for a session that may not read it (%v)", path, took, err)
			}
		})
	}
}

// Nor is he told when it is changed, or made.
func TestRefusedOpenTellsNothing(t *testing.T) {
	for what, path := range map[string]string{"a file that is written": closedFile, "a file that is made": "/ls/local/absent"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := startRights(t)
				caller, grant := w.cachingStranger(path)
				operator := w.session("operator")
				done := make(chan struct{})
				go func() {
					defer close(done)
					time.Sleep(time.Second)
					if path != closedFile {
						w.open(operator, &pb.OpenRequest{Path: path, Write: true, Create: pb.Create_CREATE_MUST})
						return
					}
					h := w.open(operator, &pb.OpenRequest{Path: path, Write: true})
					_, err := w.SetContents(t.Context(), &pb.SetContentsRequest{Caller: operator, Mutation: w.mutation(), Handle: h, Contents: []byte("a")})
					report(t, err)
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				reply, _ := w.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: caller, Grant: grant})
				for _, e := range reply.GetEvents() {
					t.Errorf("the stranger, who was refused it, is told: %v of %s", e.GetKind(), e.GetPath())
				}
				<-done
			})
		})
	}
}
