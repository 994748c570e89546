package chubbyvault_test

import (
	"context"
	"fmt"
	"log"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbyvault "github.com/chubbylock/chubby/contrib/vault"
	"github.com/hashicorp/vault/sdk/physical"
)

// What Vault does: it becomes the active node, and from then on its writes depend on that. A cell in
// memory takes the place of a real one.
func Example() {
	ctx := context.Background()
	cell, err := celltest.New(1)
	if err != nil {
		log.Fatal(err)
	}
	defer cell.Close()

	backend, err := chubbyvault.New(ctx, chubbyvault.Config{
		Path:   "/ls/local/vault",
		Client: client.Config{Servers: cell.Servers(), Dialer: cell.Dial},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close(ctx)

	lock, err := backend.LockWith("core/lock", "node 1")
	if err != nil {
		log.Fatal(err)
	}
	lost, err := lock.Lock(nil) // lost is closed before another node can be the active one
	if err != nil {
		log.Fatal(err)
	}
	if err := backend.RegisterActiveNodeLock(lock); err != nil {
		log.Fatal(err)
	}
	if err := backend.Put(ctx, &physical.Entry{Key: "logical/secret", Value: []byte("sealed")}); err != nil {
		log.Fatal(err)
	}
	_, holder, _ := lock.Value()
	fmt.Println("the active node is", holder)

	if err := lock.Unlock(); err != nil {
		log.Fatal(err)
	}
	<-lost
	err = backend.Put(ctx, &physical.Entry{Key: "logical/secret", Value: []byte("too late")})
	fmt.Println("a write after that fails:", err != nil)
	entry, _ := backend.Get(ctx, "logical/secret")
	fmt.Printf("the entry is %q\n", entry.Value)
	// Output:
	// the active node is node 1
	// a write after that fails: true
	// the entry is "sealed"
}
