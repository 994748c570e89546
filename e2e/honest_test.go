package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// latencies are those of one operation.
type latencies []time.Duration

// p returns a percentile.
func (l latencies) p(percent int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(10 * time.Microsecond)
}

// figures are what an honest client has measured.
type figures struct{ locks, reads latencies }

// String is for the log.
func (f figures) String() string {
	return fmt.Sprintf("lock+unlock %v %v, read %v %v of %d", f.locks.p(50), f.locks.p(99), f.reads.p(50), f.reads.p(99), len(f.reads))
}

// honest is a client that does as it should: it locks and unlocks, and reads, a hundred times a second each. Other sessions
// of it are idle.
type honest struct {
	sessions []*client.Client
	epoch    api.Epoch

	mu       sync.Mutex // guards what follows
	measured *figures   // nil while nothing is measured
	failed   error
}

func newHonest(t *testing.T, w *world, own client.TLSFiles) *honest {
	t.Helper()
	h := &honest{}
	for range 20 {
		h.sessions = append(h.sessions, w.clientFor(t, client.Config{TLS: own, NoCache: true}))
	}
	h.epoch = h.sessions[0].Epoch()
	ctx, cancel := context.WithCancel(context.Background())
	open := func(c *client.Client, name string) *client.Handle {
		handle, err := c.Open(ctx, w.path(name), client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: make([]byte, 256)})
		noErr(t, err)
		return handle
	}
	lock, file := open(h.sessions[0], "honest-lock"), open(h.sessions[1], "honest-file")
	var working sync.WaitGroup
	working.Go(func() {
		h.repeat(ctx, func(f *figures) *latencies { return &f.locks }, func() error {
			held, err := lock.Acquire(ctx, api.Exclusive)
			if err != nil {
				return err
			}
			return held.Release(ctx)
		})
	})
	working.Go(func() {
		h.repeat(ctx, func(f *figures) *latencies { return &f.reads }, func() error {
			_, _, err := file.Contents(ctx)
			return err
		})
	})
	t.Cleanup(func() {
		cancel()
		working.Wait()
	})
	return h
}

// repeat does something a hundred times a second, and measures how long after it was due it was done.
func (h *honest) repeat(ctx context.Context, of func(*figures) *latencies, do func() error) {
	const every = 10 * time.Millisecond
	for due := time.Now(); ctx.Err() == nil; {
		time.Sleep(time.Until(due))
		err := do()
		ended := time.Now()
		h.mu.Lock()
		if err != nil && ctx.Err() == nil {
			h.failed = err
		}
		for ; !due.After(ended); due = due.Add(every) { // what was due meanwhile was not done in time either
			if h.measured != nil {
				one := of(h.measured)
				*one = append(*one, ended.Sub(due))
			}
		}
		h.mu.Unlock()
	}
}

// begin begins to measure.
func (h *honest) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.measured = &figures{}
}

// end returns what was measured.
func (h *honest) end() figures {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := *h.measured
	h.measured = nil
	return f
}

// during measures for a while.
func (h *honest) during(span time.Duration) figures {
	h.begin()
	time.Sleep(span)
	return h.end()
}

// watched is during, with the replica read as it is during an attack.
func (h *honest) watched(t *testing.T, r replica, span time.Duration) figures {
	t.Helper()
	h.begin()
	const between = looksPerReading * betweenLooks
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(min(between, time.Until(end))) {
		readingOf(t, r)
	}
	return h.end()
}

// check reports what an honest client has lost.
func (h *honest) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	report(t, h.failed, "a call failed")
	for _, c := range h.sessions {
		if c.Err() != nil || c.Epoch() != h.epoch && alone() { // a disk that takes seconds costs a master its place
			t.Errorf("a session: epoch %d, %v; it began in epoch %d", c.Epoch(), c.Err(), h.epoch)
		}
	}
}

// cling is a child's task: a command that is hard to end. It ignores every signal that it can,
// except those of the terminal's Ctrl-Z. It has a child in its group, and another in a session of
// its own and without a parent. All of them write down all the time that they are there.
func cling(k task, _ <-chan struct{}) error {
	heard := make(chan os.Signal, 16)
	signal.Notify(heard, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1)
	name := filepath.Join(k.Files[0], strconv.Itoa(os.Getpid()))
	stamps, err := os.Create(name)
	if err != nil {
		return err
	}
	defer stamps.Close()
	if k.Clients > 0 {
		k.Clients = 0
		text, err := json.Marshal(k)
		if err != nil {
			return err
		}
		if err := exec.Command("sh", "-c", `"$0" -child "$1" & setsid "$0" -child "$1" &`, os.Args[0], string(text)).Run(); err != nil {
			return err
		}
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		select {
		case s := <-heard:
			if err := os.WriteFile(name+"."+s.String(), nil, 0o600); err != nil {
				return err
			}
			if k.Watch == "obey" && s == syscall.SIGTERM {
				return nil
			}
		case <-tick.C:
			if _, err := stamps.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(machineNow())), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// clinging is a directory in which a command that clings, and what it started, write that they are there.
type clinging struct {
	t   *testing.T
	dir string
}

// clinger returns the directory and the command line.
func clinger(t *testing.T, obey bool) (clinging, []string) {
	t.Helper()
	k := task{Do: "cling", Files: []string{t.TempDir()}, Clients: 2}
	if obey {
		k.Watch = "obey"
	}
	text := must(json.Marshal(k))(t)
	c := clinging{t, k.Files[0]}
	t.Cleanup(func() { // a test that fails leaves nothing behind
		for pid := range c.stamps() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return c, []string{os.Args[0], "-child", string(text)}
}

// stamps returns when each of the processes was there last.
func (c clinging) stamps() map[int]int64 {
	entries := must(os.ReadDir(c.dir))(c.t)
	stamps := make(map[int]int64)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // the file of a signal
		}
		text, err := os.ReadFile(filepath.Join(c.dir, entry.Name()))
		noErr(c.t, err)
		if len(text) == 8 {
			stamps[pid] = int64(binary.LittleEndian.Uint64(text))
		}
	}
	return stamps
}

// wait waits until all three are there.
func (c clinging) wait(limit time.Duration) {
	c.t.Helper()
	stopIf(c.t, !comesTrue(limit, 10*time.Millisecond, func() bool { return len(c.stamps()) >= 3 }), "not all of the command's 3 processes are there after %v", limit)
}

// goneBy fails the test if one of them is alive, or was there at that instant.
func (c clinging) goneBy(instant int64) {
	c.t.Helper()
	for pid, last := range c.stamps() {
		if state, lives := stateOf(pid); lives {
			c.t.Errorf("process %d of the command lives although another has the lock; it was there %v before; its state, parent, group and session are %s",
				pid, time.Duration(instant-last), state)
		}
		if last >= instant {
			c.t.Errorf("process %d of the command was there %v after another had the lock", pid, time.Duration(last-instant))
		}
	}
}

// stateOf returns the state, the parent, the group and the session of a process, and whether it
// has not ended. A process that has ended is listed until its parent waits for it.
func stateOf(pid int) (state string, lives bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	state = strings.Join(strings.Fields(after)[:4], " ")
	return state, !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// last is when the last of them was there last.
func (c clinging) last() (last int64) {
	for _, stamp := range c.stamps() {
		last = max(last, stamp)
	}
	return last
}

// heard returns the signals that any of them was given.
func (c clinging) heard() (signals []string) {
	names := must(filepath.Glob(filepath.Join(c.dir, "*.*")))(c.t)
	for _, name := range names {
		signals = append(signals, fmt.Sprint(filepath.Base(name)))
	}
	return signals
}
