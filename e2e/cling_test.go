package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

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

// clinging is a directory in which a command that clings, and what it started,
// write that they are there.
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
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
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
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	stamps := make(map[int]int64)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // the file of a signal
		}
		text, err := os.ReadFile(filepath.Join(c.dir, entry.Name()))
		if err != nil {
			c.t.Fatal(err)
		}
		if len(text) == 8 {
			stamps[pid] = int64(binary.LittleEndian.Uint64(text))
		}
	}
	return stamps
}

// wait waits until all three are there.
func (c clinging) wait(limit time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(patience(limit)); len(c.stamps()) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d of the command's 3 processes are there after %v", len(c.stamps()), limit)
		}
	}
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
	names, err := filepath.Glob(filepath.Join(c.dir, "*.*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		signals = append(signals, fmt.Sprint(filepath.Base(name)))
	}
	return signals
}
