package chubbykv_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
	"github.com/kvtools/valkeyrie/testsuite"
)

// holderTask makes this program a holder that TestKills kills: it has the servers.
const holderTask = "CHUBBYKV_TEST_HOLDER"

const (
	killsLast   = 9 * time.Second // of TestKills, on a machine that is fast enough for leastKills
	leastKills  = 2
	masterFor   = 2 * time.Second // how long each master serves before it is killed
	holderLease = 2 * time.Second
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(holderTask); servers != "" {
		os.Exit(hold(strings.Split(servers, ",")))
	}
	_ = flag.Set("test.parallel", "10") // so that all of TestKills goes on at the same time, on two processors too
	os.Exit(m.Run())
}

// hold locks a key, writes another with a TTL, says so, and waits until its standard input ends.
func hold(servers []string) int {
	err := func() error {
		s, err := chubbykv.New(context.Background(), chubbykv.Config{Path: root + "/holder", LockDelay: -1,
			Client: client.Config{Servers: servers, Lease: holderLease, NoCache: true}}) // so that no change waits for a process that was killed
		if err != nil {
			return err
		}
		l, err := s.NewLock(context.Background(), "locked", &store.LockOptions{Value: []byte("v"), DeleteOnUnlock: true})
		if err != nil {
			return err
		}
		if _, err := l.Lock(context.Background()); err != nil {
			return err
		}
		return s.Put(context.Background(), "kept", []byte("v"), kept(time.Second))
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("holds")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// trial is a cell of processes, whose master is killed again and again.
type trial struct {
	servers []string
	over    context.Context //nolint:containedctx // ends when the master was killed for long enough
}

func (p *trial) store(t *testing.T, dir string) *chubbykv.Store {
	t.Helper()
	s, err := chubbykv.New(t.Context(), chubbykv.Config{Path: root + dir, LockDelay: -1, Client: client.Config{Servers: p.servers}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (p *trial) busy() bool { return p.over.Err() == nil }

// In a cell of processes whose master is killed again and again: the library's suite, without the three tests that
// measure how fast a cell is (see README.md), and what those are about; counting by AtomicPut, and under a lock;
// and a process that is killed with a lock and a key with a TTL.
func TestKills(t *testing.T) {
	cell := processes.Start(t, 5)
	ctx, stop := context.WithCancel(t.Context())
	over, enough := context.WithCancel(ctx)
	p := &trial{servers: cell.Servers(), over: over}
	killed := make(chan int, 1)
	go func() {
		n := cell.KillMastersFor(ctx, masterFor, killsLast, leastKills)
		enough()
		killed <- n + cell.KillMasters(ctx, masterFor) // while what has begun ends
	}()
	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"suite": p.suite, "atomic": p.countAtomically, "lock": p.countUnderALock, "watch": p.watch, "holder": p.killHolder, "close": p.closeStores,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	stop()
	n := <-killed
	if t.Logf("the master was killed %d times", n); n < leastKills {
		t.Errorf("want %d at least", leastKills)
	}
}

func (p *trial) suite(t *testing.T) {
	s, rounds := p.store(t, "/suite"), 0
	for ; p.busy(); rounds++ {
		locks := p.store(t, "/suite") // its locks end with it
		testsuite.RunTestCommon(t, s)
		testsuite.RunTestAtomic(t, s)
		testsuite.RunTestLock(t, s)
		testsuite.RunTestListLock(t, locks)
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		testsuite.RunCleanup(t, s)
	}
	t.Logf("%d rounds", rounds)
}

// number returns what a key counts.
func number(pair *store.KVPair) int {
	if pair == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(pair.Value)) // 0 before the first
	return n
}

// countAtomically counts in several stores. What succeeds is counted once, and what fails is not.
func (p *trial) countAtomically(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards what follows
	indexes := map[uint64]bool{}
	done, unknown := 0, 0
	for range 3 {
		s := p.store(t, "/atomic")
		all.Go(func() {
			for p.busy() {
				pair, err := s.Get(ctx, "n", nil)
				if err != nil && !errors.Is(err, store.ErrKeyNotFound) {
					t.Error(err)
					return
				}
				ok, now, err := s.AtomicPut(ctx, "n", []byte(strconv.Itoa(number(pair)+1)), pair, nil)
				mu.Lock()
				switch {
				case ok && indexes[now.LastIndex]:
					t.Errorf("index %d comes twice", now.LastIndex)
				case ok:
					indexes[now.LastIndex] = true
					done++
				case !errors.Is(err, store.ErrKeyModified) && !errors.Is(err, store.ErrKeyExists):
					unknown++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	pair, err := p.store(t, "/atomic").Get(ctx, "n", nil)
	if n := number(pair); err != nil || n < done || n > done+unknown || n == 0 {
		t.Errorf("the number is %d, %v; %d were counted, and of %d it is not known", n, err, done, unknown)
	}
	t.Logf("%d counted; of %d it is not known", done, unknown)
}

// countUnderALock counts by Get and Put under a lock.
func (p *trial) countUnderALock(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards done
	done := 0
	for range 3 {
		s := p.store(t, "/lock")
		l, err := s.NewLock(ctx, "lock", &store.LockOptions{Value: []byte("held"), DeleteOnUnlock: true})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for p.busy() {
				if _, err := l.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				pair, err := s.Get(ctx, "n", nil)
				if err == nil || errors.Is(err, store.ErrKeyNotFound) {
					err = s.Put(ctx, "n", []byte(strconv.Itoa(number(pair)+1)), nil)
				}
				if err := errors.Join(err, l.Unlock(ctx)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				done++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	s := p.store(t, "/lock")
	pair, err := s.Get(ctx, "n", nil)
	if n := number(pair); err != nil || n != done || n == 0 {
		t.Errorf("the number is %d, %v, after %d", n, err, done)
	}
	if there, err := s.Exists(ctx, "lock", nil); there || err != nil {
		t.Errorf("the value of the lock is left: %t, %v", there, err)
	}
	t.Logf("%d counted", done)
}

// watch writes one version after the other: a watch of the key, and one of its directory, see none twice and none
// that is older than the last, and the last.
func (p *trial) watch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s, writer := p.store(t, "/watch"), p.store(t, "/watch")
	version := 1
	put := func() {
		if err := writer.Put(ctx, "dir/k", []byte(strconv.Itoa(version)), kept(time.Second)); err != nil {
			t.Error(err)
		}
	}
	put()
	events, err := s.Watch(ctx, "dir/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := s.WatchTree(ctx, "dir", nil)
	if err != nil {
		t.Fatal(err)
	}
	last := make(chan struct{}) // closed when version is the last
	var all sync.WaitGroup
	all.Go(func() {
		defer close(last)
		for version++; p.busy(); version++ {
			put()
		}
		put()
	})
	all.Go(func() {
		follow(t, "watch", events, func(pair *store.KVPair) []*store.KVPair { return []*store.KVPair{pair} }, last, &version)
	})
	all.Go(func() {
		follow(t, "watch of the tree", lists, func(list []*store.KVPair) []*store.KVPair { return list }, last, &version)
	})
	all.Wait()
}

// follow reads versions until it has read the last one. It may read that before last is closed, and version says which one it is.
func follow[T any](t *testing.T, name string, told <-chan T, pairsOf func(T) []*store.KVPair, last <-chan struct{}, version *int) {
	for seen, heard := 0, 0; last != nil || seen != *version; {
		select {
		case <-last:
			last = nil
		case one, ok := <-told:
			if pairs := pairsOf(one); !ok || len(pairs) != 1 {
				t.Errorf("%s: it ended after version %d", name, seen)
				return
			} else if number(pairs[0]) <= seen {
				t.Errorf("%s: version %d after %d", name, number(pairs[0]), seen)
			} else {
				seen = number(pairs[0])
			}
			heard++
		}
		if last == nil && seen == *version {
			t.Logf("%s: told %d of %d versions", name, heard, *version)
		}
	}
}

// killHolder kills a process that has a lock and a key with a TTL: both are free for others.
func (p *trial) killHolder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s, rounds := p.store(t, "/holder"), 0
	for ; p.busy(); rounds++ {
		holds := make(chan struct{})
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), holderTask+"="+strings.Join(p.servers, ","))
		child := processes.Run(t, cmd, func(line string) bool {
			if line == "holds" {
				close(holds)
			}
			return line == "holds"
		})
		select {
		case <-holds:
		case <-time.After(time.Minute):
			t.Fatal("the process does not get its lock")
		}
		for _, key := range []string{"locked", "kept"} {
			if _, err := s.Get(ctx, key, nil); err != nil {
				t.Error(err)
			}
		}
		child.End(os.Kill)
		l, err := s.NewLock(ctx, "locked", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Lock(ctx); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"locked", "kept"} {
			gone(ctx, t, s, key)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d rounds", rounds)
}

// gone waits until there is no such key.
func gone(ctx context.Context, t *testing.T, s *chubbykv.Store, key string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		there, err := s.Exists(ctx, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !there {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("key %q is there a minute after its store has ended", key)
		}
	}
}

// closeStores writes keys with a TTL in stores that are closed, or stay open.
func (p *trial) closeStores(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s, rounds := p.store(t, "/close"), 0
	for ; p.busy(); rounds++ {
		other := p.store(t, "/close")
		for key, o := range map[string]*store.WriteOptions{"kept": kept(time.Second), "short": ttl(100 * time.Millisecond), "long": ttl(time.Hour)} {
			if err := other.Put(ctx, key, []byte("v"), o); err != nil {
				t.Fatal(err)
			}
		}
		gone(ctx, t, s, "short")
		for _, key := range []string{"kept", "long"} {
			if _, err := s.Get(ctx, key, nil); err != nil {
				t.Error(err)
			}
		}
		_ = other.Close() // if it has no answer, its keys go with its lease
		gone(ctx, t, s, "kept")
		gone(ctx, t, s, "long")
	}
	t.Logf("%d rounds", rounds)
}
