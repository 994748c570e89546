package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Work under a lock runs under the lock's context, and sends the lock's
// sequencer to the servers that the lock protects.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.New(ctx, client.Config{Cell: "foo"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
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
