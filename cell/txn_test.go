package cell_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// putText writes a file.
func putText(t *testing.T, ctx context.Context, c *client.Client, path, contents string) api.Stat {
	t.Helper()
	return must(c.Put(ctx, path, []byte(contents)))(t)
}

// contentsOf returns what is in a file; "absent" without a file.
func contentsOf(t *testing.T, ctx context.Context, c *client.Client, path string) string {
	t.Helper()
	contents, _, err := c.Get(ctx, path)
	if errors.Is(err, api.NotFound) {
		return "absent"
	}
	noErr(t, err)
	return string(contents)
}

// A transaction whose conditions hold is done as a whole, and each of its operations sees those before.
func TestTxn(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "a", client.Config{})
		noErr(t, cl.MkdirAll(ctx, "/ls/local/d"))
		a, gone := putText(t, ctx, cl, "/ls/local/a", "1"), putText(t, ctx, cl, "/ls/local/d/gone", "x")
		stats := must(cl.Txn().
			If("/ls/local/a", client.IfGeneration(a.Content), client.IfInstance(a.Instance), client.IfExists()).
			If("/ls/local/new", client.IfGeneration(0)).
			Put("/ls/local/a", []byte("22")).
			Create("/ls/local/new", []byte("3")).
			Delete("/ls/local/d/gone", client.IfGeneration(gone.Content)).
			Delete("/ls/local/d").
			Commit(ctx))(t)
		is, created := stats[0], stats[1]
		if len(stats) != 4 || is.Path.String() != "/ls/local/a" || is.Instance != a.Instance || is.Content <= a.Content || is.Size != 2 || is.ACL != a.ACL || is.Checksum == 0 ||
			created.Path.String() != "/ls/local/new" || created.Instance != created.Content || created.Kind != api.File || stats[2] != (api.Stat{}) || stats[3] != (api.Stat{}) {
			t.Errorf("the metadata is %+v", stats)
		}
		for path, want := range map[string]string{"a": "22", "new": "3", "d/gone": "absent"} {
			if is := contentsOf(t, ctx, cl, "/ls/local/"+path); is != want {
				t.Errorf("%s is %q, want %q", path, is, want)
			}
		}
		if _, stat, err := cl.Get(ctx, "/ls/local/a"); err != nil || stat.Content != is.Content || stat.ModifiedUnix != is.ModifiedUnix {
			t.Errorf("read again: %+v, %v; the transaction has returned %+v", stat, err, is)
		}
		fails(t, errOf(cl.List(ctx, "/ls/local/d")), api.NotFound, "the directory")
		if stats, err := cl.Txn().If("/ls/local/a", client.IfGeneration(is.Content)).If("/ls/local/d", client.IfGeneration(0)).Commit(ctx); err != nil || len(stats) != 0 {
			t.Errorf("conditions alone: %v, %v", stats, err)
		}
	})
}

// refusedTxns are transactions that are refused, with their codes, and what they are about.
func refusedTxns(cl *client.Client, lost client.WriteOption, a api.Stat) map[string]struct {
	txn  *client.Txn
	code api.Code
	path string
	says string
} {
	type row = struct {
		txn  *client.Txn
		code api.Code
		path string
		says string
	}
	const a1, b, d, none = "/ls/local/a", "/ls/local/b", "/ls/local/d", "/ls/local/none"
	txn := func() *client.Txn { return cl.Txn().Put(a1, []byte("no")).Create("/ls/local/no", nil).Delete(b) }
	return map[string]row{
		"generation":        {txn().If(b, client.IfExists()).If(a1, client.IfGeneration(a.Content+1)), api.GenerationMismatch, a1, "condition 2"},
		"instance":          {txn().If(a1, client.IfInstance(a.Instance+1)), api.GenerationMismatch, a1, "condition 1"},
		"absent":            {txn().If(a1, client.IfGeneration(0)), api.GenerationMismatch, a1, "there is such a node"},
		"exists":            {txn().If(none, client.IfExists()), api.GenerationMismatch, none, "no such node"},
		"generation of one": {txn().If(none, client.IfGeneration(7)), api.GenerationMismatch, none, "no such node"},
		"the first":         {txn().If(none, client.IfExists()).If(a1, client.IfGeneration(0)), api.GenerationMismatch, none, "condition 1"},
		"of an operation":   {cl.Txn().Delete(b).Put(a1, nil, client.IfGeneration(1)), api.GenerationMismatch, a1, "condition 1"},
		"sequencer":         {txn().If(a1, lost), api.BadSequencer, "/ls/local/lock", "condition 1 does not hold"},
		"create":            {txn().Create(a1+"/../a", nil), api.InvalidPath, "", ""},
		"create one":        {cl.Txn().Delete(b).Create(a1, nil), api.Exists, a1, "operation 2, to create"},
		"in no directory":   {txn().Put(none+"/x", nil), api.NotFound, none + "/x", "operation 4, to put"},
		"in a file":         {cl.Txn().Delete(b).Put(a1+"/x", nil), api.NotDirectory, a1 + "/x", "operation 2"},
		"a directory":       {txn().Put(d, nil), api.IsDirectory, d, "operation 4"},
		"delete none":       {txn().Delete(none), api.NotFound, none, "operation 4, to delete"},
		"not empty":         {txn().Delete(d), api.NotEmpty, d, "operation 4"},
		"the root":          {txn().Delete("/ls/local"), api.PermissionDenied, "/ls/local", "operation 4"},
		"locked":            {txn().Delete("/ls/local/held"), api.LockHeld, "/ls/local/held", "operation 4"},
		"twice":             {txn().Delete(a1), api.InvalidArgument, a1, "two operations"},
		"empty":             {cl.Txn(), api.InvalidArgument, "", "empty"},
		"no condition":      {txn().If(a1), api.InvalidArgument, a1, "no condition"},
		"no instance":       {txn().If(a1, client.IfInstance(0)), api.InvalidArgument, a1, "IfInstance"},
		"large":             {txn().Put("/ls/local/1", make([]byte, api.MaxContents/2)).Put("/ls/local/2", make([]byte, api.MaxContents/2)), api.TooLarge, a1, "bytes"},
		"another cell":      {txn().Put("/ls/other/a", nil), api.WrongCell, "/ls/other/a", "cell"},
	}
}

// A transaction of which a condition does not hold, or an operation cannot be done, does nothing at all, and says why.
func TestRefusedTxnDoesNothing(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl, other := dial(t, ctx, c, "a", client.Config{NoCache: true}), dial(t, ctx, c, "b", client.Config{NoCache: true})
		noErr(t, cl.MkdirAll(ctx, "/ls/local/d/below"))
		a, _ := putText(t, ctx, cl, "/ls/local/a", "a"), putText(t, ctx, cl, "/ls/local/b", "b")
		acquire(t, ctx, open(t, ctx, other, "/ls/local/held", 0))
		lock := acquire(t, ctx, open(t, ctx, other, "/ls/local/lock", 0))
		lost := client.IfSequencer(lock.Sequencer())
		report(t, errOf(cl.Txn().If("/ls/local/a", lost).Commit(ctx)), "a sequencer that is valid")
		noErr(t, lock.Release(ctx))
		for what, row := range refusedTxns(cl, lost, a) {
			stats, err := row.txn.Commit(ctx)
			var e *api.Error
			if !errors.As(err, &e) || e.Code != row.code || row.path != "" && e.Path != row.path || !strings.Contains(e.Message, row.says) || stats != nil {
				t.Errorf("%s: %v, %v; want %v of %q with %q", what, stats, err, row.code, row.path, row.says)
			}
			if row.code == api.GenerationMismatch && row.path == "/ls/local/a" && e.Current != a.Content {
				t.Errorf("%s: the contents are at %d, and the error says %d", what, a.Content, e.Current)
			}
			if row.code == api.LockHeld && (len(e.Holders) != 1 || e.Holders[0].Session != other.Session() || e.Holders[0].Principal == "") {
				t.Errorf("%s: held by %+v", what, e.Holders)
			}
			for path, want := range map[string]string{"a": "a", "b": "b", "no": "absent", "new": "absent", "none": "absent"} {
				if is := contentsOf(t, ctx, cl, "/ls/local/"+path); is != want {
					t.Fatalf("%s has left %q in %s, where %q was", what, is, path, want)
				}
			}
		}
	})
}

// A caller that may not look at a file learns nothing of it from the error of a condition or of an operation, not even
// whether it is there; one that may write it learns as much as from a Put.
func TestTxnTellsNothingWithoutARight(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		root, eve := as(t, ctx, c, "root"), as(t, ctx, c, "eve")
		for _, list := range []string{"root", "eve"} {
			putText(t, ctx, root, "/ls/local/acl/"+list, list+"\n")
		}
		closed := api.ACL{Read: "root", Write: "root", Change: "root"}
		create := func(path string, kind client.Creation, acl api.ACL) {
			must(root.Open(ctx, path, client.OpenOptions{Read: true, Create: kind, ACL: acl}))(t)
		}
		create("/ls/local/dark", client.NewDirectory, closed)
		create("/ls/local/dark/file", client.NewFile, closed)
		create("/ls/local/dark/own", client.NewFile, api.ACL{Read: "root", Write: "eve", Change: "root"})
		own := putText(t, ctx, root, "/ls/local/dark/file", "secret")
		same := ""
		for _, o := range []client.WriteOption{client.IfExists(), client.IfGeneration(0), client.IfGeneration(own.Content), client.IfGeneration(1), client.IfInstance(own.Instance), client.IfInstance(1)} {
			for _, path := range []string{"/ls/local/dark/file", "/ls/local/dark/absent"} {
				for what, txn := range map[string]*client.Txn{
					"alone": eve.Txn().If(path, o), "of an operation": eve.Txn().Put(path, nil, o), "beside one": eve.Txn().If(path, o).Put("/ls/local/dark/own", nil),
					"put": eve.Txn().Put(path, nil), "create": eve.Txn().Create(path, nil), "delete": eve.Txn().Delete(path),
					"after one that is done": eve.Txn().Put("/ls/local/dark/own", nil).Create(path, nil),
				} {
					_, err := txn.Commit(ctx)
					var e *api.Error
					if !errors.As(err, &e) || e.Code != api.PermissionDenied || e.Current != 0 || len(e.Holders) > 0 {
						t.Fatalf("%s, of %s: %v", what, path, err)
					}
					if told := strings.ReplaceAll(e.Message, path, "PATH"); same == "" {
						same = told
					} else if told != same {
						t.Errorf("%s, of %s: %q; others are told %q", what, path, told, same)
					}
				}
			}
		}
		_, err := eve.Txn().If("/ls/local/dark/own", client.IfGeneration(1)).Commit(ctx)
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Code != api.GenerationMismatch || e.Current == 0 {
			t.Errorf("of a file that may be written: %v", err)
		}
		equal(t, contentsOf(t, ctx, root, "/ls/local/dark/file"), "secret", "the file has %q")
	}, func(cfg *cell.Config) { cfg.InsecurePrincipals = true; cfg.Operators = []string{"root"} })
}

// Locks that clients keep are asked for only by a transaction that deletes the node, and could do all else: not by one
// that compares or writes, nor by one that is refused. Then the lock is given back, and the node deleted, also by its author.
func TestTxnAsksNobodyInVain(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		keeper, cl := dial(t, ctx, c, "keeper", client.Config{}), dial(t, ctx, c, "a", client.Config{})
		h := must(keeper.Open(ctx, "/ls/local/kept", client.OpenOptions{Read: true, Write: true, Create: client.File, CacheLock: true}))(t)
		use := func() uint64 {
			l := acquire(t, ctx, h)
			defer func() { _ = l.Release(ctx) }()
			return l.Token()
		}
		token := use()
		kept := putText(t, ctx, cl, "/ls/local/kept", "x")
		for what, txn := range map[string]*client.Txn{
			"compares":                  cl.Txn().If("/ls/local/kept", client.IfGeneration(kept.Content)),
			"compares in vain":          cl.Txn().If("/ls/local/kept", client.IfGeneration(1)),
			"writes":                    cl.Txn().Put("/ls/local/kept", []byte("y")),
			"deletes on a condition":    cl.Txn().Delete("/ls/local/kept", client.IfGeneration(1)),
			"deletes, and cannot write": cl.Txn().Put("/ls/local/none/x", nil).Delete("/ls/local/kept"),
		} {
			_, _ = txn.Commit(ctx)
			if now := use(); now != token {
				t.Fatalf("one that %s has had the lock given back: its token was %d and is %d", what, token, now)
			}
		}
		began := time.Now()
		if _, err := cl.Txn().Put("/ls/local/b", nil).Delete("/ls/local/kept").Commit(ctx); err != nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("deleting it: %v, in %v", err, time.Since(began))
		}
		own := must(cl.Open(ctx, "/ls/local/own", client.OpenOptions{Read: true, Write: true, Create: client.File, CacheLock: true}))(t)
		used := acquire(t, ctx, own)
		fails(t, errOf(cl.Txn().Delete("/ls/local/own").Commit(ctx)), api.LockHeld, "while its author uses the lock")
		noErr(t, used.Release(ctx))
		report(t, errOf(cl.Txn().Delete("/ls/local/own", client.IfExists()).Commit(ctx)), "while its author keeps the lock")
	})
}

// A cell below the level is asked once, and answers at once that it cannot, and what to do.
func TestTxnBelowItsLevel(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "a", client.Config{NoCache: true})
		putText(t, ctx, cl, "/ls/local/a", "1")
		began := time.Now()
		_, err := cl.Txn().Put("/ls/local/a", nil).Put("/ls/local/b", nil).Commit(ctx)
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "chubbyctl cell upgrade finish") || time.Since(began) > time.Second {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		equal(t, contentsOf(t, ctx, cl, "/ls/local/a"), "1", "it has written %q")
	}, func(cfg *cell.Config) { cfg.Support(2) })
}
