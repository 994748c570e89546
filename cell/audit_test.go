package cell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/client"
)

// auditRecord is what a reader of an audit log finds in it.
type auditRecord struct {
	Time, Cell, Replica, Event, Call, Principal, From, On, Reason, Code, Message string
	Count, Unknown                                                               int
}

// inAuditedCell runs a test in a cell with the operator root, each of whose replicas has an audit log. records reads and empties them all.
func inAuditedCell(
	t *testing.T, replicas int, test func(*testing.T, context.Context, *celltest.Cell, func() []auditRecord), edits ...func(*cell.Config),
) {
	t.Helper()
	dir := t.TempDir()
	inCellOf(t, replicas, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		test(t, ctx, c, func() (all []auditRecord) {
			synctest.Wait() // what was answered is in the queues, and nothing else is to be done
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, name := range files {
				data := must(os.ReadFile(name))(t)
				for line := range strings.Lines(string(data)) {
					var r auditRecord
					report(t, json.Unmarshal([]byte(line), &r), line)
					all = append(all, r)
				}
				report(t, os.Remove(name))
				report(t, os.WriteFile(name, nil, 0o600))
			}
			return all
		})
	}, append(edits, func(cfg *cell.Config) {
		cfg.Operators = []string{"root"}
		cfg.Audit = cell.AuditConfig{File: filepath.Join(dir, cfg.ID+".log"), Files: 3}
	})...)
}

// What an operator does is recorded once, with who, what and why; what another tries is recorded as a refusal.
func TestAudit(t *testing.T) {
	inAuditedCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root, eve := as(t, ctx, c, "root"), as(t, ctx, c, "eve")
		if all := records(); len(all) > 0 {
			t.Error("nothing was done yet:", all)
		}
		for what, act := range operatorsActs(t, ctx, c) {
			for principal, by := range map[string]*client.Client{"eve": eve, "root": root} {
				err := act(by)
				told := map[string]int{}
				for _, r := range records() {
					if r.Principal != principal || r.Time == "" || r.Cell != "local" || r.Replica == "" || r.From == "" || r.Count != 0 {
						t.Errorf("%s, by %s: %+v", what, principal, r)
					}
					if r.On == "" && what != "finish an upgrade" && what != "transfer" {
						t.Errorf("%s, by %s: about what? %+v", what, principal, r)
					}
					if outage := what == "leave the cell without a master"; outage && r.On != "no master for 1s" ||
						(outage || r.Call == "BreakLock" || r.Call == "EndSession") && r.Reason != "because" {
						t.Errorf("%s, by %s: the reason, or the length: %+v", what, principal, r)
					}
					told[r.Event+" "+r.Code]++
				}
				wanted := "act OK"
				if principal == "eve" {
					wanted = "refusal PermissionDenied"
				}
				want := map[string]int{wanted: 1}
				if principal == "root" && what == "make a list" {
					want[wanted] = 2 // and it is deleted
				}
				failIf(t, fmt.Sprint(told) != fmt.Sprint(want), "%s, by %s: %v: %v; want %v", what, principal, err, told, want)
			}
		}
		h := open(t, ctx, root, "/ls/local/file", 0)
		report(t, errOf(h.SetContents(ctx, []byte("x"))))
		acquire(t, ctx, h)
		// Opening a list that exists, with Create, changes nothing.
		report(t, errOf(eve.Open(ctx, "/ls/local/acl/everyone", client.OpenOptions{Read: true, Create: client.File})))
		if all := records(); len(all) > 0 {
			t.Error("these are no acts of an operator:", all)
		}
	})
}

// Who shows nothing that counts, and who calls in another's session, is recorded.
func TestAuditOfStrangers(t *testing.T) {
	dir := t.TempDir()
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		files := newAuthority(t).client("mallory")
		files.CA = c.clients.file
		if _, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("far"), Clock: celltest.Clock, TLS: files}); err == nil {
			t.Error("a stranger is let in")
		}
		alice, bob := c.link(t, ctx, c.clients.client("alice")), c.link(t, ctx, c.clients.client("bob"))
		session := must(pb.NewChubbyClient(alice).CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: make([]byte, 16)}))(t)
		caller := &pb.Caller{Session: session.GetSession(), Epoch: session.GetEpoch()}
		if _, err := pb.NewChubbyClient(bob).Open(ctx, &pb.OpenRequest{Caller: caller, Path: "/ls/local/x"}); err == nil {
			t.Error("bob opens in the session of alice")
		}
		steps := []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_PUT, Path: "/ls/local/y"}}
		if _, err := pb.NewChubbyClient(bob).Txn(ctx, &pb.TxnRequest{Caller: caller, Operations: steps}); err == nil {
			t.Error("bob commits in the session of alice")
		}
		synctest.Wait()
		strangers, foreign := 0, 0
		data := must(os.ReadFile(audit.RefusedFile(filepath.Join(dir, "r1.log"))))(t)
		for line := range strings.Lines(string(data)) {
			var r auditRecord
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Event != "refusal" {
				t.Errorf("%q: %v", line, err)
			}
			if r.Code == "Unauthenticated" && r.From == "far" && r.Principal == "" {
				strangers++
			}
			called := r.Call == "Open" && r.On == "/ls/local/x" || r.Call == "Txn" && r.On == "/ls/local/y"
			if called && r.Code == "SessionExpired" && r.Principal == "bob" && strings.Contains(r.Message, "no session of") {
				foreign++
			}
		}
		failIf(t, strangers == 0 || foreign != 2, "%d lines of a stranger, %d of calls in another's session", strangers, foreign)
	}, func(cfg *cell.Config) { cfg.Audit.File = filepath.Join(dir, cfg.ID+".log") })
}

// To end one's own sessions takes no right, and can be done without end: it is no act, whatever reason is given. That an operator does it to another is.
func TestOwnSessionsAreNoActs(t *testing.T) {
	inAuditedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		one, root := callerAs(t, c, "eve"), callerAs(t, c, "root")
		session := func(n byte) uint64 {
			t.Helper()
			made := must(one.CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: append(make([]byte, 15), n), As: "eve"}))(t)
			return made.GetId()
		}
		for n := range byte(3) {
			if _, err := one.EndSession(ctx, &pb.EndSessionRequest{Caller: one.who, Mutation: one.mutation(), Target: session(n + 1), Reason: strings.Repeat("\x01", 200)}); err != nil {
				t.Fatal(err)
			}
		}
		giveUp(ctx, func(ctx context.Context) error {
			_, err := one.EndSession(ctx, &pb.EndSessionRequest{Caller: one.who, Mutation: one.mutation(), Target: session(9), Reason: "given up"})
			return err
		})
		if all := records(); len(all) > 0 {
			t.Errorf("recorded: %+v", all)
		}
		noErr(t, errOf(root.EndSession(ctx, &pb.EndSessionRequest{Caller: root.who, Mutation: root.mutation(), Target: session(10), Reason: "because"})))
		if all := records(); len(all) != 1 || all[0].Event != "act" || all[0].Call != "EndSession" || all[0].Principal != "root" {
			t.Errorf("an operator's act is recorded as %+v", all)
		}
	})
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
	inAuditedCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		eve, root, owner := callerAs(t, c, "eve"), callerAs(t, c, "root"), callerAs(t, c, "owner")
		opened, err := owner.Open(ctx, &pb.OpenRequest{Caller: owner.who, Mutation: owner.mutation(), Path: "/ls/local/mine", Create: pb.Create_CREATE_MAY, Kind: pb.Kind_KIND_FILE, ChangeAcl: true, Acl: &pb.ACL{Change: "everyone"}})
		noErr(t, err)
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
			_, err := root.SetQuota(ctx, &pb.SetQuotaRequest{Caller: root.who, Mutation: root.mutation(), Principal: "somebody", Allowed: &pb.QuotaAmounts{Nodes: 1}})
			return err
		})
		giveUp(ctx, func(ctx context.Context) error {
			_, err := owner.SetACL(ctx, &pb.SetACLRequest{Caller: owner.who, Mutation: owner.mutation(), Handle: opened.GetHandle(), Acl: &pb.ACL{Read: "everyone"}})
			return err
		})
		giveUp(ctx, func(ctx context.Context) error {
			_, err := owner.BreakLock(ctx, &pb.BreakLockRequest{Caller: owner.who, Mutation: owner.mutation(), Path: "/ls/local/mine", Reason: "mine"})
			return err
		})
		time.Sleep(20 * time.Second) // virtual: the calls end at the server, and what was omitted is counted
		told := map[string]int{}
		flood, omitted := 0, 0
		for _, r := range records() {
			switch {
			case r.Event == "omitted":
				omitted += r.Count
				failIf(t, r.Unknown != r.Count, "left out are calls of which nothing is known, told as refusals: %+v", r)
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
		if flood == 0 || flood > 1300 || omitted == 0 || flood+omitted > 1500 { // who gives calls up cannot fill the file
			t.Errorf("of 1500 calls %d have a line, and %d were left out", flood, omitted)
		}
		for _, want := range []string{"root SetQuota somebody", "owner SetACL /ls/local/mine", "owner BreakLock /ls/local/mine"} {
			failIf(t, told[want] != 1, "%q is not told: %v", want, told)
		}
	})
}
