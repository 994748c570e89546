package disk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// pausedEnv marks the process that TestStoppedProcessIsNoStalledDisk stops.
const pausedEnv = "CHUBBY_TEST_PAUSED"

// TestStoppedProcessIsNoStalledDisk: a replica is stopped during an operation on its disk, for
// longer than an operation may take. It continues if the operation has returned meanwhile.
func TestStoppedProcessIsNoStalledDisk(t *testing.T) {
	const rounds, limit = 4, time.Second // a busy machine takes a while to stop it
	if os.Getenv(pausedEnv) != "" {
		pausedChild(rounds, limit)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	child.Env = append(os.Environ(), pausedEnv+"=1")
	disk, err := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	if err := errors.Join(err, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(child.Process.Kill(), child.Wait()) }() // it has ended, or failed
	lines := bufio.NewScanner(out)
	for round := range rounds {
		if !lines.Scan() || lines.Text() != "begun" {
			t.Fatalf("round %d: %q", round, lines.Text())
		}
		if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * limit)
		_, err := disk.Write([]byte{1})
		if err := errors.Join(err, child.Process.Signal(syscall.SIGCONT)); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || lines.Text() != "well" {
			t.Fatalf("round %d: %q", round, lines.Text())
		}
	}
}

// pausedChild does operations that last until a byte can be read.
func pausedChild(rounds int, limit time.Duration) {
	g := newFailStop(limit, func() {}, func(err error) { fmt.Println("it ended:", err) })
	for range rounds {
		err := g.attempt(storeOp{verb: "append", path: "/data/log.db"}, 1, nil, func() error {
			fmt.Println("begun")
			_, err := os.Stdin.Read(make([]byte, 1))
			return err
		})
		if err == nil {
			fmt.Println("well")
		}
	}
}

// The watch over the log and the votes goes by what the stores were opened with.
func TestWatchdogGoesByTheOptions(t *testing.T) {
	for stall, want := range map[time.Duration]time.Duration{0: maxStoreWait, 7 * time.Minute: 7 * time.Minute} {
		opts := testStoreOptions()
		opts.Stall = stall
		s, err := Open(t.TempDir(), BoltStore, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.failStop.watchdog.limit; got != want {
			t.Errorf("opened with %v, the limit is %v, want %v", stall, got, want)
		}
		mustClose(t, s)
	}
}
