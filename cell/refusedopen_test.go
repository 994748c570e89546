package cell_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
)

// cachingStranger opens a session of the stranger that may cache, and has it refused to open a node.
func (w *rights) cachingStranger(path string) (caller *pb.Caller, grant uint64) {
	w.t.Helper()
	s, err := w.chubby.CreateSession(w.t.Context(), &pb.CreateSessionRequest{Nonce: []byte("0123456789abcdef"), LeaseNs: int64(30 * time.Second), As: "stranger", MayCache: true})
	if err != nil {
		w.t.Fatal(err)
	}
	caller = &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	_, err = w.chubby.Open(w.t.Context(), &pb.OpenRequest{Caller: caller, Mutation: w.mutation(), Path: path, Read: true})
	if !errors.Is(pb.Error(err), api.PermissionDenied) {
		w.t.Fatalf("the stranger opens %s: %v", path, err)
	}
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
				if reply, err := w.chubby.GetStat(t.Context(), &pb.GetStatRequest{Caller: stranger, Handle: h}); err != nil || reply.GetCacheable() {
					t.Fatal(reply, err)
				}
			}
			operator := w.session("operator")
			h := w.open(operator, &pb.OpenRequest{Path: path, Write: true})
			began := time.Now()
			_, err := w.chubby.SetContents(t.Context(), &pb.SetContentsRequest{Caller: operator, Mutation: w.mutation(), Handle: h, Contents: []byte("a")})
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
					_, err := w.chubby.SetContents(t.Context(), &pb.SetContentsRequest{Caller: operator, Mutation: w.mutation(), Handle: h, Contents: []byte("a")})
					if err != nil {
						t.Error(err)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				reply, _ := w.chubby.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: caller, Grant: grant})
				for _, e := range reply.GetEvents() {
					t.Errorf("the stranger, who was refused it, is told: %v of %s", e.GetKind(), e.GetPath())
				}
				<-done
			})
		})
	}
}
