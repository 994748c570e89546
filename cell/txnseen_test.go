package cell_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
)

// listed says what is in a directory: of files with their sizes.
func listed(t *testing.T, ctx context.Context, c *client.Client, path string) (is string) {
	t.Helper()
	list, err := c.List(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		is += one.Path.Base()
		if one.Kind == api.File {
			is += fmt.Sprint(":", one.Size)
		}
		is += " "
	}
	return is
}

// What a transaction writes leaves every cache before it is answered, and is told to those who watch.
func TestTxnLeavesNothingOldInCaches(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		reader, writer := dial(t, ctx, c, "reader", client.Config{}), dial(t, ctx, c, "writer", client.Config{})
		for _, name := range []string{"a", "b", "gone", "d/below"} {
			if err := writer.MkdirAll(ctx, "/ls/local/d"); err != nil {
				t.Fatal(err)
			}
			putText(t, ctx, writer, "/ls/local/"+name, "0")
		}
		watch, err := reader.Open(ctx, "/ls/local", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildModified, api.EventChildAdded, api.EventChildRemoved}})
		if err != nil {
			t.Fatal(err)
		}
		all := []string{"a", "b", "gone", "new", "d/below"}
		for range 3 { // the second time from the cache
			for _, cl := range []*client.Client{reader, writer} {
				if is := listed(t, ctx, cl, "/ls/local") + listed(t, ctx, cl, "/ls/local/d"); is != "a:1 acl b:1 d gone:1 below:1 " {
					t.Fatalf("there is %q", is)
				}
			}
			for _, name := range all {
				_ = contentsOf(t, ctx, reader, "/ls/local/"+name)
				_ = contentsOf(t, ctx, writer, "/ls/local/"+name)
			}
		}
		hits := reader.Stats().Cache.Hits
		_ = contentsOf(t, ctx, reader, "/ls/local/a")
		if reader.Stats().Cache.Hits == hits {
			t.Fatal("nothing was cached")
		}
		if _, err := writer.Txn().Put("/ls/local/a", []byte("10")).Put("/ls/local/b", []byte("10")).Delete("/ls/local/gone").Create("/ls/local/new", []byte("10")).
			Delete("/ls/local/d/below").Delete("/ls/local/d").Commit(ctx); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/ls/local/gone", "/ls/local/d"} { // of both the writer has handles that it could use again
			if _, err := writer.Open(ctx, path, client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
				t.Errorf("the writer opens %s: %v", path, err)
			}
		}
		for who, cl := range map[string]*client.Client{"the reader": reader, "the writer": writer} {
			for _, name := range all {
				want := "10"
				if name == "gone" || name == "d/below" {
					want = "absent"
				}
				if is := contentsOf(t, ctx, cl, "/ls/local/"+name); is != want {
					t.Errorf("%s reads %q in %s, want %q", who, is, name, want)
				}
			}
			if is := listed(t, ctx, cl, "/ls/local"); is != "a:2 acl b:2 new:2 " {
				t.Errorf("%s lists %q", who, is)
			}
			if list, err := cl.List(ctx, "/ls/local/d"); !errors.Is(err, api.NotFound) {
				t.Errorf("%s lists %v in a directory that was deleted: %v", who, list, err)
			}
		}
		var told []string
		for e, err := range watch.Events(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if told = append(told, fmt.Sprint(e.Kind, " ", e.Child)); len(told) == 5 {
				break
			}
		}
		if got := strings.Join(told, ", "); got != "child-modified a, child-modified b, child-removed gone, child-added new, child-removed d" {
			t.Errorf("the events are %s", got)
		}
	})
}

// An act is recorded for each access control list that a transaction changes, however many and long their names
// are, and none for one that is refused for another reason than a right.
func TestTxnIsAudited(t *testing.T) {
	inAuditedCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root, eve := as(t, ctx, c, "root"), as(t, ctx, c, "eve")
		many, want := root.Txn().Put("/ls/local/x", nil), map[string]bool{}
		for i := range api.MaxTxnSteps - 1 {
			path := fmt.Sprintf("/ls/local/acl/%02d%s", i, strings.Repeat("x", 240))
			many.Create(path, []byte("*\n"))
			want[strings.Replace(path, "local", "berlin", 1)] = true
		}
		if _, err := many.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		for _, r := range records() {
			if r.Event != "act" || r.Call != "Txn" || r.Principal != "root" || r.Code != "OK" || !want[r.On] {
				t.Errorf("recorded: %+v", r)
			}
			delete(want, r.On)
		}
		if len(want) > 0 {
			t.Errorf("not recorded: %v", want)
		}
		_, _ = root.Txn().Put("/ls/local/acl/operators", nil).Create("/ls/local/x", nil).Commit(ctx)
		if _, err := root.Txn().If("/ls/local/acl/operators", client.IfExists()).Put("/ls/local/x", nil).Commit(ctx); err != nil {
			t.Error(err)
		}
		if all := records(); len(all) > 0 {
			t.Errorf("these change no list: %+v", all)
		}
		_, err := eve.Txn().Put("/ls/local/y", nil).Put("/ls/local/acl/operators", []byte("eve\n")).Commit(ctx)
		all := records()
		if !errors.Is(err, api.PermissionDenied) || len(all) != 1 || all[0].Event != "refusal" || all[0].Principal != "eve" || all[0].On != "/ls/berlin/acl/operators" {
			t.Errorf("%v is recorded as %+v", err, all)
		}
	}, func(cfg *cell.Config) { cfg.Cell = "berlin" })
}

// What transactions write is counted as what others write.
func TestTxnIsLinted(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		same, large := dial(t, ctx, c, "same", client.Config{NoCache: true}), dial(t, ctx, c, "large", client.Config{NoCache: true})
		for i := range 60 {
			if _, err := same.Txn().Put("/ls/local/a", []byte("x")).Put("/ls/local/b", fmt.Append(nil, i)).Commit(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := large.Txn().Put("/ls/local/c", fmt.Appendf(nil, "%*d", misuse.LargeWrite, i)).Commit(ctx); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
		}
		r, err := same.Cell().Lint(ctx, misuse.Options{})
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{}
		for _, f := range r.Findings {
			told[fmt.Sprint(f.Kind, " ", f.Path, " ", f.Who.Session == same.Session())] = true
		}
		if len(told) != 2 || !told[fmt.Sprint(misuse.SameContents, " /ls/local/a true")] || !told[fmt.Sprint(misuse.LargeWrites, " /ls/local/c false")] {
			t.Errorf("the findings are %v", told)
		}
	})
}
