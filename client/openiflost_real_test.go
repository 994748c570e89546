//go:build linux

package client_test

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The lock is released after its sequencer was found valid, and before the Open: nothing is created, and what is there is not
// opened.
func TestOpenIfSequencerInBetween(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		two := dial("two")
		var release atomic.Pointer[client.Lock]
		one := dial("one", func(cfg *client.Config) {
			cfg.NoCache = true
			cfg.Dialer = cell.Lossy("one", func(method string) bool {
				if path.Base(method) == "SetSequencer" {
					if l := release.Swap(nil); l != nil {
						wants(t, "Release", l.Release(ctx), api.OK)
					}
				}
				return false
			})
		})
		wants(t, "MkdirAll", two.MkdirAll(ctx, "/ls/local/dir"), api.OK)
		_, err := two.Put(ctx, "/ls/local/dir/old", nil)
		wants(t, "Put", err, api.OK)
		for name, o := range map[string]client.OpenOptions{
			"new":       {Write: true, Create: client.NewFile},
			"file":      {Write: true, Create: client.File},
			"ephemeral": {Write: true, Create: client.File, Ephemeral: true},
			"directory": {Read: true, Create: client.Directory},
			"old":       {Write: true, Create: client.File},
		} {
			l, err := two.Acquire(ctx, lockPath)
			if err != nil {
				t.Fatal(err)
			}
			seq := l.Sequencer()
			release.Store(l)
			o.IfSequencer = &seq
			_, err = one.Open(ctx, "/ls/local/dir/"+name, o)
			wants(t, name, err, api.BadSequencer)
			if release.Load() != nil {
				t.Error("the lock is held still")
			}
		}
		list, err := two.List(ctx, "/ls/local/dir")
		if err != nil || len(list) != 1 {
			t.Errorf("%d nodes, %v; want 1", len(list), err)
		}
		if n := handlesOf(ctx, t, one); n != 0 {
			t.Errorf("%d handles are open", n)
		}
	})
}

// An Open that depends on a sequencer, and is given up when it was done, leaves no handle, though that of the directory is
// closed meanwhile: what it has made goes if it is ephemeral.
func TestOpenIfSequencerGivenUp(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		two := dial("two")
		var losing atomic.Int64 // so many answers to Opens come before they are lost
		losing.Store(1 << 30)
		one := dial("one", func(cfg *client.Config) {
			cfg.NoCache = true
			cfg.Dialer = cell.Lossy("one", func(method string) bool { return path.Base(method) == "Open" && losing.Add(-1) < 0 })
		})
		wants(t, "MkdirAll", two.MkdirAll(ctx, "/ls/local/dir"), api.OK)
		l, err := two.Acquire(ctx, lockPath)
		if err != nil {
			t.Fatal(err)
		}
		seq := l.Sequencer()
		brief, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		losing.Store(1) // that to the Open of the directory comes
		_, err = one.Open(brief, "/ls/local/dir/x", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true, IfSequencer: &seq})
		wants(t, "Open", err, api.Uncertain)
		if _, err := two.Stat(ctx, "/ls/local/dir/x"); err != nil {
			t.Errorf("it was not made: %v", err)
		}
		losing.Store(1 << 30)
		for range 100 {
			if _, err = two.Stat(ctx, "/ls/local/dir/x"); errors.Is(err, api.NotFound) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		wants(t, "Stat", err, api.NotFound)
		if n := handlesOf(ctx, t, one); n != 0 {
			t.Errorf("%d handles are open", n)
		}
		wants(t, "Release", l.Release(ctx), api.OK)
	})
}
