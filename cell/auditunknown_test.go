package cell_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// caller is a principal with a session, who calls the master of an audited cell as a program without the library does.
type caller struct {
	pb.ChubbyClient
	who    *pb.Caller
	number uint64
}

func callerAs(t *testing.T, ctx context.Context, c *celltest.Cell, principal string) *caller {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.Master()+":7421", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.DialFrom(principal)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	one := &caller{ChubbyClient: pb.NewChubbyClient(conn)}
	nonce := append([]byte(principal), make([]byte, 16)...)[:16]
	session, err := one.CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: nonce, As: principal})
	if err != nil {
		t.Fatal(err)
	}
	one.who = &pb.Caller{Session: session.GetSession(), Epoch: session.GetEpoch()}
	return one
}

func (one *caller) next() *pb.Mutation {
	one.number++
	return &pb.Mutation{Number: one.number, HighestIssued: one.number, Outstanding: []uint64{one.number}}
}

// giveUp makes a call, and does not wait for its end.
func giveUp(ctx context.Context, call func(ctx context.Context) error) {
	bound, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_ = call(bound)
}

// Who may do what a call asks for has it recorded when the call is given up, an operator or who has the right to that file, whatever
// strangers do meanwhile; and the record says neither that it was done nor that it was not.
func TestAuditOfWhatMayHaveBeenDone(t *testing.T) {
	inAuditedCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		eve, root, owner := callerAs(t, ctx, c, "eve"), callerAs(t, ctx, c, "root"), callerAs(t, ctx, c, "owner")
		opened, err := owner.Open(ctx, &pb.OpenRequest{Caller: owner.who, Mutation: owner.next(), Path: "/ls/local/mine", Create: pb.Create_CREATE_MAY, Kind: pb.Kind_KIND_FILE, ChangeAcl: true, Acl: &pb.ACL{Change: "everyone"}})
		if err != nil {
			t.Fatal(err)
		}
		c.Isolate(c.Master()) // so that no answer comes
		var calls sync.WaitGroup
		for n := range uint64(1500) {
			calls.Go(func() {
				giveUp(ctx, func(ctx context.Context) error {
					mutation := &pb.Mutation{Number: n%100 + 1, HighestIssued: 100, Outstanding: []uint64{n%100 + 1}}
					_, err := eve.BreakLock(ctx, &pb.BreakLockRequest{Caller: eve.who, Mutation: mutation, Path: "/ls/local", Reason: "flood"})
					return err
				})
			})
		}
		calls.Wait()
		giveUp(ctx, func(ctx context.Context) error {
			_, err := root.SetQuota(ctx, &pb.SetQuotaRequest{Caller: root.who, Mutation: root.next(), Principal: "somebody", Allowed: &pb.QuotaAmounts{Nodes: 1}})
			return err
		})
		giveUp(ctx, func(ctx context.Context) error {
			_, err := owner.SetACL(ctx, &pb.SetACLRequest{Caller: owner.who, Mutation: owner.next(), Handle: opened.GetHandle(), Acl: &pb.ACL{Read: "everyone"}})
			return err
		})
		giveUp(ctx, func(ctx context.Context) error {
			_, err := owner.BreakLock(ctx, &pb.BreakLockRequest{Caller: owner.who, Mutation: owner.next(), Path: "/ls/local/mine", Reason: "mine"})
			return err
		})
		time.Sleep(20 * time.Second) // virtual: the calls end at the server, and what was omitted is counted
		told := map[string]int{}
		flood, omitted := 0, 0
		for _, r := range records() {
			switch {
			case r.Event == "omitted":
				omitted += r.Count
				if r.Unknown != r.Count {
					t.Errorf("left out are calls of which nothing is known, told as refusals: %+v", r)
				}
				continue
			case r.Principal == "eve":
				flood++
			default:
				told[r.Principal+" "+r.Call+" "+r.On]++
			}
			if r.Event != "act" || r.Code != "Uncertain" || !strings.HasPrefix(r.Message, "it is not known whether this was done") {
				t.Errorf("it is told as if it were known: %+v", r)
			}
		}
		if flood == 0 || omitted == 0 {
			t.Errorf("%d lines of the flood, and %d that were left out", flood, omitted)
		}
		for _, want := range []string{"root SetQuota somebody", "owner SetACL /ls/local/mine", "owner BreakLock /ls/local/mine"} {
			if told[want] != 1 {
				t.Errorf("%q is not told: %v", want, told)
			}
		}
	})
}
