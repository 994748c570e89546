package cell_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// wire is a program at the master of a cell.
type wire struct {
	*program
	ctx    context.Context //nolint:containedctx // of the test
	c      *celltest.Cell
	master string
}

func newWire(t *testing.T, ctx context.Context, c *celltest.Cell) *wire {
	return &wire{program: connect(t, c.Dial, c.Master(), nil), ctx: ctx, c: c, master: c.Master()}
}

func (w *wire) tryOpen(c *pb.Caller, path string, edit func(*pb.OpenRequest)) ([]byte, error) {
	q := &pb.OpenRequest{Caller: c, Mutation: w.mutation(), Path: path, Read: true, Write: true, ChangeAcl: true, Create: pb.Create_CREATE_MAY}
	if edit != nil {
		edit(q)
	}
	reply, err := w.Open(w.ctx, q)
	return reply.GetHandle(), err
}

func (w *wire) file(c *pb.Caller, path string) []byte {
	w.t.Helper()
	return must(w.tryOpen(c, path, nil))(w.t)
}

// Every code of the closed list reaches a client over the wire, with the operation, the replica that answered, and what
// to do (api.Code). Codes that a client cannot provoke are listed with the reason.
func TestEveryCodeOverTheWire(t *testing.T) {
	reached := map[api.Code]error{
		api.Deadlock: errors.New("see decision 9: nothing waits for itself; kept for recipes that take several locks"),
		api.Corrupt:  errors.New("it comes from a damaged log or snapshot, and a replica that has one does not serve"),
	}
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		w := newWire(t, ctx, c)
		for _, provoke := range []func(*wire) map[api.Code]error{codesOfPlace, codesOfNames, codesOfHandles, codesOfLocks, codesOfWaiting, codesOfTrouble} {
			maps.Copy(reached, provoke(w))
		}
	})
	maps.Copy(reached, codeOfIdentity(t))
	for _, code := range api.Codes() {
		err, provoked := reached[code]
		if !provoked {
			t.Errorf("%v is not reached", code)
			continue
		}
		if code == api.Deadlock || code == api.Corrupt {
			continue
		}
		var e *api.Error
		if !errors.As(pb.Error(err), &e) || e.Code != code {
			t.Errorf("want %v, got %v", code, err)
			continue
		}
		if code == api.DeadlineExceeded {
			continue // the caller's own clock reports it, before any answer
		}
		failIf(t, e.Op == "" || e.Replica == "" || e.Message == "", "%v says too little: %+v", code, e)
	}
}

// codesOfPlace are errors of calls to the wrong replica, cell or epoch.
func codesOfPlace(w *wire) map[api.Code]error {
	me := w.session("")
	other := "r1"
	if w.master == other {
		other = "r2"
	}
	_, notMaster := connect(w.t, w.c.Dial, other, nil).CreateSession(w.ctx, &pb.CreateSessionRequest{Nonce: make([]byte, 16)})
	_, wrongCell := w.tryOpen(me, "/ls/elsewhere/f", nil)
	_, stale := w.tryOpen(&pb.Caller{Session: me.GetSession(), Epoch: me.GetEpoch() - 1}, "/ls/local/f", nil)
	_, expired := w.tryOpen(&pb.Caller{Session: []byte("forged"), Epoch: me.GetEpoch()}, "/ls/local/f", nil)
	return map[api.Code]error{api.NotMaster: notMaster, api.WrongCell: wrongCell, api.StaleEpoch: stale, api.SessionExpired: expired}
}

// codesOfNames are errors of Open and of the names that it is given.
func codesOfNames(w *wire) map[api.Code]error {
	me := w.session("")
	w.file(me, "/ls/local/n")
	got := map[api.Code]error{}
	for code, q := range map[api.Code]func(*pb.OpenRequest){
		api.NotFound:    func(q *pb.OpenRequest) { q.Path, q.Create = "/ls/local/absent", pb.Create_CREATE_MUST_EXIST },
		api.Exists:      func(q *pb.OpenRequest) { q.Create = pb.Create_CREATE_MUST },
		api.IsDirectory: func(q *pb.OpenRequest) { q.Path, q.Kind = "/ls/local/acl", pb.Kind_KIND_FILE },
		api.NotDirectory: func(q *pb.OpenRequest) {
			q.Kind = pb.Kind_KIND_DIRECTORY
		},
		api.InvalidPath:     func(q *pb.OpenRequest) { q.Path = "/ls/local/../x" },
		api.InvalidArgument: func(q *pb.OpenRequest) { q.LockDelayNs = -1 },
		api.TooLarge:        func(q *pb.OpenRequest) { q.Contents = make([]byte, api.MaxContents+1) },
	} {
		_, got[code] = w.tryOpen(me, "/ls/local/n", q)
	}
	d := must(w.tryOpen(me, "/ls/local/d", func(q *pb.OpenRequest) { q.Kind = pb.Kind_KIND_DIRECTORY }))(w.t)
	w.file(me, "/ls/local/d/child")
	_, got[api.NotEmpty] = w.Delete(w.ctx, &pb.DeleteRequest{Caller: me, Mutation: w.mutation(), Handle: d})
	must(w.SetQuota(w.ctx, &pb.SetQuotaRequest{Caller: me, Mutation: w.mutation(), Path: "/ls/local/d", Allowed: &pb.QuotaAmounts{Nodes: 1}}))(w.t)
	_, got[api.QuotaExceeded] = w.tryOpen(me, "/ls/local/d/second", nil)
	return got
}

// codesOfHandles are errors of calls on handles.
func codesOfHandles(w *wire) map[api.Code]error {
	me := w.session("")
	h := w.file(me, "/ls/local/h")
	reader := must(w.tryOpen(me, "/ls/local/h", func(q *pb.OpenRequest) { q.Write, q.ChangeAcl = false, false }))(w.t)
	old := uint64(7)
	got := map[api.Code]error{}
	_, got[api.PermissionDenied] = w.SetContents(w.ctx, &pb.SetContentsRequest{Caller: me, Mutation: w.mutation(), Handle: reader})
	_, got[api.GenerationMismatch] = w.SetContents(w.ctx, &pb.SetContentsRequest{Caller: me, Mutation: w.mutation(), Handle: h, IfGeneration: &old})
	_, got[api.BadSequencer] = w.SetContents(w.ctx, &pb.SetContentsRequest{Caller: me, Mutation: w.mutation(), Handle: h, IfSequencer: "nonsense"})
	_, got[api.BadHandle] = w.GetStat(w.ctx, &pb.GetStatRequest{Caller: me, Handle: []byte("forged")})
	must(w.Delete(w.ctx, &pb.DeleteRequest{Caller: me, Mutation: w.mutation(), Handle: h}))(w.t)
	_, got[api.HandleClosed] = w.GetStat(w.ctx, &pb.GetStatRequest{Caller: me, Handle: h})
	return got
}

// codesOfLocks are errors of locks.
func codesOfLocks(w *wire) map[api.Code]error {
	me, other := w.session(""), w.session("")
	mine := w.file(me, "/ls/local/l")
	acquire := &pb.TryAcquireRequest{Caller: me, Mutation: w.mutation(), Handle: mine, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE}
	granted := must(w.TryAcquire(w.ctx, acquire))(w.t)
	got := map[api.Code]error{}
	theirs := w.file(other, "/ls/local/l")
	_, got[api.LockHeld] = w.TryAcquire(w.ctx, &pb.TryAcquireRequest{Caller: other, Mutation: w.mutation(), Handle: theirs, Mode: pb.LockMode_LOCK_MODE_SHARED})
	release := &pb.ReleaseRequest{Caller: me, Mutation: w.mutation(), Handle: mine, Generation: granted.GetGranted().GetGeneration()}
	release.Mutation.Outstanding = []uint64{acquire.GetMutation().GetNumber(), w.number} // the answer to both stays wanted
	must(w.Release(w.ctx, release))(w.t)
	_, got[api.LockLost] = w.TryAcquire(w.ctx, acquire)
	release.Mutation = w.mutation()
	_, got[api.NotHeld] = w.Release(w.ctx, release)
	return got
}

// codesOfWaiting are errors of calls that take time: a lock-delay, a withdrawn request.
func codesOfWaiting(w *wire) map[api.Code]error {
	got := map[api.Code]error{}
	short, err := client.New(w.ctx, client.Config{Servers: w.c.Servers(), Dialer: w.c.DialFrom("short"), Clock: celltest.Clock, Lease: api.MinLease})
	noErr(w.t, err)
	acquire(w.t, w.ctx, open(w.t, w.ctx, short, "/ls/local/delayed", api.MaxLockDelay))
	w.c.Cut("short")
	<-time.After(3 * time.Second)
	me := w.session("")
	h := w.file(me, "/ls/local/delayed")
	_, got[api.LockDelayed] = w.TryAcquire(w.ctx, &pb.TryAcquireRequest{Caller: me, Mutation: w.mutation(), Handle: h, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE})
	withdrawn := w.mutation()
	must(w.Cancel(w.ctx, &pb.CancelRequest{Caller: me, Mutation: withdrawn}))(w.t)
	_, got[api.Cancelled] = w.TryAcquire(w.ctx, &pb.TryAcquireRequest{Caller: me, Mutation: withdrawn, Handle: h, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE})
	w.c.Heal("short")
	_ = short.Close(w.ctx) // its session has ended
	return got
}

// codesOfTrouble are errors of a master that has lost the others.
func codesOfTrouble(w *wire) map[api.Code]error {
	me := w.session("")
	h := w.file(me, "/ls/local/t")
	w.c.Isolate(w.master)
	got := map[api.Code]error{}
	ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
	defer cancel()
	_, got[api.DeadlineExceeded] = w.GetStat(ctx, &pb.GetStatRequest{Caller: me, Handle: h})
	_, got[api.Uncertain] = w.SetContents(w.ctx, &pb.SetContentsRequest{Caller: me, Mutation: w.mutation(), Handle: h})
	<-time.After(3 * time.Second)
	_, got[api.Unavailable] = w.CreateSession(w.ctx, &pb.CreateSessionRequest{Nonce: make([]byte, 16)})
	w.c.Rejoin(w.master)
	return got
}

// codeOfIdentity is the error of a cell that does not trust a client's own name.
func codeOfIdentity(t *testing.T) map[api.Code]error {
	got := map[api.Code]error{}
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.InsecurePrincipals = false })
		w := newWire(t, t.Context(), c)
		_, got[api.Unauthenticated] = w.CreateSession(w.ctx, &pb.CreateSessionRequest{Nonce: make([]byte, 16), As: "root"})
	})
	return got
}

// The list is closed: it has the length that api.Code says, and is ordered.
func TestCodesAreClosed(t *testing.T) {
	codes := api.Codes()
	failIf(t, !slices.IsSorted(codes) || len(codes) != 29, "%d codes: %v", len(codes), fmt.Sprint(codes))
}
