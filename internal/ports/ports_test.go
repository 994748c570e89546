package ports

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// Callers that look at the same time have different ports, though nobody listens on them yet. A port that is listened on
// marks a range, and the system gives it to one of them, in any process.
func TestNoTwoHaveTheSamePorts(t *testing.T) {
	const number = 60 // of 375 ranges, and other tests need some
	var wg sync.WaitGroup
	var mu sync.Mutex // guards given
	given := map[int]bool{}
	for range number {
		wg.Go(func() {
			r, err := Reserve()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { r.Close() })
			mu.Lock()
			defer mu.Unlock()
			if given[r.Base()] {
				t.Errorf("%d was given to two", r.Base())
			}
			given[r.Base()] = true
		})
	}
	wg.Wait()
}

// TestPortsInUseAreLeftOut: a program that does not reserve keeps its ports, too.
func TestPortsInUseAreLeftOut(t *testing.T) {
	const first, ranges = 18000, 4 // that no other test looks at
	next := func() (*Range, error) { return reserve(first, first+ranges*apart) }
	l, err := net.Listen("tcp", address(first+Most)) // the last of the first range
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all []*Range
	defer func() {
		for _, r := range all {
			r.Close()
		}
	}()
	for range ranges - 1 {
		r, err := next()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
		if r.Base() < first+apart {
			t.Fatalf("%d was given, and a port of it is in use", r.Base())
		}
	}
	if r, err := next(); err == nil || !strings.Contains(err.Error(), "18000") {
		t.Fatalf("all are taken, and %v was given (%v)", r, err)
	}
	for range 2 { // the second does nothing
		if err := all[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := next()
	if err != nil {
		t.Fatalf("one was closed: %v", err)
	}
	if again.Base() != all[0].Base() {
		t.Errorf("%d was given, and is not the one that was closed, %d", again.Base(), all[0].Base())
	}
	all = append(all, again)
}
