package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/supervise"
)

// Lock is what running a command needs of a client.Lock.
type Lock interface {
	// Context ends, with a cause, when the lock cannot be relied on any more.
	Context() context.Context
	// ExclusiveUntil is for how long from now nobody else can have the lock if the cell
	// does not answer any more; 0 when the lock is lost.
	ExclusiveUntil() time.Duration
	// Err says why the lock cannot be relied on any more; nil while it can.
	Err() error
}

// Session is what running a command needs of a client.Client.
type Session interface {
	// Lease is the length of the newest grant.
	Lease() time.Duration
	// Left is how long the local lease still runs; negative in jeopardy.
	Left() time.Duration
}

// Terms are what the user says of how a command runs and ends.
type Terms struct {
	LockDelay      time.Duration     // of what is held
	KillAfter      time.Duration     // from SIGTERM to SIGKILL
	Scan           time.Duration     // how long it takes to list this machine's processes (supervise.Scan)
	Jeopardy, Safe os.Signal         // for CMD when the cell does not answer, and when it does again; nil: none
	Guardian       string            // the verb of this program that is supervise.RunGuardian
	Verbose        bool              // the budget is a notice
	Notice         func(text string) // what the user may want to know
	Warn           func(text string) // after which somebody has to act
}

// Command is a command, and what it runs under.
type Command struct {
	Terms
	Name    string // of the lock, for people
	Lock    Lock
	Session Session
	Program string // as supervise.Find returned it
	Args    []string
	Env     []string
	Data    *[]byte         // its standard input; nil: that of this process
	Changed <-chan struct{} // receives when the session goes into jeopardy, or out of it
	Heard   fmt.Stringer    // what replicas said when the cell did not answer any more, behind a colon
	Asked   <-chan struct{} // closed when another should have the lock
	GivesUp func() bool     // is called then, and returns whether CMD is asked to end
}

// NotBegun is why a command was not begun: nothing was run, and nothing was read of what it was to read.
type NotBegun struct{ Err error }

// Error says why.
func (n NotBegun) Error() string { return n.Err.Error() }

// Unwrap returns why: a *supervise.NotRunError, for example, or an *Ended, because the lock was lost before.
func (n NotBegun) Unwrap() error { return n.Err }

// Ended is the end of a command otherwise than by itself with 0.
type Ended struct {
	Code int   // CMD's own exit code; 128+n if signal n killed it
	Lost bool  // what it ran under was lost, or could have been
	Err  error // what there is to say; nil if CMD ended by itself
}

// Error says what there is to say.
func (e *Ended) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Ended) Unwrap() error { return e.Err }

// Run runs the command while the lock is held. signals are those that are passed on to it (supervise.Listen). Its error is NotBegun if
// the command is known not to have begun, and *Ended if it has.
func (c Command) Run(signals chan os.Signal) error {
	budget := c.Budget(c.Session.Lease())
	if c.Verbose {
		c.Notice(budget.String())
	}
	if limits := supervise.Limits(); limits != "" {
		c.Notice(limits)
	}
	self, err := thisProgram()
	if err != nil {
		return NotBegun{fmt.Errorf("find this program, to start CMD's guardian: %w", err)}
	}
	lost := func() error {
		why := cmp.Or(c.Lock.Err(), supervise.ErrLate)
		return NotBegun{&Ended{Lost: true, Err: fmt.Errorf("%v was lost before CMD was started: %w", c.Name, why)}}
	}
	if c.Lock.Err() != nil {
		return lost()
	}
	var stdin *os.File
	passOn := func() {}
	if c.Data != nil {
		input, err := startFeed(*c.Data)
		if err != nil {
			return NotBegun{fmt.Errorf("open a pipe for CMD's standard input: %w", err)}
		}
		defer input.wait()
		stdin, passOn = input.out, input.passOn
	}
	process, err := supervise.Start(supervise.Command{
		Path:      c.Program,
		Args:      c.Args,
		Env:       c.Env,
		Stdin:     stdin,
		Guardian:  []string{self, c.Guardian},
		KillAfter: c.KillAfter,
		Margin:    budget.Margin,
		Refresh:   budget.Refresh(),
		Allowed: func() (time.Duration, bool) {
			left := c.Lock.ExclusiveUntil()
			// Once the lock is lost, there is no news: the guardian keeps to the last
			// instants it was told, and Stop ends CMD.
			return left - c.Budget(c.Session.Lease()).Margin, c.Lock.Err() == nil
		},
		Notice: c.Warn,
	}, signals)
	passOn()
	switch {
	case errors.Is(err, supervise.ErrLate):
		return lost()
	case errors.As(err, new(*supervise.NotRunError)):
		return NotBegun{err}
	case err != nil:
		return err
	}
	c.watch(process)
	return c.outcome(process)
}

// outcome waits for the end of the command, and says what it means.
func (c Command) outcome(process *supervise.Process) error {
	result, err := process.Wait()
	end := &Ended{Code: result.Code, Err: err} // with an error also if CMD was killed by a signal
	switch {
	case err != nil:
	case c.Lock.Err() != nil:
		end.Lost, end.Err = true, fmt.Errorf("%v was lost while CMD ran: %w; CMD ended with %d", c.Name, c.Lock.Err(), result.Code)
	case result.Cut:
		end.Lost, end.Err = true, api.Errorf(api.LockLost,
			"%v could have been lost: the cell did not answer for as long as nobody else could have it%s; "+
				"CMD was stopped, and ended with %d", c.Name, c.heard(), result.Code)
	case result.Code == 0:
		return nil
	}
	return end
}

func (c Command) heard() string {
	if c.Heard == nil {
		return ""
	}
	return c.Heard.String()
}

// watch follows the lock until the command is gone. It notifies of jeopardy, asks the
// command to end when another should have the lock, and stops it when the lock is lost.
func (c Command) watch(process *supervise.Process) {
	lost, asked := c.Lock.Context().Done(), c.Asked
	jeopardy := false
	for {
		select {
		case <-process.Done():
			return
		case <-lost:
			lost = nil
			process.Stop()
		case <-asked:
			asked = nil
			if c.GivesUp() {
				process.Signal(syscall.SIGTERM)
			}
		case <-c.Changed:
			was := jeopardy
			jeopardy = c.Session.Left() <= 0
			switch {
			case jeopardy && !was && lost != nil:
				left := c.Lock.ExclusiveUntil() - c.KillAfter - c.Budget(c.Session.Lease()).Margin
				sendSignal(process.Signal, c.Jeopardy)
				c.Notice(fmt.Sprintf("jeopardy: the cell does not answer%s; CMD is stopped in %v unless it does",
					c.heard(), max(left, 0).Round(100*time.Millisecond)))
			case was && !jeopardy && lost != nil:
				sendSignal(process.SignalUnstopped, c.Safe) // if CMD is being stopped, it is too late
				if !process.Stopping() {
					c.Notice("safe: the cell answers again")
				}
			}
		}
	}
}

// sendSignal sends CMD a signal, unless it is nil.
func sendSignal(send func(os.Signal), s os.Signal) {
	if s != nil {
		send(s)
	}
}

// thisProgram returns the path of the program that runs. It may have waited for the lock for
// days, and an upgrade have put another version in its place, whose guardian may not
// understand the orders of this one.
func thisProgram() (string, error) {
	const running = "/proc/self/exe" // on Linux: the file itself, also after another has got its name
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// Environment returns the environment of this process with some variables, each NAME=VALUE, in
// place of those of the same names.
func Environment(own ...string) []string {
	names := map[string]bool{}
	for _, assignment := range own {
		name, _, _ := strings.Cut(assignment, "=")
		names[name] = true
	}
	env := slices.DeleteFunc(os.Environ(), func(assignment string) bool {
		name, _, _ := strings.Cut(assignment, "=")
		return names[name]
	})
	return append(env, own...)
}
