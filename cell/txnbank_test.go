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
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

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
// done once, each that was refused not at all, and whoever looks at both accounts at one moment sees one sum.
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
				if err == nil && from+to != sum {
					t.Errorf("the accounts have %d and %d at one moment", from, to)
				}
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
