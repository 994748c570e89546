package client

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// A replica that was deposed and does not know it yet, and answers first, is
// believed once at most: then the master of the later epoch is preferred. Alone
// it is asked.
func TestTwoWhoClaimToBeMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.elect("b:1")
		f.script(func(s seen) verb {
			switch {
			case s.method == "Locate" && s.address == "a:1":
				return func(context.Context, func() (any, error)) (any, error) {
					return &chubbypb.LocateReply{Cell: "foo", Replica: "a:1", Master: "a:1", MasterAddress: "a:1", Epoch: 5}, nil
				}
			case s.method == "Locate":
				return after(10 * time.Millisecond)
			}
			return nil
		})
		cell, err := Dial(t.Context(), f.config())
		if err != nil {
			t.Fatal(err)
		}
		find := func() *target {
			found, err := cell.locator.locate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cell.locator.forgetMaster(found)
			return found
		}
		for i := range 20 { // the order is one of chance
			if found := find(); found.address != "b:1" && i > 0 {
				t.Errorf("%d: %s", i, found.address)
			}
		}
		f.script(func(s seen) verb {
			switch {
			case s.address != "a:1":
				return hang
			case s.method == "Locate":
				return func(context.Context, func() (any, error)) (any, error) {
					return &chubbypb.LocateReply{Cell: "foo", Replica: "a:1", Master: "a:1", MasterAddress: "a:1", Epoch: 5}, nil
				}
			}
			return nil
		})
		began := time.Now()
		if found := find(); found.address != "a:1" || time.Since(began) > time.Second {
			t.Errorf("alone: %s, after %v", found.address, time.Since(began))
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What a search finds does not replace what was learned while it ran.
func TestLaterWordStays(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		at := func(address string) *target {
			one, err := c.cell.locator.pool.get(address)
			if err != nil {
				t.Fatal(err)
			}
			return one
		}
		old, next := at("a:1"), at("b:1")
		if !c.cell.locator.redirect(old, next.address) || c.cell.locator.believedMaster() != next {
			t.Fatal("nobody followed")
		}
		if got := c.cell.locator.setMaster(old, old); got != next || c.cell.locator.believedMaster() != next {
			t.Errorf("%s is believed", got.address)
		}
		c.cell.locator.forgetMaster(next)
		if got := c.cell.locator.setMaster(old, nil); got != old {
			t.Errorf("%s is believed", got.address)
		}
		closeClient(t, c)
	})
}
