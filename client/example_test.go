package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// config is that of the examples: the servers of the cell foo are found as Servers
// says. A test puts a cell of its own here.
var config = client.Config{Cell: "foo"}

// Work under a lock runs under the lock's context, and sends the lock's
// sequencer to the servers that the lock protects.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.New(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx) // which tells the cell also when ctx has ended
	h, err := c.Open(ctx, "/ls/foo/svc/primary", client.OpenOptions{Write: true, Create: client.File, LockDelay: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := h.Acquire(ctx, api.Exclusive, client.Reason("nightly compaction"))
	if errors.Is(err, api.DeadlineExceeded) {
		var held *api.Error
		errors.As(err, &held)
		fmt.Println("somebody else is at work:", held.Holders)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	compact(l.Context(), l.Sequencer().String())
	if err := l.Release(ctx); errors.Is(err, api.LockLost) {
		fmt.Println("the lock was lost on the way:", err)
	}
}

func compact(context.Context, string) {}

// A service that is to go on through the loss of its session makes again, in the
// next, what went with it: here its handle, and its place in the queue for a lock.
func ExampleRenew() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lead := func(ctx context.Context, c *client.Client) error {
		h, err := c.Open(ctx, "/ls/foo/svc/primary", client.OpenOptions{Write: true, Create: client.File, LockDelay: 10 * time.Second})
		for err == nil {
			var l *client.Lock
			if l, err = h.Acquire(ctx, api.Exclusive); err != nil {
				break
			}
			compact(l.Context(), l.Sequencer().String()) // until it is done, or the lock is lost
			if err = l.Release(ctx); errors.Is(err, api.LockLost) {
				err = nil // the session is there still: wait for the lock again
			}
		}
		return err // if it is for want of the session, lead is called again with the next
	}
	err := client.Renew(ctx, config, lead)
	if !errors.Is(err, context.Canceled) {
		fmt.Println(err)
	}
}

// A process with many sessions opens some hundred over the connections of each
// Cell.
func ExampleCell_NewSession() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cell, err := client.Dial(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cell.Close() // the sessions are closed before it
	for range 100 {
		c, err := cell.NewSession(ctx, config.Session())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer c.Close(ctx)
	}
}
