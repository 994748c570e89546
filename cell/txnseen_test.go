package cell_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	list := must(c.List(ctx, path))(t)
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
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		reader, writer := dial(t, ctx, c, "reader", client.Config{}), dial(t, ctx, c, "writer", client.Config{})
		for _, name := range []string{"a", "b", "gone", "d/below"} {
			noErr(t, writer.MkdirAll(ctx, "/ls/local/d"))
			putText(t, ctx, writer, "/ls/local/"+name, "0")
		}
		watch, err := reader.Open(ctx, "/ls/local", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildModified, api.EventChildAdded, api.EventChildRemoved}})
		noErr(t, err)
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
		stopIf(t, reader.Stats().Cache.Hits == hits, "nothing was cached")
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
			noErr(t, err)
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
	inAuditedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root, eve := as(t, ctx, c, "root"), as(t, ctx, c, "eve")
		many, want := root.Txn().Put("/ls/local/x", nil), map[string]bool{}
		for i := range api.MaxTxnSteps - 1 {
			path := fmt.Sprintf("/ls/local/acl/%02d%s", i, strings.Repeat("x", 240))
			many.Create(path, []byte("*\n"))
			want[strings.Replace(path, "local", "berlin", 1)] = true
		}
		must(many.Commit(ctx))(t)
		for _, r := range records() {
			failIf(t, r.Event != "act" || r.Call != "Txn" || r.Principal != "root" || r.Code != "OK" || !want[r.On], "recorded: %+v", r)
			delete(want, r.On)
		}
		failIf(t, len(want) > 0, "not recorded: %v", want)
		_, _ = root.Txn().Put("/ls/local/acl/operators", nil).Create("/ls/local/x", nil).Commit(ctx)
		report(t, errOf(root.Txn().If("/ls/local/acl/operators", client.IfExists()).Put("/ls/local/x", nil).Commit(ctx)))
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

// What transactions write is counted as what others write. A write that is refused, as one that is made on a condition, has written
// nothing, and is no misuse.
func TestTxnIsLinted(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		same, large := dial(t, ctx, c, "same", client.Config{NoCache: true}), dial(t, ctx, c, "large", client.Config{NoCache: true})
		refused := open(t, ctx, dial(t, ctx, c, "refused", client.Config{NoCache: true}), "/ls/local/refused", 0)
		for range 2 {
			must(refused.SetContents(ctx, []byte("same")))(t)
		}
		for i := range 60 {
			for _, contents := range [][]byte{[]byte("same"), make([]byte, misuse.LargeWrite)} {
				mustFail(t, errOf(refused.SetContents(ctx, contents, client.IfGeneration(1))), api.GenerationMismatch)
			}
			must(same.Txn().Put("/ls/local/a", []byte("x")).Put("/ls/local/b", fmt.Append(nil, i)).Commit(ctx))(t)
			must(large.Txn().Put("/ls/local/c", fmt.Appendf(nil, "%*d", misuse.LargeWrite, i)).Commit(ctx))(t)
			<-time.After(time.Second)
		}
		r := must(same.Cell().Lint(ctx, misuse.Options{}))(t)
		told := map[string]bool{}
		for _, f := range r.Findings {
			told[fmt.Sprint(f.Kind, " ", f.Path, " ", f.Who.Session == same.Session())] = true
		}
		if len(told) != 2 || !told[fmt.Sprint(misuse.SameContents, " /ls/local/a true")] || !told[fmt.Sprint(misuse.LargeWrites, " /ls/local/c false")] {
			t.Errorf("the findings are %v", told)
		}
	})
}

// bank moves money between two accounts. Each transfer is a transaction that also creates a receipt, by which it is seen
// afterwards whether it was done.
type bank struct {
	t  *testing.T
	cl *client.Client
}

const left, right = "/ls/local/left", "/ls/local/right"

// balances returns what is in the accounts, each with its generation.
func (b *bank) balance(ctx context.Context, account string) (int, api.Generation, error) {
	contents, stat, err := b.cl.Get(ctx, account)
	if err != nil {
		return 0, 0, err
	}
	n, err := strconv.Atoi(string(contents))
	return n, stat.Content, err
}

// transfer moves an amount from the left to the right, and begins again as long as others come first.
func (b *bank) transfer(ctx context.Context, amount int, receipt string) error {
	for {
		from, fromAt, err := b.balance(ctx, left)
		if err != nil {
			return err
		}
		to, toAt, err := b.balance(ctx, right)
		if err != nil {
			return err
		}
		_, err = b.cl.Txn().
			Put(left, []byte(strconv.Itoa(from-amount)), client.IfGeneration(fromAt)).
			Put(right, []byte(strconv.Itoa(to+amount)), client.IfGeneration(toAt)).
			Create(receipt, []byte(strconv.Itoa(amount))).
			Commit(ctx)
		if !errors.Is(err, api.GenerationMismatch) {
			return err
		}
	}
}

// Many clients move money between two accounts, while masters are killed and answers lost. Each transfer that was acknowledged was
// done once, each that was refused not at all, and every reader of both accounts at one moment sees one sum.
func TestTransfersBetweenTwoFiles(t *testing.T) {
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const tellers, transfers, sum = 8, 12, 1000
		setup := dial(t, ctx, c, "setup", client.Config{NoCache: true})
		putText(t, ctx, setup, left, strconv.Itoa(sum))
		putText(t, ctx, setup, right, "0")
		var lost, calls, looks atomic.Int64
		loses := func(method string) bool {
			return strings.HasSuffix(method, "Txn") && calls.Add(1)%3 == 0 && lost.Add(1) > 0
		}
		var working, looking sync.WaitGroup
		moved := make([]map[string]int, tellers) // the receipts of what was acknowledged
		for i := range tellers {
			moved[i] = map[string]int{}
			cl := dial(t, ctx, c, fmt.Sprintf("teller%d", i), client.Config{Dialer: c.Lossy(fmt.Sprintf("teller%d", i), loses), CallTimeout: 2 * time.Second})
			working.Go(func() {
				b := &bank{t: t, cl: cl}
				for n := range transfers {
					receipt := fmt.Sprintf("/ls/local/receipt-%d-%d", i, n)
					amount := (i+n)%7 - 3
					if err := b.transfer(ctx, amount, receipt); err != nil {
						t.Errorf("a transfer that nobody gave up: %v", err)
						return
					}
					moved[i][receipt] = amount
					<-time.After(time.Second)
				}
			})
		}
		stop := make(chan struct{})
		looking.Go(func() {
			b := &bank{t: t, cl: dial(t, ctx, c, "auditor", client.Config{})}
			for {
				select {
				case <-stop:
					return
				case <-time.After(500 * time.Millisecond):
				}
				from, fromAt, err := b.balance(ctx, left)
				to, toAt, again := b.balance(ctx, right)
				if err != nil || again != nil {
					t.Error(err, again)
					return
				}
				_, err = b.cl.Txn().If(left, client.IfGeneration(fromAt)).If(right, client.IfGeneration(toAt)).Commit(ctx)
				failIf(t, err == nil && from+to != sum, "the accounts have %d and %d at one moment", from, to)
				if err == nil {
					looks.Add(1)
				} else if !errors.Is(err, api.GenerationMismatch) {
					t.Error(err)
				}
			}
		})
		var kills atomic.Int64
		looking.Go(func() { kills.Store(killMasters(c, 3*time.Second, stop)) })
		working.Wait()
		close(stop)
		looking.Wait()
		total := 0
		for i := range moved {
			for receipt, amount := range moved[i] {
				if is := contentsOf(t, ctx, setup, receipt); is != strconv.Itoa(amount) {
					t.Errorf("%s was acknowledged, and has %q", receipt, is)
				}
				total += amount
			}
		}
		if from, to := contentsOf(t, ctx, setup, left), contentsOf(t, ctx, setup, right); from != strconv.Itoa(sum-total) || to != strconv.Itoa(total) {
			t.Errorf("%d was moved in %d transfers, and the accounts have %s and %s", total, tellers*transfers, from, to)
		}
		t.Logf("%d answers lost, %d masters killed, %d looks at both accounts", lost.Load(), kills.Load(), looks.Load())
		if lost.Load() < 10 || kills.Load() < 2 || looks.Load() == 0 {
			t.Error("too few failures, or looks: the test proves nothing")
		}
	})
}
