package ports

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const reserveAndWait = "CHUBBY_TEST_RESERVE" // makes this program reserve so many ranges, name them, and wait for its input to end

func TestMain(m *testing.M) {
	if number := os.Getenv(reserveAndWait); number != "" {
		os.Exit(reserveForTest(number))
	}
	os.Exit(m.Run())
}

func reserveForTest(number string) int {
	n, err := strconv.Atoi(number)
	for range n {
		var r *Range
		if r, err = Reserve(); err != nil {
			break
		}
		defer r.Close()
		fmt.Println(r.Base())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("all")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
	return 0
}

// TestNoTwoHaveTheSamePorts: processes, and goroutines of each, that look at the same
// time have different ports, though nobody listens on them yet.
func TestNoTwoHaveTheSamePorts(t *testing.T) {
	const processes, each = 3, 20 // of 375 ranges, and other tests need some
	var wg sync.WaitGroup
	var mu sync.Mutex // guards given
	given := map[int]bool{}
	give := func(base int) {
		mu.Lock()
		defer mu.Unlock()
		if given[base] {
			t.Errorf("%d was given to two", base)
		}
		given[base] = true
	}
	for range processes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), reserveAndWait+"="+strconv.Itoa(each))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "all" {
				base, err := strconv.Atoi(lines.Text())
				if err != nil {
					t.Error(err)
				}
				give(base)
			}
		})
	}
	for range each {
		wg.Go(func() {
			r, err := Reserve()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { r.Close() })
			give(r.Base())
		})
	}
	wg.Wait()
	if len(given) != (processes+1)*each {
		t.Errorf("%d ranges were given, want %d", len(given), (processes+1)*each)
	}
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
