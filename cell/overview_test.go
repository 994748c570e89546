package cell_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
)

// What waits longest is first, with who holds it and who waits, and what is not waited for is not there. A change that waits for a
// client is shown with that client.
func TestOverviewOfWaits(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder, waiter := dial(t, ctx, c, "holder", client.Config{}), dial(t, ctx, c, "waiter", client.Config{})
		acquire(t, ctx, open(t, ctx, holder, "/ls/local/held", 0)) // nobody waits for it
		waiting, cancel := context.WithCancel(ctx)
		ended := make(chan struct{}, 3)
		for _, name := range []string{"b", "a", "c"} {
			acquire(t, ctx, open(t, ctx, holder, "/ls/local/"+name, 0))
			h := open(t, ctx, waiter, "/ls/local/"+name, 0)
			go func() {
				_, _ = h.Acquire(waiting, api.Exclusive)
				ended <- struct{}{}
			}()
			time.Sleep(2 * time.Second)
		}
		o, err := waiter.Cell().Overview(ctx, 2)
		noErr(t, err)
		var paths []string
		for _, w := range o.Waits {
			paths = append(paths, w.Path)
			if len(w.Holders) != 1 || w.Holders[0].Session != holder.Session() || len(w.Waiters) != 1 || w.Waiters[0].Session != waiter.Session() {
				t.Errorf("%s: holders %v, waiters %v", w.Path, w.Holders, w.Waiters)
			}
		}
		if want := []string{"/ls/local/b", "/ls/local/a"}; !slices.Equal(paths, want) || o.MoreWaits != 1 {
			t.Errorf("%q wait, and %d more; want %q and one", paths, o.MoreWaits, want)
		}
		if !o.Whole || o.Backlog.Waiters != 3 || o.Counts["call:Open"] < 7 || o.Counts["calls"] <= o.Counts["call:Open"] || o.Counts["sessions-begun"] != 2 {
			t.Errorf("whole %v, %+v, %v", o.Whole, o.Backlog, o.Counts)
		}
		failIf(t, len(o.Holdups) > 0, "no change waits, and %+v are shown", o.Holdups)
		cancel()
		for range 3 {
			<-ended
		}
		time.Sleep(time.Second) // the master is told
		if o, err = waiter.Cell().Overview(ctx, 0); err != nil || len(o.Waits) > 0 || o.MoreWaits > 0 || o.Backlog.Waiters > 0 {
			t.Errorf("nobody waits any more: %+v, %v", o, err)
		}

		slow := dial(t, ctx, c, "slow", client.Config{})
		h := open(t, ctx, holder, "/ls/local/file", 0)
		reads(t, ctx, open(t, ctx, slow, "/ls/local/file", 0), 2)
		c.Cut("slow")
		written := make(chan error, 1)
		go func() { _, err := h.SetContents(ctx, []byte("new")); written <- err }()
		time.Sleep(500 * time.Millisecond)
		o, err = waiter.Cell().Overview(ctx, 0)
		stopIf(t, err != nil || len(o.Holdups) != 1 || o.Backlog.Changes != 1, "%+v are shown, %+v, %v", o.Holdups, o.Backlog, err)
		one := o.Holdups[0]
		if one.Path != "/ls/local/file" || one.Waiting <= 0 || one.Waiting > time.Second || len(one.Slow) != 1 || one.Slow[0].Session != slow.Session() || one.Slow[0].Host == "" {
			t.Errorf("the change is shown as %+v", one)
		}
		noErr(t, <-written)
		o, err = waiter.Cell().Overview(ctx, 0)
		failIf(t, err != nil || len(o.Holdups) > 0, "the change is done: %+v, %v", o, err)
	})
}

// A mark of a page tells its caller nothing: neither what the node is called at which the page ends, nor how long that is. It is good for this caller,
// this listing and this cell alone; and whatever pages are asked for, none has or names what its caller may not see.
func TestMarksTellNothing(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, _ context.Context, c tlsCell) {
		operator, w, bystander := connectRights(t, c, "operator"), connectRights(t, c, "stranger"), connectRights(t, c, "bystander")
		operator.prepare()
		w.number, bystander.number = 1000, 2000
		theirs, mine := operator.session(""), w.session("")
		closed, own := &pb.ACL{Read: "operator", Write: "operator", Change: "operator"}, &pb.ACL{Read: "stranger", Write: "stranger", Change: "stranger"}
		lock := func(by *program, caller *pb.Caller, path string) {
			t.Helper()
			_, err := by.TryAcquire(t.Context(), &pb.TryAcquireRequest{
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
			page := must(w.ListLocks(t.Context(), &pb.ListLocksRequest{Most: 1, After: after}))(t)
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
			failIf(t, len(mark) != len(marks[0]) || bytes.Contains(mark, []byte("hidden")), "a mark is %q", mark)
			refused := map[string]error{}
			_, refused["of another caller"] = bystander.ListLocks(t.Context(), &pb.ListLocksRequest{After: mark})
			_, refused["of another listing"] = w.ListQuotas(t.Context(), &pb.ListQuotasRequest{After: mark})
			_, refused["of another listing, too"] = w.ListSessions(t.Context(), &pb.ListSessionsRequest{After: mark})
			for at := range mark {
				wrong := slices.Clone(mark)
				wrong[at] ^= 1
				if at%97 == 0 || at == len(mark)-1 {
					_, refused[fmt.Sprint("changed at ", at)] = w.ListLocks(t.Context(), &pb.ListLocksRequest{After: wrong})
				}
			}
			_, refused["cut"] = w.ListLocks(t.Context(), &pb.ListLocksRequest{After: mark[:len(mark)-1]})
			_, refused["of v0.1.0"] = w.ListLocks(t.Context(), &pb.ListLocksRequest{After: []byte("\x01\x01/c")})
			for what, err := range refused {
				failIf(t, api.CodeOf(pb.Error(err)) != api.InvalidArgument, "a mark %s: %v", what, err)
			}
		}
	})
}

// That more follows is told only of what follows that the caller may see: of another's session, of lock-delays, and of directories that have a quota.
func TestPagesEndWithWhatIsSeen(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, _ context.Context, c tlsCell) {
		operator, w := connectRights(t, c, "operator"), connectRights(t, c, "stranger")
		operator.prepare()
		w.number = 1000
		theirs := operator.session("")
		closed, shared := &pb.ACL{Read: "operator", Write: "operator", Change: "operator"}, &pb.ACL{Read: "stranger", Write: "operator", Change: "operator"}
		for name, acl := range map[string]*pb.ACL{"a": shared, "b": closed} {
			path := "/ls/local/" + name
			dir := operator.open(theirs, &pb.OpenRequest{Path: path, Write: true, Create: pb.Create_CREATE_MUST, Kind: pb.Kind_KIND_DIRECTORY, Acl: acl})
			noErr(t, errOf(operator.TryAcquire(t.Context(), &pb.TryAcquireRequest{Caller: theirs, Mutation: operator.mutation(), Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE, Handle: dir})))
			noErr(t, errOf(operator.SetQuota(t.Context(), &pb.SetQuotaRequest{Caller: theirs, Mutation: operator.mutation(), Path: path, Allowed: &pb.QuotaAmounts{Nodes: 9}})))
		}
		sessions := must(operator.ListSessions(t.Context(), &pb.ListSessionsRequest{}))(t)
		for _, s := range sessions.GetSessions() {
			page, err := w.ListLocks(t.Context(), &pb.ListLocksRequest{Most: 1, Session: s.GetParty().GetSession()})
			if err != nil || len(page.GetLocks()) == 0 && s.GetLocks() > 0 || len(page.GetNext()) > 0 {
				t.Errorf("of the locks of session %d: %v, %v", s.GetParty().GetSession(), page, err)
			}
		}
		quotas, err := w.ListQuotas(t.Context(), &pb.ListQuotasRequest{Most: 2})
		failIf(t, err != nil || len(quotas.GetQuotas()) != 2 || len(quotas.GetNext()) > 0, "of the quotas: %v, %v", quotas, err)
	})
}

// poll reads a file again and again for longer than a client has to be seen.
func poll(t *testing.T, ctx context.Context, h *client.Handle) {
	t.Helper()
	for range 2 * misuse.Polling.Limits().Count {
		reads(t, ctx, h, 1)
		time.Sleep(500 * time.Millisecond)
	}
}

// Who is no operator sees what his own sessions do, and nothing of others.
func TestLintIsForWhoMayLook(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		as := func(host, principal string, cfg client.Config) *client.Client {
			cfg.TLS = c.clients.client(principal)
			return dial(t, ctx, c.Cell, host, cfg)
		}
		operator := as("operator", "operator", client.Config{})
		put := func(path, text string) *client.Handle {
			t.Helper()
			h := open(t, ctx, operator, path, 0)
			must(h.SetContents(ctx, []byte(text)))(t)
			return h
		}
		put("/ls/local/acl/us", "operator\nmember\n")
		put("/ls/local/secret", "")
		put("/ls/local/public", "")
		changer, err := operator.Open(ctx, "/ls/local/secret", client.OpenOptions{ChangeACL: true})
		if err == nil {
			_, err = changer.SetACL(ctx, api.ACL{Read: "us", Write: "us", Change: "us"})
		}
		noErr(t, err)
		put("/ls/local/acl/operators", "operator\n")
		member := as("member", "member", client.Config{NoCache: true})
		h, err := member.Open(ctx, "/ls/local/secret", client.OpenOptions{Read: true})
		noErr(t, err)
		poll(t, ctx, h)
		short := as("short", "member", client.Config{Lease: 2 * time.Second})
		time.Sleep(misuse.MinTime)
		poll(t, ctx, h)

		lint := func(by *client.Client, o misuse.Options) []misuse.Finding {
			t.Helper()
			r, err := by.Cell().Lint(ctx, o)
			stopIf(t, err != nil || r.Since <= 0 || r.Epoch == 0, "%+v, %v", r, err)
			return r.Findings
		}
		stranger := as("stranger", "stranger", client.Config{})
		for _, o := range []misuse.Options{{}, {Session: member.Session()}, {Principal: "member"}, {Path: "/ls/local/secret"}} {
			if found := lint(stranger, o); len(found) > 0 {
				t.Errorf("a stranger sees %+v", found)
			}
		}
		for who, by := range map[string]*client.Client{"an operator": operator, "he himself": as("again", "member", client.Config{})} {
			found := lint(by, misuse.Options{Principal: "member"})
			stopIf(t, len(found) != 2, "%s sees %+v", who, found)
			for _, f := range found {
				polls := f.Kind == misuse.Polling && f.Who.Session == member.Session() && f.Path == "/ls/local/secret" && f.Count > 60 && f.Lease == 0
				lease := f.Kind == misuse.ShortLease && f.Who.Session == short.Session() && f.Path == "" && f.Lease == 2*time.Second
				failIf(t, !polls && !lease || f.Who.Principal != "member" || f.Who.Host == "", "%s sees %+v", who, f)
			}
		}
		put("/ls/local/acl/us", "operator\nmember\nreader\n")
		reader := as("reader", "reader", client.Config{})
		if found := lint(reader, misuse.Options{}); len(found) > 0 {
			t.Errorf("who may read the file sees what others do: %+v", found)
		}
	})
}

// A change, an event or a lock that is taken excuses one more look; and what an earlier master has counted is forgotten.
func TestLintOfWhatHasChanged(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		reader, writer := dial(t, ctx, c, "reader", client.Config{NoCache: true}), dial(t, ctx, c, "writer", client.Config{})
		h, w := open(t, ctx, reader, "/ls/local/file", 0), open(t, ctx, writer, "/ls/local/file", 0)
		read := func(writes bool) {
			t.Helper()
			for i := range 120 {
				if writes {
					must(w.SetContents(ctx, []byte{byte(i)}))(t)
				}
				reads(t, ctx, h, 1)
				time.Sleep(500 * time.Millisecond)
			}
		}
		found := func() (list []misuse.Kind) {
			t.Helper()
			r := must(writer.Cell().Lint(ctx, misuse.Options{}))(t)
			for _, f := range r.Findings {
				list = append(list, f.Kind)
			}
			return list
		}
		read(true)
		if got := found(); len(got) > 0 {
			t.Errorf("a reader of what has changed is said to do %v", got)
		}
		read(false)
		read(false)
		if got := found(); len(got) != 1 || got[0] != misuse.Polling {
			t.Errorf("a reader of what has not changed is said to do %v", got)
		}
		c.Kill("r1")
		c.Restart("r1")
		reads(t, ctx, h, 1)
		if got := found(); len(got) > 0 {
			t.Errorf("a new master says %v", got)
		}
	})
}
