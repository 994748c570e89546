package cell_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
)

// A mark of a page tells its caller nothing: neither what the node is called at which the page ends, nor how long that is. It is good for this caller,
// this listing and this cell alone; and whatever pages are asked for, none has or names what its caller may not see.
func TestMarksTellNothing(t *testing.T) {
	inTLSCell(t, func(t *testing.T, _ context.Context, c tlsCell) {
		operator, w, bystander := connectRights(t, c, "operator"), connectRights(t, c, "stranger"), connectRights(t, c, "bystander")
		operator.prepare()
		w.number, bystander.number = 1000, 2000
		theirs, mine := operator.session(""), w.session("")
		closed, own := &pb.ACL{Read: "operator", Write: "operator", Change: "operator"}, &pb.ACL{Read: "stranger", Write: "stranger", Change: "stranger"}
		lock := func(by *rights, caller *pb.Caller, path string) {
			t.Helper()
			_, err := by.chubby.TryAcquire(t.Context(), &pb.TryAcquireRequest{
				Caller: caller, Mutation: by.mutation(), Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE, Handle: by.open(caller, &pb.OpenRequest{Path: path, Write: true}),
			})
			c.clients.check(err)
		}
		for i, name := range []string{"a", "b-hidden", "c", "d-hidden-of-a-longer-name", "e", "f-hidden"} {
			path, acl := "/ls/local/"+name, own
			if i%2 == 1 {
				acl = closed
			}
			operator.open(theirs, &pb.OpenRequest{Path: path, Write: true, Create: pb.Create_CREATE_MUST, Acl: acl})
			if i%2 == 1 {
				lock(operator, theirs, path)
			} else {
				lock(w, mine, path)
			}
		}
		var marks [][]byte
		var seen []string
		for after := []byte(nil); ; {
			page, err := w.chubby.ListLocks(t.Context(), &pb.ListLocksRequest{Most: 1, After: after})
			c.clients.check(err)
			for _, l := range page.GetLocks() {
				seen = append(seen, l.GetPath())
			}
			if after = page.GetNext(); len(after) == 0 {
				break
			}
			marks = append(marks, after)
		}
		if want := []string{"/ls/local/a", "/ls/local/c", "/ls/local/e"}; !slices.Equal(seen, want) || len(marks) != 2 {
			t.Errorf("the stranger sees %q on %d pages, want %q on one each", seen, len(marks)+1, want)
		}
		for _, mark := range marks {
			if len(mark) != len(marks[0]) || bytes.Contains(mark, []byte("hidden")) {
				t.Errorf("a mark is %q", mark)
			}
			refused := map[string]error{}
			_, refused["of another caller"] = bystander.chubby.ListLocks(t.Context(), &pb.ListLocksRequest{After: mark})
			_, refused["of another listing"] = w.chubby.ListQuotas(t.Context(), &pb.ListQuotasRequest{After: mark})
			_, refused["of another listing, too"] = w.chubby.ListSessions(t.Context(), &pb.ListSessionsRequest{After: mark})
			for at := range mark {
				wrong := slices.Clone(mark)
				wrong[at] ^= 1
				if at%97 == 0 || at == len(mark)-1 {
					_, refused[fmt.Sprint("changed at ", at)] = w.chubby.ListLocks(t.Context(), &pb.ListLocksRequest{After: wrong})
				}
			}
			_, refused["cut"] = w.chubby.ListLocks(t.Context(), &pb.ListLocksRequest{After: mark[:len(mark)-1]})
			_, refused["of v0.1.0"] = w.chubby.ListLocks(t.Context(), &pb.ListLocksRequest{After: []byte("\x01\x01/c")})
			for what, err := range refused {
				if api.CodeOf(pb.Error(err)) != api.InvalidArgument {
					t.Errorf("a mark %s: %v", what, err)
				}
			}
		}
	})
}

// That more follows is told only of what follows that the caller may see: of another's session, of lock-delays, and of directories that have a quota.
func TestPagesEndWithWhatIsSeen(t *testing.T) {
	inTLSCell(t, func(t *testing.T, _ context.Context, c tlsCell) {
		operator, w := connectRights(t, c, "operator"), connectRights(t, c, "stranger")
		operator.prepare()
		w.number = 1000
		theirs := operator.session("")
		closed, shared := &pb.ACL{Read: "operator", Write: "operator", Change: "operator"}, &pb.ACL{Read: "stranger", Write: "operator", Change: "operator"}
		for name, acl := range map[string]*pb.ACL{"a": shared, "b": closed} {
			path := "/ls/local/" + name
			dir := operator.open(theirs, &pb.OpenRequest{Path: path, Write: true, Create: pb.Create_CREATE_MUST, Kind: pb.Kind_KIND_DIRECTORY, Acl: acl})
			_, err := operator.chubby.TryAcquire(t.Context(), &pb.TryAcquireRequest{Caller: theirs, Mutation: operator.mutation(), Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE, Handle: dir})
			c.clients.check(err)
			_, err = operator.chubby.SetQuota(t.Context(), &pb.SetQuotaRequest{Caller: theirs, Mutation: operator.mutation(), Path: path, Allowed: &pb.QuotaAmounts{Nodes: 9}})
			c.clients.check(err)
		}
		sessions, err := operator.chubby.ListSessions(t.Context(), &pb.ListSessionsRequest{})
		c.clients.check(err)
		for _, s := range sessions.GetSessions() {
			page, err := w.chubby.ListLocks(t.Context(), &pb.ListLocksRequest{Most: 1, Session: s.GetParty().GetSession()})
			if err != nil || len(page.GetLocks()) == 0 && s.GetLocks() > 0 || len(page.GetNext()) > 0 {
				t.Errorf("of the locks of session %d: %v, %v", s.GetParty().GetSession(), page, err)
			}
		}
		quotas, err := w.chubby.ListQuotas(t.Context(), &pb.ListQuotasRequest{Most: 2})
		if err != nil || len(quotas.GetQuotas()) != 2 || len(quotas.GetNext()) > 0 {
			t.Errorf("of the quotas: %v, %v", quotas, err)
		}
	})
}
