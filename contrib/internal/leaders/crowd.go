package leaders

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"golang.org/x/sys/unix"
)

// taskVariable has the task of a test's binary that is a candidate: candidates that a test kills and stops must be
// processes.
const taskVariable = "CHUBBY_TEST_CANDIDATE"

// task is the configuration of such a candidate.
type task struct {
	Servers  []string
	Identity string
}

// Deed is what a leader prints: at that moment of the machine's clock, its context had not ended. The leader reads
// the clock first, so this holds even if it was stopped in between.
type Deed struct {
	At    int64
	Who   string
	Token uint64
}

// Clock reads a clock that all processes of the machine share.
func Clock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// BeCandidate makes this process a candidate of a Crowd, if it is to be one: it calls run again and again until its
// standard input ends, and exits. It is for TestMain.
func BeCandidate(run func(ctx context.Context, lock *chubbylock.Lock) error) {
	text := os.Getenv(taskVariable)
	if text == "" {
		return
	}
	if err := beCandidate(text, run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func beCandidate(text string, run func(ctx context.Context, lock *chubbylock.Lock) error) error {
	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return err
	}
	lock, err := chubbylock.New(chubbylock.Config{
		Client: client.Config{Servers: k.Servers, Lease: 2 * time.Second}, Path: Path, Identity: k.Identity, LockDelay: time.Second,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		if err := run(ctx, lock); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return lock.Close(context.Background())
}

// Report prints deeds of a candidate until its context ends.
func Report(ctx context.Context, who string) {
	seq, _ := chubbylock.FromContext(ctx)
	for {
		at := Clock()
		if ctx.Err() != nil {
			return
		}
		line, _ := json.Marshal(Deed{at, who, seq.Token()})
		_, _ = os.Stdout.Write(append(line, '\n')) // if the pipe is closed, the test has ended
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Crowd are candidates that are processes, by name, and what they have done.
type Crowd struct {
	All     map[string]*processes.Process
	t       *testing.T
	servers []string
	deeds   chan Deed
	done    []Deed
}

// NewCrowd returns one without candidates.
func NewCrowd(t *testing.T, servers []string) *Crowd {
	return &Crowd{All: map[string]*processes.Process{}, t: t, servers: servers, deeds: make(chan Deed, 200_000)}
}

// Start starts a candidate: the test's binary, whose TestMain calls BeCandidate.
func (c *Crowd) Start(name string) {
	c.t.Helper()
	text, err := json.Marshal(task{c.servers, name})
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	c.All[name] = processes.Run(c.t, cmd, func(line string) bool {
		var d Deed
		if json.Unmarshal([]byte(line), &d) != nil || d.At == 0 { // the last line of a process that was killed may be incomplete
			return false
		}
		c.deeds <- d
		return true
	})
}

// Leader waits until a candidate other than not leads.
func (c *Crowd) Leader(not string) Deed {
	c.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case d := <-c.deeds:
			if c.done = append(c.done, d); d.Who != not {
				return d
			}
		case <-limit:
			c.t.Fatalf("nobody but %q leads", not)
		}
	}
}

// HandOver asks a leader to end, waits for the next, and starts a candidate in its place.
func (c *Crowd) HandOver(asked, next string) Deed {
	c.t.Helper()
	began := Clock()
	c.All[asked].CloseInput()
	now := c.Leader(asked)
	c.t.Logf("the hand-over took %v", time.Duration(now.At-began))
	c.Start(next)
	return now
}

// End ends all, and checks that tokens only grow, over so many terms at least.
func (c *Crowd) End(least int) {
	c.t.Helper()
	for _, p := range c.All {
		p.End(nil)
	}
	close(c.deeds)
	for d := range c.deeds {
		c.done = append(c.done, d)
	}
	slices.SortStableFunc(c.done, func(a, b Deed) int { return cmp.Compare(a.At, b.At) })
	terms := 1
	for i, d := range c.done[1:] {
		before := c.done[i]
		switch {
		case d.Token < before.Token, d.Token == before.Token && d.Who != before.Who:
			c.t.Fatalf("two leaders: %+v, and then %+v", before, d)
		case d.Token > before.Token:
			terms++
		}
	}
	if c.t.Logf("%d terms, %d deeds", terms, len(c.done)); terms < least {
		c.t.Errorf("%d terms; want one for each trouble", terms)
	}
}
