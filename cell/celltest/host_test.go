package celltest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// host is a client on a host of its own. It records the states of its session.
type host struct {
	*client.Client
	name   string
	states chan session.State
}

func dial(t *testing.T, c *celltest.Cell, name string) *host {
	t.Helper()
	h := &host{name: name, states: make(chan session.State, 100)}
	cl, err := client.New(t.Context(), client.Config{
		Servers: c.Servers(), Dialer: c.DialFrom(name), Clock: c.ClockOf(name),
		OnState: func(change client.StateChange) { h.states <- change.State },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cl.Close(ctx) // its host may be cut off, or its session gone
	})
	h.Client = cl
	return h
}

func (h *host) open(t *testing.T, path string, delay time.Duration) *client.Handle {
	t.Helper()
	handle, err := h.Open(t.Context(), path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func acquire(t *testing.T, h *client.Handle) *client.Lock {
	t.Helper()
	lock, err := h.Acquire(t.Context(), api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func put(t *testing.T, h *client.Handle, text string) {
	t.Helper()
	if _, err := h.SetContents(t.Context(), []byte(text)); err != nil {
		t.Error(err)
	}
}

// seen returns the states so far, and clears them.
func (h *host) seen() (states []session.State) {
	for {
		select {
		case s := <-h.states:
			states = append(states, s)
		default:
			return states
		}
	}
}

// Each client is on the host of its name: the network and the clock of that alone are its own, and it is known by that name.
func TestHostsAreApart(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) {
		ctx := t.Context()
		ann := c.Client("ann", func(cfg *client.Config) { cfg.Lease, cfg.Grace = 4*time.Second, 4*time.Second })
		ben, eve := c.Keep("ben"), c.Client("eve")
		holder := func() string {
			t.Helper()
			locks, err := eve.Cell().Locks(ctx, "")
			if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
				t.Fatalf("want one lock with one holder: %+v, %v", locks, err)
			}
			return locks[0].Holders[0].Principal
		}
		first, err := ann.Acquire(ctx, "/ls/local/a", client.LockDelay(0))
		if err != nil || holder() != "ann" {
			t.Fatal(err, holder())
		}
		c.Cut("ann")
		began := time.Now()
		err = ben.Do(ctx, func(session *client.Client) error {
			second, err := session.Acquire(ctx, "/ls/local/a")
			if took := time.Since(began); err != nil || took > 10*time.Second || first.Err() == nil || holder() != "ben" {
				t.Errorf("%s has it after %v, %v; the first: %v", holder(), took, err, first.Err())
				return err
			}
			c.Pause("ben")
			time.Sleep(time.Minute)
			c.Resume("ben")
			if second.Err() == nil {
				t.Error("a lock was held through a pause of a minute")
			}
			return nil
		})
		if err != nil || eve.Err() != nil {
			t.Error(err, eve.Err())
		}
	})
}

// Sessions are closed when their test ends, also of hosts that are cut off, and before the cell stops.
func TestSessionsEndWithTheirTest(t *testing.T) {
	var all []*client.Client
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		for _, host := range []string{"ann", "ben"} {
			all = append(all, c.Client(host))
		}
		c.Cut("ben")
	})
	for _, one := range all {
		if !errors.Is(one.Err(), api.SessionExpired) {
			t.Errorf("a session is left: %v", one.Err())
		}
	}
}

// Each host is cut off when it has written, and the next goes on.
func TestHostsOfThePage(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) {
		for _, host := range []string{"web1", "web2"} {
			if _, err := c.Client(host).Put(t.Context(), "/ls/local/config", []byte(host)); err != nil {
				t.Error(err)
			}
			c.Cut(host)
		}
	})
}

// Two hosts want one lock, and the one that has it is cut off.
func ExampleCell_Client() {
	local, err := celltest.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer local.Close() // with the sessions
	ctx := context.Background()
	short := func(cfg *client.Config) { cfg.Lease = 2 * time.Second }
	ann, ben := local.Client("ann", short), local.Client("ben")
	first, err := ann.Acquire(ctx, "/ls/local/work", client.LockDelay(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	local.Cut("ann")
	second, err := ben.Acquire(ctx, "/ls/local/work")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ann knows that the lock is lost:", first.Err() != nil, "and ben has it:", second.Err() == nil)
	// Output:
	// ann knows that the lock is lost: true and ben has it: true
}

// Outside of a test, a cell runs in real time, and its user closes it.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	local, err := celltest.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer local.Close()
	c, err := client.New(ctx, client.Config{Servers: local.Servers(), Dialer: local.Dial, Clock: celltest.Clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
	h, err := c.Open(ctx, "/ls/local/greeting", client.OpenOptions{Write: true, Read: true, Create: client.File})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := h.SetContents(ctx, []byte("hello"), client.IfSequencer(lock.Sequencer())); err != nil {
		fmt.Println(err)
		return
	}
	contents, _, err := h.Contents(ctx)
	fmt.Printf("%s %v\n", contents, err)
	// Output:
	// hello <nil>
}

// A cell that cannot start is an error of New, and leaves nothing behind.
func TestNewThatFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c, err := celltest.New(1, func(cfg *cell.Config) { cfg.ElectionTimeout = time.Hour })
	if err == nil {
		c.Close()
		t.Fatal("a cell with an election timeout of an hour started")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// docs/testing.md shows code that is compiled here: the tests, the application, and each row of the table in the
// application's test. All of it also runs, except the last block (package processes). The first block is a sketch.
func TestPageShowsTestedCode(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(string(text), "")
	}
	sources := read("example_test.go") + read("drill_test.go") + read("worker_test.go") + read("host_test.go") + read("processes/example_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("../../docs/testing.md"), -1)
	if len(blocks) != 6 {
		t.Fatalf("the page has %d blocks of Go; want 6", len(blocks))
	}
	shown := append([]string{blocks[1][1], blocks[2][1], blocks[3][1], blocks[5][1]}, strings.SplitAfter(blocks[4][1], "false},\n")...)
	for _, code := range shown {
		for _, row := range strings.SplitAfter(code, "true},\n") {
			if !strings.Contains(sources, row) {
				t.Errorf("this code is in none of the files:\n%s", row)
			}
		}
	}
}
