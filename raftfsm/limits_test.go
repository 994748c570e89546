package raftfsm_test

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// Apply refuses by these limits, or cuts by them what it keeps. Replicas of the last release have
// those below: with others, the replicas of a cell that is being upgraded would differ. A limit
// changes with a feature level, so that Apply uses the old one below it.
func TestLimitsAreThoseOfTheRelease(t *testing.T) {
	for name, limit := range map[string]struct{ is, released int64 }{
		"api.MaxContents":    {api.MaxContents, 256 << 10},
		"api.MaxPath":        {api.MaxPath, 1024},
		"api.MaxComponent":   {api.MaxComponent, 255},
		"api.MaxDepth":       {api.MaxDepth, 32},
		"api.MaxACLName":     {api.MaxACLName, 255},
		"api.MaxReason":      {api.MaxReason, 256},
		"api.MaxOutstanding": {api.MaxOutstanding, 256},
		"api.MaxGeneration":  {api.MaxGeneration, 1<<53 - 1},
		"api.MinLease":       {int64(api.MinLease), int64(time.Second)},
		"api.MaxLease":       {int64(api.MaxLease), int64(time.Minute)},
		"api.MaxLockDelay":   {int64(api.MaxLockDelay), int64(time.Minute)},
		"api.MaxHoldings":    {api.MaxHoldings, 16},
		"raftfsm.maxPast":    {raftfsm.MaxPast, 50_000},
		"refusal.MaxHolders": {refusal.MaxHolders, 100},
	} {
		if limit.is != limit.released {
			t.Errorf("%s is %d, and in the last release %d: let Apply use the new value from a feature level on (see the documentation of the package)", name, limit.is, limit.released)
		}
	}
	released := api.Quota{Nodes: 500_000, Bytes: 1 << 30, Sessions: 200_000, Handles: 1_000_000, Waiters: 200_000}
	if is := api.DefaultQuota(); is != released {
		t.Errorf("the default quota is %+v, and in the last release %+v: let Apply use the new one from a feature level on (see the documentation of the package)", is, released)
	}
}
