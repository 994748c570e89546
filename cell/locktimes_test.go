package cell

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A lock counts where the longest path is that it is at or below.
func TestLockTimesOfPrefixes(t *testing.T) {
	l := newLockTimes(meter{}, []string{"/ls/main/a", "/ls/local/a/deep", "/ls/main/b"})
	for name, want := range map[api.Name]api.Name{
		"/a": "/a", "/a/x": "/a", "/a/deep": "/a/deep", "/a/deep/x": "/a/deep", "/a/deeper": "/a", "/ab": "", "/b/a": "/b", "/c": "", "": "",
	} {
		if got := l.of(name).name; got != want {
			t.Errorf("%q counts at %q, want %q", name, got, want)
		}
	}
	if got := newLockTimes(meter{}, []string{"/ls/main"}).of("/a").name; got != "" {
		t.Errorf("below the root: %q", got)
	}
}

func TestMetricPrefixesAreChecked(t *testing.T) {
	many := make([]string, MaxMetricPrefixes+1)
	for i := range many {
		many[i] = "/ls/main/" + strings.Repeat("x", i+1)
	}
	for want, prefixes := range map[string][]string{
		"at most 32": many, "another cell": {"/ls/other/a"}, "begins with": {"a"}, "twice": {"/ls/main/a", "/ls/local/a"},
	} {
		var f faults
		if (Config{Cell: "main", MetricPrefixes: prefixes}).checkMetricPrefixes(&f); len(f) != 1 || !strings.Contains(f[0], want) {
			t.Errorf("%q: %q, want one about %q", prefixes, f, want)
		}
	}
	var f faults
	if (Config{Cell: "main", MetricPrefixes: many[1:]}).checkMetricPrefixes(&f); len(f) > 0 {
		t.Error(f)
	}
}

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
