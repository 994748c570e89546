package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// lockState is what running a command needs of a client.Lock.
type lockState interface {
	// Context ends, with a cause, when the lock cannot be relied on any more.
	Context() context.Context
	// ExclusiveUntil is for how long from now nobody else can have the lock if the cell
	// does not answer any more; 0 when the lock is lost.
	ExclusiveUntil() time.Duration
	// Err says why the lock cannot be relied on any more; nil while it can.
	Err() error
}

// sessionState is what running a command needs of a client.Client.
type sessionState interface {
	Session() api.SessionID
	// Lease is the length of the newest grant.
	Lease() time.Duration
	// Left is how long the local lease still runs; negative in jeopardy.
	Left() time.Duration
}

// environment returns the environment of CMD: this process's, and what is held. Of several locks,
// each of their variables has a line for each, in the order of the locks' names.
func (t *heldLock) environment(session api.SessionID) []string {
	own := []string{"CHUBBY_SESSION=" + session.String()}
	var paths, sequencers, tokens []string
	for _, lock := range t.locks {
		paths = append(paths, lock.Path())
		sequencers = append(sequencers, lock.Sequencer().String())
		tokens = append(tokens, strconv.FormatUint(lock.Token(), 10))
	}
	if len(t.locks) > 0 {
		own = append(own, "CHUBBY_LOCK="+strings.Join(paths, "\n"), "CHUBBY_SEQUENCER="+strings.Join(sequencers, "\n"), "CHUBBY_TOKEN="+strings.Join(tokens, "\n"))
	}
	if t.slot != nil {
		own = append(own, "CHUBBY_SLOT="+strconv.Itoa(*t.slot))
	}
	if t.item != nil {
		own = append(own, "CHUBBY_ITEM="+t.item.ID(), "CHUBBY_ATTEMPT="+strconv.Itoa(t.item.Attempt()))
	}
	if t.member != "" {
		own = append(own, "CHUBBY_MEMBER="+t.member)
	}
	return withVariables(own...)
}

// withVariables returns the environment of this process with some variables, each NAME=VALUE, in
// place of those of the same names.
func withVariables(own ...string) []string {
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

// work is a lock, and what may happen to it while CMD runs under it.
type work struct {
	name    string // of the lock, for people
	lock    lockState
	session sessionState
	env     []string
	item    *recipe.Item    // whose data are CMD's standard input; nil: it has that of this process
	changed <-chan struct{} // receives when the session goes into jeopardy, or out of it
	heard   *lastHeard      // nil: nothing is known
	request request         // that another should have the lock; CMD is asked to end if it is given up for that
}

// notBegun is why CMD was not begun: nothing was run, and nothing was read of what CMD was to read.
type notBegun struct{ error }

func (n notBegun) Unwrap() error { return n.error }

// supervise runs CMD while the lock is held. Its error is notBegun if CMD is known not to have begun.
func (o *workOptions) supervise(w work) error {
	lock, budget := w.lock, o.budget(w.session.Lease())
	if o.verbose {
		o.notice(budget.String())
	}
	if limits := supervise.Limits(); limits != "" {
		o.notice(limits)
	}
	self, err := thisProgram()
	if err != nil {
		return notBegun{fmt.Errorf("find this program, to start CMD's guardian: %w", err)}
	}
	lost := func() error {
		return notBegun{&exitError{exitLost, fmt.Errorf("%v was lost before CMD was started: %w", w.name, cmp.Or(lock.Err(), supervise.ErrLate))}}
	}
	if lock.Err() != nil {
		return lost()
	}
	var stdin *os.File
	passOn := func() {}
	if w.item != nil {
		input, err := startFeed(w.item.Data)
		if err != nil {
			return notBegun{fmt.Errorf("open a pipe for CMD's standard input: %w", err)}
		}
		defer input.wait()
		stdin, passOn = input.out, input.passOn
	}
	process, err := supervise.Start(supervise.Command{
		Path:      o.program,
		Args:      o.argv,
		Env:       w.env,
		Stdin:     stdin,
		Guardian:  []string{self, guardianVerb},
		KillAfter: o.killAfter,
		Margin:    budget.margin,
		Refresh:   budget.refresh(),
		Allowed: func() (time.Duration, bool) {
			left := lock.ExclusiveUntil()
			// Once the lock is lost, there is no news: the guardian keeps to the last
			// instants it was told, and Stop ends CMD.
			return left - o.budget(w.session.Lease()).margin, lock.Err() == nil
		},
		Notice: o.warn,
	}, o.signals)
	passOn()
	switch {
	case errors.Is(err, supervise.ErrLate):
		return lost()
	case errors.As(err, new(*supervise.NotRunError)):
		return notBegun{err}
	case err != nil:
		return err
	}
	o.watchCommand(process, w)
	result, err := process.Wait()
	switch {
	case err != nil:
		return &exitError{exitFailed, err} // also if CMD was killed by a signal
	case lock.Err() != nil:
		return &exitError{exitLost, fmt.Errorf("%v was lost while CMD ran: %w; CMD ended with %d", w.name, lock.Err(), result.Code)}
	case result.Cut:
		return &exitError{exitLost, api.Errorf(api.LockLost, "%v could have been lost: the cell did not answer for as long as nobody else could have it%s; CMD was stopped, and ended with %d", w.name, w.heard, result.Code)}
	}
	return exitWith(result.Code)
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

func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// watchCommand follows the lock until the command is gone. It notifies of jeopardy, asks the
// command to end when another should have the lock, and stops it when the lock is lost.
func (o *workOptions) watchCommand(process *supervise.Process, w work) {
	lost, asked := w.lock.Context().Done(), w.request.asked
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
			if o.noticeRequest(w.request) {
				process.Signal(syscall.SIGTERM)
			}
		case <-w.changed:
			was := jeopardy
			jeopardy = w.session.Left() <= 0
			switch {
			case jeopardy && !was && lost != nil:
				left := w.lock.ExclusiveUntil() - o.killAfter - o.budget(w.session.Lease()).margin
				sendSignal(process.Signal, o.jeopardy)
				o.notice(fmt.Sprintf("jeopardy: the cell does not answer%s; CMD is stopped in %s unless it does", w.heard, term.Roughly(left)))
			case was && !jeopardy && lost != nil:
				sendSignal(process.SignalUnstopped, o.safe) // if CMD is being stopped, it is too late
				if !process.Stopping() {
					o.notice("safe: the cell answers again")
				}
			}
		}
	}
}

// lastHeard is what replicas said when the cell did not answer any more.
type lastHeard struct{ text atomic.Pointer[string] }

// String returns it behind a colon; "" if nothing was heard.
func (h *lastHeard) String() string {
	if h == nil || h.text.Load() == nil || *h.text.Load() == "" {
		return ""
	}
	return ": " + *h.text.Load()
}

// sendSignal sends CMD a signal, unless it is nil.
func sendSignal(send func(os.Signal), s os.Signal) {
	if s != nil {
		send(s)
	}
}
