package chubbylock_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/leaderelection"
)

// candidateTask makes this program a candidate of TestProcesses: candidates that the test kills and
// stops must be separate processes.
const candidateTask = "CHUBBYLOCK_TEST_CANDIDATE"

// task is the configuration of such a candidate.
type task struct {
	Servers  []string
	Identity string
}

// deed is what a leader prints: at that moment of the machine's clock, its context had not ended.
// The leader reads the clock first, so this holds even if it was stopped in between.
type deed struct {
	At    int64
	Who   string
	Token uint64
}

// clock reads a clock that all processes of the machine share.
func clock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// beCandidate is a candidate until its standard input ends.
func beCandidate(text string) int {
	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	lock, err := chubbylock.New(chubbylock.Config{
		Client: client.Config{Servers: k.Servers, Lease: 2 * time.Second}, Path: path, Identity: k.Identity, LockDelay: time.Second,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		if err := chubbylock.Run(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { report(ctx, k.Identity) }, OnStoppedLeading: func() {}},
		}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := lock.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// report prints deeds until its context ends.
func report(ctx context.Context, who string) {
	seq, _ := chubbylock.FromContext(ctx)
	out := json.NewEncoder(os.Stdout)
	for {
		at := clock()
		if ctx.Err() != nil {
			return
		}
		_ = out.Encode(deed{at, who, seq.Token()}) // if the pipe is closed, the test has ended
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// TestProcesses: candidates are processes, in a cell of processes. The leader is killed, stopped
// for longer than its lease, and asked to end. There are never two leaders.
func TestProcesses(t *testing.T) {
	t.Parallel() // with other tests that take real time
	servers := processes.Start(t, 3).Servers()
	deeds := make(chan deed, 100_000)
	all := map[string]*processes.Process{}
	run := func(name string) { all[name] = startCandidate(t, task{servers, name}, deeds) }
	run("0")
	run("1")
	var done []deed
	leader := func(not string) deed {
		t.Helper()
		limit := time.After(2 * time.Minute)
		for {
			select {
			case d := <-deeds:
				if done = append(done, d); d.Who != not {
					return d
				}
			case <-limit:
				t.Fatalf("nobody but %q leads", not)
			}
		}
	}
	now := leader("")
	for round := range 2 {
		killed := now.Who
		all[killed].Signal(syscall.SIGKILL)
		now = leader(killed)
		run(fmt.Sprint("again", round))

		stopped := now.Who
		all[stopped].Signal(syscall.SIGSTOP)
		now = leader(stopped)
		<-time.After(time.Second)
		all[stopped].Signal(syscall.SIGCONT)
		<-time.After(time.Second) // for it to notice, and to join the queue

		asked := now.Who
		began := clock()
		all[asked].CloseInput()
		now = leader(asked)
		t.Logf("the hand-over took %v", time.Duration(now.At-began))
		run(fmt.Sprint("next", round))
	}
	for _, p := range all {
		p.End(nil)
	}
	close(deeds)
	for d := range deeds {
		done = append(done, d)
	}
	check(t, done)
}

// check sorts the deeds by time, and checks that tokens only grow.
func check(t *testing.T, done []deed) {
	t.Helper()
	slices.SortStableFunc(done, func(a, b deed) int { return cmp.Compare(a.At, b.At) })
	terms := 1
	for i, d := range done[1:] {
		before := done[i]
		switch {
		case d.Token < before.Token, d.Token == before.Token && d.Who != before.Who:
			t.Fatalf("two leaders: %+v, and then %+v", before, d)
		case d.Token > before.Token:
			terms++
		}
	}
	if t.Logf("%d terms, %d deeds", terms, len(done)); terms < 7 {
		t.Errorf("%d terms; want one for each trouble", terms)
	}
}

func startCandidate(t *testing.T, k task, deeds chan<- deed) *processes.Process {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), candidateTask+"="+string(text))
	return processes.Run(t, cmd, func(line string) bool {
		var d deed
		if json.Unmarshal([]byte(line), &d) != nil || d.At == 0 { // the last line of a process that was killed may be incomplete
			return false
		}
		deeds <- d
		return true
	})
}
