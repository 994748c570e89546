package chubbyvault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"github.com/hashicorp/vault/sdk/physical"
)

// writerTask makes this program a writer that TestKills kills: it has the servers.
const writerTask = "CHUBBYVAULT_TEST_WRITER"

const (
	killsLast   = 8 * time.Second // of TestKills, on a machine that is fast enough for its kills
	masterFor   = time.Second     // how long each master serves before it is killed
	writerLease = 2 * time.Second
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(writerTask); servers != "" {
		os.Exit(write(strings.Split(servers, ",")))
	}
	os.Exit(m.Run())
}

// write replaces an entry, again and again, until it is killed or its standard input ends. It says each
// value before it writes it, and when it was written.
func write(servers []string) int {
	// Without a cache: what others write would wait for that of a process that was killed, longer than a master lives here.
	b, err := New(context.Background(), Config{Path: root + "/killed", Client: client.Config{Servers: servers, Lease: writerLease, NoCache: true}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		one := byte('a' + rand.IntN(26))
		fmt.Printf("begin %c\n", one)
		if err := b.Put(context.Background(), &physical.Entry{Key: "entry", Value: large(one)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("done %c\n", one)
	}
}

// The SDK's suite, in a cell of processes whose master is killed again and again. And a process that
// writes is killed in the middle: the entry has a value that was begun or written last, whole, and what
// the process has left is removed.
func TestKills(t *testing.T) {
	cell := processes.Start(t, 5)
	servers := cell.Servers()
	const leastKills, leastRounds = 3, 3
	busy, stop := context.WithCancel(t.Context())
	killed := make(chan int, 1)
	go func() {
		defer stop()
		killed <- cell.KillMastersFor(busy, masterFor, killsLast, leastKills)
	}()
	backend := func(t *testing.T, dir string) *Backend {
		b, err := New(t.Context(), Config{Path: root + dir, Client: client.Config{Servers: servers}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close(context.Background()) })
		return b
	}
	t.Run("all", func(t *testing.T) {
		t.Run("suite", func(t *testing.T) {
			t.Parallel()
			b, rounds := backend(t, "/entries"), 0
			for ; busy.Err() == nil; rounds++ {
				physical.ExerciseBackend(t, b)
				physical.ExerciseBackend_ListPrefix(t, b)
				physical.ExerciseHABackend(t, backend(t, "/locks"), backend(t, "/locks"))
			}
			t.Logf("%d rounds", rounds)
		})
		t.Run("writers", func(t *testing.T) {
			t.Parallel()
			b, rounds := backend(t, "/killed"), 0
			for ; busy.Err() == nil || rounds < leastRounds; rounds++ {
				killWriter(t, b, servers)
			}
			t.Logf("%d rounds", rounds)
		})
	})
	if n := <-killed; n < leastKills {
		t.Errorf("the master was killed %d times; want %d at least", n, leastKills)
	} else {
		t.Logf("the master was killed %d times", n)
	}
	b := backend(t, "/killed")
	entry, err := b.Get(t.Context(), "entry")
	if err != nil {
		t.Fatal(err)
	}
	want := 1
	if entry == nil { // on a slow machine all writers were killed before their first value was complete
		want = 0
	}
	for limit := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
		if _, err := b.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := leftOf(t, b)
		if left == want {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d values in chunks are left; want %d", left, want)
		}
	}
}

func leftOf(t *testing.T, b *Backend) (n int) {
	t.Helper()
	if err := b.keeper.Do(t.Context(), func(c *client.Client) error {
		list, err := children(t.Context(), c, b.chunks())
		n = len(list)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// killWriter starts a process that writes, kills it a moment later, and checks the entry.
func killWriter(t *testing.T, b *Backend, servers []string) {
	t.Helper()
	before, err := b.Get(t.Context(), "entry")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var begun, done byte // the values that were begun and written last
	first := make(chan struct{})
	once := sync.OnceFunc(func() { close(first) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerTask+"="+strings.Join(servers, ","))
	p := processes.Run(t, cmd, func(line string) bool {
		mu.Lock()
		defer mu.Unlock()
		if value, ok := strings.CutPrefix(line, "begin "); ok {
			begun = value[0]
			once()
		} else if value, ok := strings.CutPrefix(line, "done "); ok {
			done = value[0]
		}
		return false
	})
	select {
	case <-first:
	case <-time.After(time.Minute):
		t.Fatal("the writer does not begin")
	}
	<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
	p.End(syscall.SIGKILL)
	if done == 0 && before != nil {
		done = before.Value[0]
	}
	is, err := b.Get(t.Context(), "entry")
	switch {
	case err != nil:
		t.Fatalf("after the death of a writer: %v", err)
	case is == nil && done == 0:
	case is == nil || !bytes.Equal(is.Value, large(is.Value[0])):
		t.Fatalf("after the death of a writer the entry is not whole: %t", is == nil)
	case is.Value[0] != begun && is.Value[0] != done:
		t.Errorf("the value is %c; %c was begun and %c was written", is.Value[0], begun, done)
	}
}
