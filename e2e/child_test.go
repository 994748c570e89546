package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/bootclock"
)

// childTask makes this program a child of the tests: a client that a test kills or stops must be a process of its own.
var childTask = flag.String("child", "", "what to do instead of testing, as JSON; the tests start their own children with it")

// task is what a child does, until its standard input ends.
type task struct {
	Do        string // holdCaches, reportPause, cling, attack or misuse
	Servers   []string
	Lease     time.Duration
	Grace     time.Duration
	LockDelay time.Duration
	Clients   int
	Files     []string
	Lock      string
	Watch     string // what to check all the time: "read", "lock" or, of directories, "list"

	Misuse string // which one of misusers
	Attack string // which one
	Target string // the address that is attacked
	Number int    // of the attacker, from whose addresses it comes
	Calls  int    // that it makes with one connection at most, if it floods; without a limit if 0
}

// run does the task and returns the exit code.
func (k task) run() int {
	work := map[string]func(task, <-chan struct{}) error{"holdCaches": holdCaches, "reportPause": reportPause, "cling": cling, "attack": attack, "misuse": misuseCell}[k.Do]
	if work == nil {
		fmt.Fprintf(os.Stderr, "no task is called %q\n", k.Do)
		return 2
	}
	over := make(chan struct{})
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	if err := work(k, over); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (k task) config() client.Config {
	return client.Config{Servers: k.Servers, Lease: k.Lease, Grace: k.Grace}
}

// child is a process that does a task.
type child struct{ *process }

// child starts a child, which ends with the test at the latest.
func (w *world) child(t *testing.T, k task) child {
	t.Helper()
	return w.childBy(t, k, (*exec.Cmd).Start)
}

// childBy starts a child by a function of the caller.
func (w *world) childBy(t *testing.T, k task, start func(*exec.Cmd) error) child {
	t.Helper()
	k.Servers = strings.Split(w.servers(), ",")
	text, err := json.Marshal(k)
	noErr(t, err)
	stdin, open, err := os.Pipe()
	noErr(t, err)
	var c child
	t.Cleanup(func() {
		if c.process != nil && strings.Contains(c.stderr.String(), "DATA RACE") {
			t.Errorf("a child has a data race:\n%s", &c.stderr)
		}
	})
	cmd := command(os.Args[0], "-child", string(text))
	cmd.Stdin = stdin
	c.process = launch(t, cmd, start)
	stdin.Close()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT) // it may have ended, or never been stopped
		open.Close()
	})
	return c
}

// signal sends a signal, and has to succeed.
func (c child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("%v to a child: %v", s, err)
	}
}

// note is a line that a child prints. Its instants are those of the machine's
// monotonic clock, in nanoseconds, and so can be compared with the test's own.
type note struct {
	What  string
	Began int64         // when the noted operation began
	Took  time.Duration // until it had ended
	Left  time.Duration // of the lease
	Sure  time.Duration // for how long nobody else can hold the lock, as the client believes
	Text  string
	Err   string
	Cause client.Cause // of Err, if it has one

	Done, Rejected int64 // by an attacker
}

func (n *note) blame(err error) {
	if err != nil {
		n.Err = err.Error()
		errors.As(err, &n.Cause)
	}
}

// notes returns what the child has printed until now.
func (c child) notes() []note {
	c.t.Helper()
	var all []note
	printed := c.stdout.String()
	whole := strings.LastIndexByte(printed, '\n') + 1 // the rest of a line may come yet
	for lines := bufio.NewScanner(strings.NewReader(printed[:whole])); lines.Scan(); {
		var n note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			c.t.Fatalf("a child printed %q: %v", lines.Text(), err)
		}
		all = append(all, n)
	}
	return all
}

// waitNote waits until the child has printed a note of that kind, after the
// first few that are given, and returns it. It waits with patience.
func (c child) waitNote(what string, after int, limit time.Duration) note {
	c.t.Helper()
	var found []note
	noErr(c.t, c.prints("a note of "+what, limit, func() bool {
		found = slices.DeleteFunc(c.notes()[after:], func(n note) bool { return n.What != what })
		return len(found) > 0
	}))
	return found[0]
}

// machineNow reads the clock that all processes of the machine share.
func machineNow() int64 {
	return int64(bootclock.Now())
}
