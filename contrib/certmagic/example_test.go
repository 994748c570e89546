package chubbystorage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/caddyserver/certmagic"
	"github.com/chubbylock/chubby/client"
	chubbystorage "github.com/chubbylock/chubby/contrib/certmagic"
)

// Every server that has the same Path shares the certificates. "chubbyd dev" starts a cell for it.
func Example() {
	ctx := context.Background()
	keeper, err := client.Keep(ctx, client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keeper.Close(ctx)
	storage, err := chubbystorage.New(keeper, chubbystorage.Config{Path: "/ls/local/certmagic"})
	if err != nil {
		fmt.Println(err)
		return
	}
	certmagic.Default.Storage = storage // before certmagic.HTTPS or certmagic.NewDefault
	fmt.Println(storage)
	// Output: chubby:/ls/local/certmagic
}

// TestExample uses the storage as the example makes it.
func TestExample(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.host("one")
		if err := s.Store(w.ctx, "acme/account", []byte("key")); err != nil {
			t.Fatal(err)
		}
		got, err := w.host("two").Load(w.ctx, "acme/account")
		if err != nil || string(got) != "key" {
			t.Errorf("%q %v", got, err)
		}
	})
}
