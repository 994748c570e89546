package cell

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A replica does not end for what a slow disk takes, nor only after very many minutes.
func TestDiskStallHasBounds(t *testing.T) {
	cfg := Config{Cell: "local", ID: "r1", Data: "x", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:2"}}}
	if whole, err := cfg.complete(); err != nil || whole.DiskStall != DefaultDiskStall {
		t.Errorf("the default is %v, %v", whole.DiskStall, err)
	}
	for stall, ok := range map[time.Duration]bool{
		MinDiskStall: true, MinDiskStall - 1: false, MaxDiskStall: true, MaxDiskStall + 1: false, -1: false,
	} {
		cfg.DiskStall = stall
		if err := cfg.Check(); (err == nil) != ok {
			t.Errorf("%v: %v", stall, err)
		}
	}
}

// What is configured is what the watch over the disk goes by.
func TestDiskStallReachesTheStores(t *testing.T) {
	cfg := Config{Cell: "local", ID: "r1", Data: "x", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:2"}}, DiskStall: 7 * time.Minute}
	whole, err := cfg.complete()
	if err != nil {
		t.Fatal(err)
	}
	r := &Replica{cfg: whole, log: slog.New(slog.DiscardHandler)}
	if got := r.storeOptions().Stall; got != cfg.DiskStall {
		t.Errorf("the stores are opened with %v, want %v", got, cfg.DiskStall)
	}
}

// A replica that hangs in its disk is given up only after the watch over the disk has said why.
func TestStopOutlastsADiskThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replica{cfg: Config{ID: "r1", Data: "x", DiskStall: MaxDiskStall}, done: make(chan struct{})}
		r.once.Do(func() {}) // what Stop does hangs
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err, took := r.Stop(ctx), time.Since(began); err == nil || took <= MaxDiskStall {
			t.Errorf("after %v: %v; the disk may stall for %v", took, err, MaxDiskStall)
		}
	})
}
