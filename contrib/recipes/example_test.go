//go:build linux

package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/recipes"
)

// newCell starts a cell of its own, in this process. The configuration is that of its clients; in a program it is
// client.Config{Cell: "foo"}.
func newCell() (context.Context, client.Config, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cell, err := celltest.New(1)
	if err != nil {
		panic(err)
	}
	return ctx, client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock}, func() {
		cell.Close()
		cancel()
	}
}

// A program counts orders. If the context ends before an answer comes, it asks whether the order was counted.
func ExampleCounter() {
	ctx, cfg, stop := newCell()
	defer stop()
	keeper, err := client.Keep(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keeper.Close(ctx)
	counter := recipes.NewCounter(keeper, "/ls/local/orders")
	defer counter.Close(ctx)
	n, err := counter.Add(ctx, 1)
	if errors.Is(err, api.Uncertain) {
		_, counted, err := counter.Settle(context.WithoutCancel(ctx))
		if err == nil && !counted {
			fmt.Println("not counted, and never will be")
		}
		return
	}
	fmt.Println(n, err)
	// Output: 1 <nil>
}
