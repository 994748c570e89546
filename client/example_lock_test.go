//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// newSession opens a session with a cell of its own, in this process. In a program it is
// client.New(ctx, client.Config{Cell: "foo"}).
func newSession() (context.Context, *client.Client, func()) {
	ctx, config, done := newCell()
	c, err := client.New(ctx, config)
	if err != nil {
		panic(err)
	}
	return ctx, c, func() {
		_ = c.Close(ctx)
		done()
	}
}

// newCell starts a cell of its own, in this process.
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

// One of two holds a lock; the other is told who that is. Tokens rise from one holder to the next.
func ExampleHandle_TryAcquire() {
	ctx, c, done := newSession()
	defer done()
	options := client.OpenOptions{Write: true, Create: client.File}
	first, err := c.Open(ctx, "/ls/local/backup", options)
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := c.Open(ctx, "/ls/local/backup", options)
	if err != nil {
		fmt.Println(err)
		return
	}

	lock, err := first.TryAcquire(ctx, api.Exclusive, client.Reason("nightly backup"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = second.TryAcquire(ctx, api.Exclusive)
	var held *api.Error
	if errors.As(err, &held) && held.Code == api.LockHeld {
		fmt.Println("held for:", held.Holders[0].Reason)
	}

	if err := lock.Release(ctx); err != nil {
		fmt.Println(err)
		return
	}
	next, err := second.TryAcquire(ctx, api.Exclusive)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("a higher token:", next.Token() > lock.Token())
	// Output:
	// held for: nightly backup
	// a higher token: true
}

// Who changes what it has read does so on the condition that nobody else has changed it meanwhile.
func ExampleIfGeneration() {
	ctx, c, done := newSession()
	defer done()
	h, err := c.Open(ctx, "/ls/local/config", client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte("limit: 10")})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, read, err := h.Contents(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, contents := range []string{"limit: 20", "limit: 30"} { // the second on what it did not read
		_, err = h.SetContents(ctx, []byte(contents), client.IfGeneration(read.Content))
		fmt.Println(contents, errors.Is(err, api.GenerationMismatch))
	}
	contents, _, err := h.Contents(ctx)
	fmt.Println(string(contents), err)
	// Output:
	// limit: 20 false
	// limit: 30 true
	// limit: 20 <nil>
}

// A handle that is opened for events is told of changes, after they can be read.
func ExampleHandle_Events() {
	ctx, c, done := newSession()
	defer done()
	h, err := c.Open(ctx, "/ls/local/motd", client.OpenOptions{
		Read: true, Write: true, Create: client.File, Events: []api.EventKind{api.EventContentsModified},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := h.SetContents(ctx, []byte("closed on Friday")); err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range h.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		contents, _, err := h.Contents(ctx)
		fmt.Printf("%v: %s %v\n", event.Kind, contents, err)
		break
	}
	// Output:
	// contents-modified: closed on Friday <nil>
}
