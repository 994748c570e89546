package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// useCollector has the garbage collector work as it does by default, whatever GOGC the tests run with.
func useCollector(t *testing.T) {
	t.Helper()
	t.Setenv("GOGC", "")
	was := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(was) })
}

// A write load on a cell makes the collector run several times less often with the ballast than without.
func TestBallastSparesCollections(t *testing.T) {
	useCollector(t)
	c := celltest.Start(t, 1)
	cl := must(client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock}))(t)
	defer cl.Close(t.Context())
	file := must(cl.Open(t.Context(), "/ls/"+api.LocalCell+"/file", client.OpenOptions{Write: true, Create: client.File}))(t)
	collections := func() uint32 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range 150 {
			noErr(t, errOf(file.SetContents(t.Context(), make([]byte, 60_000))))
		}
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	without := collections()
	ballast := newBallast()
	with := collections()
	runtime.KeepAlive(ballast)
	if without < 4 || with > without/2 {
		t.Errorf("150 writes made the collector run %d times without the ballast, and %d times with it; want less than half as often", without, with)
	}
}

// Where GOGC is set, the operator has decided how often the collector runs.
func TestNoBallastWithGOGC(t *testing.T) {
	t.Setenv("GOGC", "100")
	if b := newBallast(); b != nil {
		t.Errorf("the ballast has %d bytes", len(b))
	}
}

// The ballast is a share of the memory that there is, and at most maxBallast.
func TestBallastSize(t *testing.T) {
	for memory, want := range map[int64]int64{math.MaxInt64: maxBallast, 1 << 40: maxBallast, 256 << 20: 16 << 20} {
		if got := ballastSize(memory); got != want {
			t.Errorf("of %d bytes the ballast has %d, want %d", memory, got, want)
		}
	}
	useCollector(t)
	was := debug.SetMemoryLimit(64 << 20)
	defer debug.SetMemoryLimit(was)
	if b := newBallast(); len(b) != 4<<20 {
		t.Errorf("with GOMEMLIMIT=64MiB the ballast has %d bytes, want 4 MiB", len(b))
	}
}

// The least limit of the control groups counts, whichever of them has it.
func TestMemoryOfControlGroups(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		noErr(t, os.MkdirAll(filepath.Dir(name), 0o755))
		noErr(t, os.WriteFile(name, []byte(text), 0o644))
		return name
	}
	list := write("list", "1:memory:/other\n0::/system.slice/chubbyd.service\n")
	write("groups/system.slice/chubbyd.service/memory.max", "max\n")
	groups := filepath.Join(dir, "groups")
	if got := groupLimit(list, groups); got != math.MaxInt64 {
		t.Errorf("without a limit: %d", got)
	}
	write("groups/system.slice/memory.max", "1000000\n")
	if got := groupLimit(list, groups); got != 1_000_000 {
		t.Errorf("the limit of the group above: %d", got)
	}
	write("groups/memory.max", "500000\n") // of a container, which sees its own group as the topmost
	if got := groupLimit(write("list", "0::/\n"), groups); got != 500_000 {
		t.Errorf("the limit of a container: %d", got)
	}
	if got := groupLimit(filepath.Join(dir, "none"), groups); got != math.MaxInt64 {
		t.Errorf("without a list: %d", got)
	}
	if got := machineMemory(write("meminfo", "MemTotal:  2048 kB\nMemFree: 1 kB\n")); got != 2<<20 {
		t.Errorf("the machine has %d bytes", got)
	}
	if got := machineMemory(filepath.Join(dir, "none")); got != math.MaxInt64 {
		t.Errorf("a machine that does not say: %d", got)
	}
}

// The limit of a cell leaves a replica room for its contents twice, and for itself. With an unknown memory there is no limit.
func TestContentsBound(t *testing.T) {
	for memory, want := range map[int64]int{math.MaxInt64: 0, 1 << 30: 409, 921 << 20: 368, 16 << 30: 6553, 1 << 20: 1} {
		if got := contentsBound(memory); got != want {
			t.Errorf("of %d bytes of memory a cell may hold %d MiB, want %d", memory, got, want)
		}
	}
}

// A bound that does not fit the memory is warned of, and one that does is not.
func TestContentsWarning(t *testing.T) {
	for _, c := range []struct {
		mib    int
		memory int64
		warns  bool
	}{{0, 1 << 30, false}, {409, 1 << 30, false}, {410, 1 << 30, true}, {1 << 20, math.MaxInt64, false}} {
		s := defaults()
		s.replica.MaxContentsMiB = c.mib
		warned := contentsWarning(s, c.memory)
		if (len(warned) > 0) != c.warns || c.warns && !strings.HasPrefix(warned[0], "max-contents-mib: 410 ") {
			t.Errorf("%d MiB of %d bytes: %q", c.mib, c.memory, warned)
		}
	}
}
