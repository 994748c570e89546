package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/supervise"
)

// Lock is the part of client.Lock that running a command needs.
type Lock interface {
	// Context ends, with a cause, when the lock is no longer reliable.
	Context() context.Context
	// ExclusiveUntil is how long from now nobody else can have the lock if the cell falls silent; 0 when it is
	// lost.
	ExclusiveUntil() time.Duration
	// Err returns why the lock is no longer reliable; nil while it is.
	Err() error
}

// Session is the part of client.Client that running a command needs.
type Session interface {
	// Lease is the length of the newest grant.
	Lease() time.Duration
	// Left is the rest of the local lease; negative in jeopardy.
	Left() time.Duration
}

// Terms are the user's settings for running and ending a command.
type Terms struct {
	LockDelay      time.Duration     // of what is held
	KillAfter      time.Duration     // from SIGTERM to SIGKILL
	Scan           time.Duration     // how long listing this machine's processes takes (supervise.Scan)
	Jeopardy, Safe os.Signal         // for CMD when the cell falls silent, and when it answers again; nil: none
	Guardian       string            // the verb of this program that is supervise.RunGuardian
	Verbose        bool              // print the budget as a notice
	Notice         func(text string) // for what the user may want to know
	Warn           func(text string) // for what needs action
}

// Command is a command, and what it runs under.
type Command struct {
	Terms
	Name    string // of the lock, for people
	Lock    Lock
	Session Session
	Program string // from supervise.Find
	Args    []string
	Env     []string
	Data    *[]byte         // its standard input; nil: this process's
	News    *News           // of the session; may be nil
	Asked   <-chan struct{} // closed when another should have the lock
	GivesUp func() bool     // called then; reports whether CMD is asked to end
}

// News passes on to a Command that its session enters or leaves jeopardy.
type News struct {
	changed chan struct{}
	heard   atomic.Pointer[string] // what replicas said when the cell fell silent
}

// NewNews returns news for one Command.
func NewNews() *News { return &News{changed: make(chan struct{}, 1)} }

// Hear is for client.Config.OnState.
func (n *News) Hear(change client.StateChange) {
	n.heard.Store(&change.Heard)
	select {
	case n.changed <- struct{}{}:
	default: // the receiver reads the state when it receives, so one is enough
	}
}

// String returns what replicas said, after a colon; "" if they said nothing.
func (n *News) String() string {
	if text := n.heard.Load(); text != nil && *text != "" {
		return ": " + *text
	}
	return ""
}

// NotBegun says that a command did not begin, and read no input.
type NotBegun struct{ Err error }

// Error returns the reason.
func (n NotBegun) Error() string { return n.Err.Error() }

// Unwrap returns the reason: a *supervise.NotRunError, or an *Ended after an earlier loss of the lock.
func (n NotBegun) Unwrap() error { return n.Err }

// Ended is any end of a command except by itself with 0.
type Ended struct {
	Code int   // CMD's own exit code; 128+n if signal n killed it
	Lost bool  // what it ran under was lost, or could have been
	Err  error // the message; nil if CMD ended by itself
}

// Error returns the message.
func (e *Ended) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Ended) Unwrap() error { return e.Err }

// Run runs the command while the lock is held, and passes signals (supervise.Listen) to it. Its error is
// NotBegun if the command certainly did not begin, else *Ended.
func (c Command) Run(signals chan os.Signal) error {
	if c.News == nil {
		c.News = NewNews()
	}
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
			// After the loss of the lock there is no news: the guardian keeps its last instants, and Stop ends
			// CMD.
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

func (c Command) outcome(process *supervise.Process) error {
	result, err := process.Wait()
	end := &Ended{Code: result.Code, Err: err} // with an error also if a signal killed CMD
	switch {
	case err != nil:
	case c.Lock.Err() != nil:
		end.Lost, end.Err = true, fmt.Errorf("%v was lost while CMD ran: %w; CMD ended with %d", c.Name, c.Lock.Err(), result.Code)
	case result.Cut:
		end.Lost, end.Err = true, api.Errorf(api.LockLost,
			"%v could have been lost: the cell did not answer for as long as nobody else could have it%s; "+
				"CMD was stopped, and ended with %d", c.Name, c.News, result.Code)
	case result.Code == 0:
		return nil
	}
	return end
}

// watch follows the lock until the command is gone. It reports jeopardy, asks the command to end when another
// should have the lock, and stops it after the lock's loss.
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
		case <-c.News.changed:
			was := jeopardy
			jeopardy = c.Session.Left() <= 0
			switch {
			case jeopardy && !was && lost != nil:
				left := c.Lock.ExclusiveUntil() - c.KillAfter - c.Budget(c.Session.Lease()).Margin
				sendSignal(process.Signal, c.Jeopardy)
				c.Notice(fmt.Sprintf("jeopardy: the cell does not answer%s; CMD is stopped in %v unless it does",
					c.News, max(left, 0).Round(100*time.Millisecond)))
			case was && !jeopardy && lost != nil:
				sendSignal(process.SignalUnstopped, c.Safe) // too late if CMD is being stopped
				if !process.Stopping() {
					c.Notice("safe: the cell answers again")
				}
			}
		}
	}
}

func sendSignal(send func(os.Signal), s os.Signal) {
	if s != nil {
		send(s)
	}
}

// thisProgram returns the path of the running program. During days of waiting, an upgrade may replace the file,
// and its guardian may not understand this version's orders.
func thisProgram() (string, error) {
	const running = "/proc/self/exe" // on Linux: the file itself, even after it was replaced
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// Environment returns this process's environment with some variables, NAME=VALUE, replaced or added.
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

// Budget is the time to stop CMD safely: nobody else gets the lock before lease and lock-delay have ended
// (Chubby §2.4, §2.8).
type Budget struct {
	Lease, LockDelay, KillAfter, Margin time.Duration
}

// Budget returns the budget under a lease. The margin has room for killing CMD and its descendants: that lists
// the machine's processes several times, because they may start others.
func (t Terms) Budget(lease time.Duration) Budget {
	return Budget{lease, t.LockDelay, t.KillAfter, max(client.Margin(lease, t.LockDelay), scansToKill*t.Scan)}
}

const scansToKill = 4

// exclusive is the minimum time without another holder: a lease is extended after 7/12 of it, and clocks may
// run at different rates.
func (b Budget) exclusive() time.Duration {
	return time.Duration(float64(b.Lease*5/12+b.LockDelay) * (1 - api.ClockRateBound))
}

// Outage is the longest silence of the cell that CMD survives.
func (b Budget) Outage() time.Duration { return b.exclusive() - b.KillAfter - b.Margin }

// Check rejects settings under which CMD could run beside another holder, or would stop without an outage.
func (b Budget) Check() error {
	if b.Outage() > 0 {
		return nil
	}
	return fmt.Errorf("with a lease of %v and a lock-delay of %v, nobody else can have the lock for %v at the worst moment; "+
		"CMD needs %v to be stopped (--kill-after) and a margin of %v: lower --kill-after, or raise --lease or --lock-delay",
		b.Lease, b.LockDelay, b.exclusive().Round(time.Millisecond), b.KillAfter, b.Margin.Round(time.Millisecond))
}

// String says which outage CMD survives.
func (b Budget) String() string {
	return fmt.Sprintf("CMD rides out an outage of the cell of %.1fs: "+
		"remaining lease %.1fs + lock-delay %v, less clock bound %.1fs, kill-after %v and margin %v",
		b.Outage().Seconds(), (b.Lease * 5 / 12).Seconds(), b.LockDelay,
		(b.Lease*5/12 + b.LockDelay - b.exclusive()).Seconds(), b.KillAfter, b.Margin.Round(time.Millisecond))
}

// Refresh is the interval of asking how long the lock is still ours.
func (b Budget) Refresh() time.Duration { return min(time.Second, b.Lease/12) }

// feed is CMD's standard input: bytes in a pipe.
type feed struct {
	out, in *os.File
	done    chan struct{} // closed when the write has ended
}

// startFeed begins to write. CMD need not read all, or any of it.
func startFeed(data []byte) (*feed, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &feed{out: out, in: in, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer in.Close()
		_, _ = in.Write(data) // ends early when nobody can read any more
	}()
	return f, nil
}

// passOn is called when CMD has the reading end, or never will: the write ends with CMD and its descendants.
func (f *feed) passOn() { f.out.Close() }

func (f *feed) wait() { <-f.done }
