//go:build linux

package recipe_test

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// newKeeper returns a Keeper for a cell of its own, in this process, and a session that writes. In a program it is
// client.Keep(ctx, client.Config{Cell: "foo"}).
func newKeeper() (context.Context, *client.Keeper, *client.Client, func()) {
	ctx, cfg, stop := newCell()
	k, err := client.Keep(ctx, cfg)
	if err != nil {
		panic(err)
	}
	c, err := client.New(ctx, cfg)
	if err != nil {
		panic(err)
	}
	return ctx, k, c, func() {
		_ = c.Close(ctx)
		_ = k.Close(ctx)
		stop()
	}
}

// All files below a directory are at hand, and kept up to date.
func ExampleWatchTree() {
	ctx, sessions, c, done := newKeeper()
	defer done()
	put := func(path, contents string) {
		if _, err := c.Put(ctx, path, []byte(contents)); err != nil {
			fmt.Println(err)
		}
	}
	if err := c.MkdirAll(ctx, "/ls/local/web/limits"); err != nil {
		fmt.Println(err)
		return
	}
	put("/ls/local/web/limits/requests", "100")
	put("/ls/local/web/motd", "open")

	web, err := recipe.WatchTree(ctx, sessions, "/ls/local/web", recipe.TreeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer web.Close()
	for name, node := range web.All() {
		fmt.Printf("%s %q\n", name, node.Contents)
	}
	put("/ls/local/web/limits/requests", "200")
	timeout := time.After(time.Minute)
	for {
		changed := web.Changed() // before looking, so that nothing is missed
		if node, _ := web.Get("limits/requests"); string(node.Contents) == "200" {
			fmt.Println("200 now")
			return
		}
		select {
		case <-changed:
		case <-timeout:
			fmt.Println("nothing has changed")
			return
		}
	}
	// Output:
	// . ""
	// limits ""
	// limits/requests "100"
	// motd "open"
	// 200 now
}
