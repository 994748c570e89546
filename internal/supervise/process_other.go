//go:build !unix

package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"time"
)

// Limits says, for people, what the guardian cannot do on this system.
func Limits() string {
	return "this system has no process groups: if the lock is lost, CMD itself is killed, without warning, but not what it started, and nothing is if chubbyctl is stopped or killed"
}

// Interrupts are the signals with which people end a program.
func Interrupts() []os.Signal { return []os.Signal{os.Interrupt} }

// Number returns the number of a signal, for exit codes of 128+n.
func Number(s os.Signal) int {
	if s == os.Interrupt {
		return 2
	}
	return 0
}

// Listen keeps an interrupt, which the command also gets, from ending this process first.
func Listen() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, Interrupts()...)
	return c
}

// CatchBrokenPipes does nothing and returns 0: this system has no SIGPIPE.
func CatchBrokenPipes() int { return 0 }

// RunGuardian fails: this system has no guardian.
func RunGuardian([]string) error { return errors.New("there is no guardian on this system") }

// Process is a running command.
type Process struct {
	command  Command
	child    *exec.Cmd
	stop     chan struct{}
	exited   chan error
	finished chan struct{}
	stopping atomic.Bool // it is being killed
	result   Result
	err      error
}

// Start runs a command with this process's standard streams, except for Command.Stdin. It fails with a
// NotRunError if the command cannot run, and with ErrLate if its time is over.
func Start(c Command, _ chan os.Signal) (*Process, error) {
	if left, _ := c.Allowed(); left <= 0 {
		return nil, ErrLate
	}
	child := exec.Command(c.Path)
	child.Args, child.Env = c.Args, c.Env
	child.Stdin, child.Stdout, child.Stderr = cmp.Or(c.Stdin, os.Stdin), os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return nil, notRun(c.Path, err)
	}
	p := &Process{
		command:  c,
		child:    child,
		stop:     make(chan struct{}, 1),
		exited:   make(chan error, 1),
		finished: make(chan struct{}),
	}
	go func() { p.exited <- child.Wait() }()
	go p.runSupervision()
	return p, nil
}

func (p *Process) runSupervision() {
	defer close(p.finished)
	refresh := time.NewTicker(p.command.Refresh)
	defer refresh.Stop()
	for {
		select {
		case err := <-p.exited:
			p.result.Code = p.child.ProcessState.ExitCode()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				p.err = fmt.Errorf("wait for the command: %w", err)
			}
			return
		case <-p.stop:
			p.kill()
		case <-refresh.C:
			left, news := p.command.Allowed()
			if news && left <= p.command.Refresh+p.command.KillAfter {
				p.kill()
			}
		}
	}
}

func (p *Process) kill() {
	p.result.Cut = true
	p.stopping.Store(true)
	if err := p.child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.command.Notice(fmt.Sprintf("kill the command: %v", err))
	}
}

// Stop ends the command.
func (p *Process) Stop() {
	select {
	case p.stop <- struct{}{}:
	default: // Stop was called before
	}
}

// Stopping reports whether the command is being killed.
func (p *Process) Stopping() bool { return p.stopping.Load() }

// Signal does nothing on this system.
func (p *Process) Signal(os.Signal) {}

// SignalUnstopped does nothing on this system.
func (p *Process) SignalUnstopped(os.Signal) {}

// Done is closed when the command is gone.
func (p *Process) Done() <-chan struct{} { return p.finished }

// Wait returns how the command ended, once it has.
func (p *Process) Wait() (Result, error) {
	<-p.finished
	return p.result, p.err
}

// ParseSignal fails: this system cannot signal a command.
func ParseSignal(name string) (os.Signal, error) {
	return nil, fmt.Errorf("this system cannot send %q to a command", name)
}

// Scan returns 0: this system does not list processes.
func Scan() time.Duration { return 0 }

// NotForwarded names the signals that a command does not get from this process, for people.
func NotForwarded() string { return "all: this system gives an interrupt to the command itself" }
