package chubbykv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

// A program changes a key that it has read, works under a lock, and lists its keys. A cell in memory takes the
// place of a real one.
func Example() {
	ctx := context.Background()
	cell, err := celltest.New(1)
	if err != nil {
		log.Fatal(err)
	}
	defer cell.Close()

	kv, err := chubbykv.New(ctx, chubbykv.Config{
		Path:   "/ls/local/app",
		Client: client.Config{Servers: cell.Servers(), Dialer: cell.Dial},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer kv.Close()

	if err := kv.Put(ctx, "config/limit", []byte("10"), nil); err != nil {
		log.Fatal(err)
	}
	pair, err := kv.Get(ctx, "config/limit", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, now, err := kv.AtomicPut(ctx, "config/limit", []byte("20"), pair, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = kv.AtomicPut(ctx, "config/limit", []byte("30"), pair, nil)
	fmt.Println(string(now.Value), err)

	lock, err := kv.NewLock(ctx, "primary", &store.LockOptions{Value: []byte("host 1"), DeleteOnUnlock: true})
	if err != nil {
		log.Fatal(err)
	}
	lost, err := lock.Lock(ctx) // lost is closed before another can have the lock
	if err != nil {
		log.Fatal(err)
	}
	pairs, err := kv.List(ctx, "", nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, pair := range pairs {
		fmt.Println(pair.Key, string(pair.Value))
	}
	if err := lock.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	<-lost
	_, err = kv.Get(ctx, "primary", nil)
	fmt.Println(err)
	// Output:
	// 20 unable to complete atomic operation, key modified
	// config/limit 20
	// primary host 1
	// key not found in store
}
