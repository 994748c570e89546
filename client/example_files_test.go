//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Work that one process at a time may do runs under the lock of a file.
func ExampleClient_Do() {
	ctx, c, done := newSession()
	defer done()
	err := c.Do(ctx, "/ls/local/backup", func(ctx context.Context, l *client.Lock) error {
		fmt.Println("working as", l.Mode(), "holder") // until it is done or ctx ends, because the lock is lost for example
		return ctx.Err()
	}, client.Reason("nightly backup"))
	fmt.Println(err)
	// Output:
	// working as exclusive holder
	// <nil>
}

// A file is written, and created with its contents if it is absent; reading it again is answered by the cache.
func ExampleClient_Get() {
	ctx, c, done := newSession()
	defer done()
	if err := c.MkdirAll(ctx, "/ls/local/svc/web"); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Put(ctx, "/ls/local/svc/web/limit", []byte("10")); err != nil {
		fmt.Println(err)
		return
	}
	contents, stat, err := c.Get(ctx, "/ls/local/svc/web/limit")
	fmt.Printf("%s, %d bytes, %v\n", contents, stat.Size, err)
	_, _, err = c.Get(ctx, "/ls/local/svc/web/limits")
	fmt.Println("absent:", errors.Is(err, api.NotFound))
	// Output:
	// 10, 2 bytes, <nil>
	// absent: true
}

// A transaction moves something from one file to another: whoever looks sees it in one of them. If another has changed either file
// meanwhile, a condition does not hold, nothing is done, and the program begins again with what there is now.
func ExampleClient_Txn() {
	ctx, c, done := newSession()
	defer done()
	if _, err := c.Txn().Create("/ls/local/waiting", []byte("task-7")).Create("/ls/local/running", nil).Commit(ctx); err != nil {
		fmt.Println(err)
		return
	}
	start := func() error {
		for {
			task, waiting, err := c.Get(ctx, "/ls/local/waiting")
			if err != nil {
				return err
			}
			_, running, err := c.Get(ctx, "/ls/local/running")
			if err != nil {
				return err
			}
			_, err = c.Txn().
				Put("/ls/local/running", task, client.IfGeneration(running.Content)).
				Delete("/ls/local/waiting", client.IfGeneration(waiting.Content)).
				Commit(ctx)
			if !errors.Is(err, api.GenerationMismatch) {
				return err
			}
		}
	}
	fmt.Println(start())
	contents, _, err := c.Get(ctx, "/ls/local/running")
	fmt.Printf("running: %s, %v\n", contents, err)
	_, _, err = c.Get(ctx, "/ls/local/waiting")
	fmt.Println("waiting:", errors.Is(err, api.NotFound))
	// Output:
	// <nil>
	// running: task-7, <nil>
	// waiting: true
}

// Whoever changes what it has read writes on the condition that nobody else has changed it meanwhile, and begins again if
// somebody has. A file that is absent is at generation 0.
func ExampleClient_Put() {
	ctx, c, done := newSession()
	defer done()
	increment := func() error {
		for {
			contents, stat, err := c.Get(ctx, "/ls/local/counter")
			if err != nil && !errors.Is(err, api.NotFound) {
				return err
			}
			n, _ := strconv.Atoi(string(contents)) // 0 if there is none
			_, err = c.Put(ctx, "/ls/local/counter", []byte(strconv.Itoa(n+1)), client.IfGeneration(stat.Content))
			if !errors.Is(err, api.GenerationMismatch) {
				return err
			}
		}
	}
	ends := make(chan error)
	for range 5 {
		go func() { ends <- increment() }()
	}
	for range 5 {
		if err := <-ends; err != nil {
			fmt.Println(err)
		}
	}
	contents, _, err := c.Get(ctx, "/ls/local/counter")
	fmt.Println(string(contents), err)
	// Output:
	// 5 <nil>
}

// A listing has the metadata of the children, by name.
func ExampleClient_List() {
	ctx, c, done := newSession()
	defer done()
	if err := c.MkdirAll(ctx, "/ls/local/config/old"); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Put(ctx, "/ls/local/config/limit", []byte("10")); err != nil {
		fmt.Println(err)
		return
	}
	list, err := c.List(ctx, "/ls/local/config")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, child := range list {
		fmt.Println(child.Kind, child.Path.Base(), child.Size)
	}
	if err := c.RemoveAll(ctx, "/ls/local/config"); err != nil {
		fmt.Println(err)
	}
	// Output:
	// file limit 2
	// directory old 0
}

// A plug-in, whose methods others call when they like, has a Keeper instead of a session.
func ExampleKeeper() {
	ctx, config, done := newCell() // in a program client.Config{Cell: "foo"}
	defer done()
	keeper, err := client.Keep(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keeper.Close(ctx)

	store := func(name string, value []byte) error { // a method of the plug-in
		return keeper.Do(ctx, func(c *client.Client) error {
			_, err := c.Put(ctx, "/ls/local/"+name, value)
			return err
		})
	}
	fmt.Println(store("one", []byte("1")), store("two", []byte("2")))
	// Output:
	// <nil> <nil>
}

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
