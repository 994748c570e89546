//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm rings at an instant of now's clock. Go's timers may stop in suspend, so it reads the clock ten times a
// second.
type alarm struct {
	c      chan struct{}
	change chan int64
	done   chan struct{}
}

func newAlarm() (*alarm, error) {
	a := &alarm{c: make(chan struct{}, 1), change: make(chan int64), done: make(chan struct{})}
	go a.watch()
	return a, nil
}

func (a *alarm) watch() {
	defer close(a.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	at, armed := int64(0), false
	for {
		select {
		case instant, ok := <-a.change:
			if !ok {
				return
			}
			at, armed = instant, true
		case <-tick.C:
		}
		if armed && now() >= at {
			armed = false
			select {
			case a.c <- struct{}{}:
			default: // it has rung, unread
			}
		}
	}
}

// set makes the alarm ring at an instant, instead of the one set before.
func (a *alarm) set(instant int64) error {
	a.change <- instant
	return nil
}

func (a *alarm) close() {
	close(a.change)
	<-a.done
}

// Limits says, for people, what the guardian cannot do on this system, or "".
func Limits() string {
	return "this system has no child subreapers: if the lock is lost, processes that CMD started and that left its process group are not stopped"
}

func adopt() error { return nil }

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guardianAttributes puts a guardian into its own process group.
func guardianAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func rename(string) error { return nil }

// family returns the reachable processes: the process group.
func family(group int, _ ...int) []int { return groupOnly(group) }

// children returns nothing: this system kills process groups, not single processes.
func children() []int { return nil }

// parentOf reports false: on this system only a debugger learns it.
func parentOf(int) (int, bool) { return 0, false }

// Scan returns 0: this system does not list processes.
func Scan() time.Duration { return 0 }

// lastSignal is the highest signal: these systems, or Go programs on them, have no real-time signals.
const lastSignal = syscall.Signal(31)

// notForwardedHere are this system's signals that Go programs do not get.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGEMT} }

func unnamed() string { return "and SIGEMT" }

// stopSignal returns the signal with which this process stops itself, and a function to call when it goes on.
// The Go runtime swallows a SIGTSTP once passed to signal.Notify.
func stopSignal() (syscall.Signal, func()) { return unix.SIGSTOP, func() {} }

// isIgnored reports false: on these systems Go programs do not learn it.
func isIgnored(syscall.Signal) bool { return false }
