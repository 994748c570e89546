package cell_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
)

// poll reads a file again and again for longer than a client has to be seen.
func poll(t *testing.T, ctx context.Context, h *client.Handle) {
	t.Helper()
	for range 2 * misuse.Polling.Limits().Count {
		if _, _, err := h.Contents(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// Who is no operator sees what his own sessions do, and what is done to what he may read, but not by whom.
func TestLintIsForWhoMayLook(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
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
		found := lint(reader, misuse.Options{})
		if len(found) != 1 || found[0].Path != "/ls/local/secret" || found[0].Who != (api.Holder{Session: member.Session()}) {
			t.Errorf("who may read the file sees %+v", found)
		}
		if found := lint(reader, misuse.Options{Principal: "member"}); len(found) > 0 {
			t.Errorf("he learns whose session it is: %+v", found)
		}
	})
}

// A change, an event or a lock that is taken excuses one more look; and what an earlier master has counted is forgotten.
func TestLintOfWhatHasChanged(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		reader, writer := dial(t, ctx, c, "reader", client.Config{NoCache: true}), dial(t, ctx, c, "writer", client.Config{})
		h, w := open(t, ctx, reader, "/ls/local/file", 0), open(t, ctx, writer, "/ls/local/file", 0)
		read := func(writes bool) {
			t.Helper()
			for i := range 120 {
				if writes {
					must(w.SetContents(ctx, []byte{byte(i)}))(t)
				}
				if _, _, err := h.Contents(ctx); err != nil {
					t.Fatal(err)
				}
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
		c.FailOver()
		if _, _, err := h.Contents(ctx); err != nil {
			t.Fatal(err)
		}
		if got := found(); len(got) > 0 {
			t.Errorf("a new master says %v", got)
		}
	})
}

// Who may read one node learns nothing of what a session does at another.
func TestLintTellsNobodyOfOtherNodes(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		as := func(principal string) *client.Client {
			return dial(t, ctx, c.Cell, principal, client.Config{TLS: c.clients.client(principal), NoCache: true})
		}
		operator, member, stranger := as("operator"), as("member"), as("stranger")
		for path, text := range map[string]string{"/ls/local/acl/us": "operator\nmember\n", "/ls/local/secret": "", "/ls/local/public": ""} {
			must(open(t, ctx, operator, path, 0).SetContents(ctx, []byte(text)))(t)
		}
		changer, err := operator.Open(ctx, "/ls/local/secret", client.OpenOptions{ChangeACL: true})
		if err == nil {
			_, err = changer.SetACL(ctx, api.ACL{Read: "us", Write: "us", Change: "us"})
		}
		noErr(t, err)
		must(open(t, ctx, operator, "/ls/local/acl/operators", 0).SetContents(ctx, []byte("operator\n")))(t)
		read := func(path string) *client.Handle {
			return must(member.Open(ctx, path, client.OpenOptions{Read: true}))(t)
		}
		secret, public := read("/ls/local/secret"), read("/ls/local/public")
		poll(t, ctx, secret)
		for range 2 {
			if _, _, err := public.Contents(ctx); err != nil {
				t.Fatal(err)
			}
		}
		r, err := stranger.Cell().Lint(ctx, misuse.Options{})
		if err != nil || len(r.Findings) > 0 {
			t.Errorf("who may not read what was polled sees %+v, %v", r.Findings, err)
		}
	})
}

// A write that is refused, as one that is made on a condition, has written nothing, and is no misuse.
func TestRefusedWritesAreNoWrites(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "writer", client.Config{NoCache: true})
		h := open(t, ctx, cl, "/ls/local/file", 0)
		for range 2 {
			must(h.SetContents(ctx, []byte("same")))(t)
		}
		large := make([]byte, misuse.LargeWrite)
		for range 60 {
			for _, contents := range [][]byte{[]byte("same"), large} {
				mustFail(t, errOf(h.SetContents(ctx, contents, client.IfGeneration(1))), api.GenerationMismatch)
			}
			time.Sleep(time.Second)
		}
		r, err := cl.Cell().Lint(ctx, misuse.Options{})
		if err != nil || len(r.Findings) > 0 {
			t.Errorf("60 writes that were refused are %+v, %v", r.Findings, err)
		}
	})
}
