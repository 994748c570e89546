package chubbyleader_test

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
	chubbyleader "github.com/chubbylock/chubby/contrib/controllerruntime"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// managerTask makes the test's binary a program with a manager: managers that the test kills and stops
// must be processes.
const managerTask = "CHUBBYLEADER_TEST_MANAGER"

// task is the configuration of such a program.
type task struct {
	Servers  []string
	Identity string
}

// deed is what a leader's runnable prints: at that moment of the machine's clock, its context had not
// ended. The runnable reads the clock first, so this holds even if it was stopped in between.
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

// beManager runs managers, one after the other, until its standard input ends.
func beManager(text string) int {
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
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		if err := startManager(ctx, lock); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := lock.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startManager(ctx context.Context, lock *chubbylock.Lock) error {
	o := options()
	lease, renew, retry := 3*time.Second, 2*time.Second, 200*time.Millisecond
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	m, err := chubbyleader.NewManager(nowhere(), o, lock)
	if err != nil {
		return err
	}
	for range 2 {
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { report(ctx, lock.Identity()); return nil })); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// report prints deeds until its context ends.
func report(ctx context.Context, who string) {
	seq, _ := chubbylock.FromContext(ctx)
	for {
		at := clock()
		if ctx.Err() != nil {
			return
		}
		line, _ := json.Marshal(deed{at, who, seq.Token()})
		_, _ = os.Stdout.Write(append(line, '\n')) // if the pipe is closed, the test has ended
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// TestProcesses: managers are processes, in a cell of processes. Masters are killed, and the leader is
// killed, stopped for longer than its lease, and asked to end. There are never two leaders.
func TestProcesses(t *testing.T) {
	cell := processes.Start(t, 3)
	deeds := make(chan deed, 200_000)
	all := map[string]*processes.Process{}
	run := func(name string) { all[name] = startProgram(t, task{cell.Servers(), name}, deeds) }
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
	cell.KillMaster()

	killed := now.Who
	all[killed].Signal(syscall.SIGKILL)
	now = leader(killed)
	run("2")

	stopped := now.Who
	all[stopped].Signal(syscall.SIGSTOP)
	now = leader(stopped)
	<-time.After(time.Second)
	all[stopped].Signal(syscall.SIGCONT)
	cell.KillMaster()

	for round := range 2 {
		<-time.After(time.Second) // for the others to be told of the leader, and to wait in the queue
		asked := now.Who
		began := clock()
		all[asked].CloseInput()
		now = leader(asked)
		t.Logf("the hand-over took %v", time.Duration(now.At-began)) // TestHandOver says how long it may take
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
	if t.Logf("%d terms, %d deeds", terms, len(done)); terms < 5 {
		t.Errorf("%d terms; want one for each trouble", terms)
	}
}

func startProgram(t *testing.T, k task, deeds chan<- deed) *processes.Process {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), managerTask+"="+string(text))
	return processes.Run(t, cmd, func(line string) bool {
		var d deed
		if json.Unmarshal([]byte(line), &d) != nil || d.At == 0 { // the last line of a process that was killed may be incomplete
			return false
		}
		deeds <- d
		return true
	})
}
